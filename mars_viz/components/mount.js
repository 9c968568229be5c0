// An element in its place on the page: the view that stands there, where it was left, what Python is told of it, and
// whether the page is dark.

const views = new WeakMap(); // by place
const lives = new Map(); // where each revision was left, for the case that the page builds the element anew

/** Let the view of this place take on what Python sent; `make` makes it the first time. What is returned takes it away. */
function mounted({ data, parentElement, setStateValue, setTriggerValue }, make) {
  const view = views.get(parentElement) ?? make(parentElement);
  views.set(parentElement, view);
  Object.assign(view, { state: setStateValue, trigger: setTriggerValue });
  view.receive(Array.isArray(data) ? data[0] : data);
  return () => {
    view.close();
    views.delete(parentElement);
  };
}

/** Where the element of that key was left in this revision; else where Python wants it. */
function positionIn(key, revision, wanted) {
  const left = lives.get(key);
  return left?.revision === revision ? left : wanted;
}

/** Tell Python where a view stands, where that is not what it was told last. */
function tellPosition(view, key, position) {
  lives.set(key, position);
  const told = JSON.stringify(position);
  if (told === view.told) return;
  view.told = told;
  view.state("position", position);
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Mark an element as light or dark, as the page around it is. True if that changed. */
function themed(root) {
  const color = getComputedStyle(root).getPropertyValue("--st-background-color").trim();
  const probe = h("span");
  probe.style.color = color || "#fff";
  root.append(probe);
  const rgb = getComputedStyle(probe).color.match(/\d+(\.\d+)?/g).slice(0, 3).map(Number);
  probe.remove();
  const name = luminance(rgb) < 0.2 ? "dark" : "light";
  if (root.dataset.theme === name) return false;
  root.dataset.theme = name;
  return true;
}
