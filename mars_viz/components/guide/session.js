// What the browser's tab remembers of the start page, and where its explorer is.

const remembered = new Map(); // for a browser that stores nothing

function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return remembered.get(name) ?? null;
  }
}

function remember(name, value) {
  remembered.set(name, value);
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // it is remembered until the page is loaded again
  }
}

/** The shadow root of the explorer inside `place`; null before it is there. */
function explorerIn(place) {
  const roots = Array.from(place.querySelectorAll("[data-testid=stBidiComponentIsolated]"), (host) => host.shadowRoot);
  return roots.find((root) => root?.querySelector(".explorer .t")) ?? null;
}
