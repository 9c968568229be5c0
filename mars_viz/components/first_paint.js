// Says once that an element has been painted and that the browser is done with it, or that it has waited long enough.

const EVERY = 20; // ms between two looks
const IDLE = 500; // ms; a browser that is never done draws the rest all the same
const whenIdle = globalThis.requestIdleCallback ?? ((then) => setTimeout(then, 0)); // Safari has none
const neverMind = globalThis.cancelIdleCallback ?? clearTimeout;

function isThere(selector) {
  const components = document.querySelectorAll("[data-testid=stBidiComponentIsolated]");
  return [document, ...Array.from(components, (found) => found.shadowRoot)].some((root) => root?.querySelector(selector));
}

export default function ({ data, setStateValue }) {
  const [{ selector, patience }] = data;
  const end = performance.now() + 1000 * patience;
  let waiting = 0;
  let frame = 0;
  let idle = 0;
  const look = () => {
    if (!isThere(selector) && performance.now() < end) waiting = setTimeout(look, EVERY);
    else frame = requestAnimationFrame(() => { idle = whenIdle(() => setStateValue("painted", true), { timeout: IDLE }); });
  };
  look();
  return () => {
    clearTimeout(waiting);
    cancelAnimationFrame(frame);
    neverMind(idle);
  };
}
