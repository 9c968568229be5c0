// One step of the browser's history a page: where Streamlit would add one for each link that a page writes, the last is
// written over. Back then leads to the page before, not to a dial's last place, which the page does not read again.

export default function () {
  const own = globalThis.history;
  if (own.mvOneStep) return;
  own.mvOneStep = true;
  const push = own.pushState.bind(own);
  own.pushState = (state, title, url) => {
    const same = url != null && new URL(url, globalThis.location.href).pathname === globalThis.location.pathname;
    if (same) own.replaceState(state, title, url);
    else push(state, title, url);
  };
}
