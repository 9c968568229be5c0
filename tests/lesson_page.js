// As much of a page as the lessons' script needs: elements that hold attributes, text and listeners, and a slider that
// keeps to its steps as a browser's does. Nothing is drawn: everything is 0 wide.

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, childNodes: [], listeners: {}, style: { setProperty: (name, value) => { this.style[name] = value; } }, dataset: {} });
    this.classList = { toggle: () => {}, add: () => {}, remove: () => {} };
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  append(...children) { this.childNodes.push(...children); }
  replaceChildren(...children) { this.childNodes = children; }
  remove() {}
  dispatchEvent({ type }) { this.listeners[type]?.({}); }
  getBoundingClientRect() { return { width: 0, height: 0 }; }
  set textContent(text) { this.childNodes = [text]; }
  get textContent() { return this.childNodes.map((child) => child.textContent ?? child).join(""); }
  get firstChild() { return this.childNodes[0]; }
  get children() { return this.childNodes; }
  get min() { return this.attributes.min; }
  get max() { return this.attributes.max; }
  get step() { return this.attributes.step; }
  get value() { return String(this.thumb); }
  get valueAsNumber() { return this.thumb; }
  set valueAsNumber(value) { this.value = value; }
  set value(value) {
    const [low, high, step] = [this.min, this.max, this.step].map(Number);
    const within = Math.min(high, Math.max(low, Number(value)));
    this.thumb = this.step === "any" ? within : Number((low + Math.round((within - low) / step) * step).toFixed(10));
  }
  *all() { yield this; for (const child of this.childNodes) if (child.all) yield* child.all(); }
}

globalThis.document = { createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag) };
globalThis.getComputedStyle = () => ({ color: "rgb(255, 255, 255)", getPropertyValue: () => "" });
globalThis.ResizeObserver = class { observe() {} };
globalThis.Event = class { constructor(type) { this.type = type; } };
globalThis.matchMedia = () => ({ matches: false });
let clock = 0, asked = null;
globalThis.performance = { now: () => clock };
globalThis.requestAnimationFrame = (callback) => { asked = callback; return 1; };
globalThis.cancelAnimationFrame = () => { asked = null; };

/** Let so many milliseconds pass, and draw once. */
export function pass(milliseconds) {
  clock += milliseconds;
  asked?.(clock);
}

/** A lesson's element on a page: what it has told Python, and its elements by class or tag. */
export function opened(lesson, sent) {
  const parentElement = new Element("div"), told = [];
  const whole = { id: "a", key: "k", revision: "1", large: false, label: "", ...sent };
  const renew = (changed) => lesson({ data: [{ ...whole, ...changed }], parentElement, setStateValue: (_, position) => told.push(position) });
  renew({});
  const found = (name) => [...parentElement.all()].filter(({ tag, attributes }) => tag === name || (attributes.class ?? "").split(" ").includes(name));
  return { told, found, renew, sent: whole, pull(value) { const [range] = found("input"); range.value = value; range.dispatchEvent({ type: "input" }); range.dispatchEvent({ type: "change" }); } };
}
