// Runs first on every page of a site: data comes in scripts, since a page that lies in a folder may fetch nothing. Says in
// one sentence why a page shows nothing, and whether the page is embedded in another.

const marsViz = (() => {
  const root = new URL("..", document.currentScript.src); // of the site
  const taken = new Map(), asked = new Map(); // data by name; scripts by path

  /** Load a script of the site, once; what cannot be loaded is tried again when it is asked for again. */
  function script(path) {
    if (!asked.has(path)) {
      asked.set(path, new Promise((resolve, reject) => {
        const element = document.createElement("script");
        element.src = new URL(path, root).href;
        element.onload = resolve;
        element.onerror = () => {
          asked.delete(path);
          reject(new Error(`${path} could not be loaded`));
        };
        document.head.append(element);
      }));
    }
    return asked.get(path);
  }

  function failed(sentence) {
    const place = document.getElementById("failed");
    place.textContent = sentence;
    place.hidden = false;
    for (const element of document.querySelectorAll("[aria-busy]")) element.removeAttribute("aria-busy");
  }

  const asksFor = (text) => new URLSearchParams(text).get("embed") === "true";
  if (asksFor(location.search) || asksFor(location.hash.slice(1))) document.documentElement.classList.add("embedded");

  return {
    script,
    failed,
    /** Called by the scripts with data. */
    take: (name, text) => taken.set(name, text),
    /** The text of that name. */
    text: async (name) => {
      if (!taken.has(name)) await script(`data/${name}.js`);
      return taken.get(name);
    },
    /** Show an element, and what follows it on the page, once it has taken its size, so that nothing is seen to move. */
    async reveal(element) {
      element.style.visibility = "hidden";
      for (let frames = 0; frames < 3; frames++) await new Promise(requestAnimationFrame);
      element.style.visibility = "";
      element.removeAttribute("aria-busy");
    },
    /** Open the page: what goes wrong becomes a sentence. */
    async open(page) {
      if (!globalThis.DecompressionStream) return failed("This browser is too old to unpack the site’s data. Open it in a browser of 2023 or later.");
      try {
        await page();
      } catch (error) {
        failed(`This page could not be shown: ${error.message}. Load it again, or make the site anew.`);
        console.error(error);
      }
    },
  };
})();
