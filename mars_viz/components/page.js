// What every page asks of the browser. One step of its history a page: where Streamlit would add one for each link that a
// page writes, the last is written over. Back then leads to the page before, not to a dial's last place, which the page
// does not read again. And word of a theme other than the one that the script drew for: Streamlit changes its own colours
// and runs no script.

function oneStep() {
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

let asked = null; // the theme that the script was last told of, so that it is told once, whatever it draws then

export default function ({ data, setTriggerValue }) {
  oneStep();
  if (!data) return undefined;
  const [drawn] = data;
  const page = document.querySelector("[data-testid=stApp]");
  const look = () => {
    const shown = getComputedStyle(page).colorScheme;
    if (shown === drawn) asked = null;
    else if (shown !== asked) setTriggerValue("changed", asked = shown);
  };
  const changes = new MutationObserver(look);
  changes.observe(page, { attributes: true, attributeFilter: ["class"] });
  look();
  return () => changes.disconnect();
}
