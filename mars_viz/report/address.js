// What a page's address says of its view, as the app's links do: after the ? or, which a folder's files take as well,
// after the #, where the page writes it when the hand rests.

/** What the address asks for, by name; what stands after the # is said last. */
function asked() {
  const parts = [location.search, location.hash.slice(1)].map((text) => [...new URLSearchParams(text)]);
  return Object.fromEntries(parts.flat());
}

/** Write the view into the address, all of it after the #; what is empty is left out, what is not the view's stays. */
function writeAddress(view) {
  const query = new URLSearchParams(location.search), said = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(view)) {
    query.delete(name);
    if (value === null || value === undefined || value === "") said.delete(name);
    else said.set(name, value);
  }
  const [page] = location.href.split(/[?#]/);
  try {
    history.replaceState(history.state, "", `${page}${query.size ? `?${query}` : ""}${said.size ? `#${said}` : ""}`);
  } catch (error) { // a browser that lets a folder's pages have no history
    console.warn(error);
  }
}

/** The number that a text says, or null. */
function numberIn(text) {
  return text === undefined || text.trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text);
}

/** The whole number from 0 on that a text says, or null. */
function wholeIn(text) {
  return /^[0-9]{1,9}$/.test(text ?? "") ? Number(text) : null;
}
