// An element in its place on the page: the view that stands there, where it was left, and what Python is told of it.

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
