// Marks of a dial on a figure that Plotly drew, moved as they stand: drawing the whole figure anew for each place that a
// hand passes would cost far more than a frame has room for. Knows where Plotly keeps things; knows no dial and no run.

/** The marks of that name: shapes, annotations and traces of one point, each with the place it was drawn at. */
function marksNamed(figure, name) {
  const { layout } = figure, found = [];
  const listed = (selector, list, place) => figure.querySelectorAll(selector).forEach((element) => {
    const about = list?.[element.dataset.index];
    if (about?.name === name) found.push({ element, ...place(about) });
  });
  listed(".shapelayer path", layout.shapes, ({ x0 }) => ({ x: x0, y: null }));
  listed(".annotation[data-index]", layout.annotations, ({ x, y, yref }) => ({ x, y: yref === "paper" ? null : y, words: true }));
  for (const element of figure.querySelectorAll(".scatterlayer .trace")) {
    const trace = element.__data__?.[0]?.trace; // as d3 binds it
    if (trace?.name === name) found.push({ element, x: trace.x[0], y: trace.y[0] });
  }
  return found;
}

/** Let the marks of that name stand at `x`, and at `y` where they have a height of their own; null leaves it. The words
 *  of an annotation become these. */
function moveMarks(figure, name, { x, y = null, words }) {
  const { xaxis, yaxis } = figure._fullLayout; // Plotly has no other name for where a value stands
  for (const mark of marksNamed(figure, name)) {
    const right = xaxis.l2p(x) - xaxis.l2p(mark.x), down = y === null || mark.y === null ? 0 : yaxis.l2p(y) - yaxis.l2p(mark.y);
    const moved = Math.abs(right) > 0.01 || Math.abs(down) > 0.01;
    mark.element.style.translate = moved ? `${right}px ${down}px` : "";
    const text = mark.words && mark.element.querySelector("text");
    if (text) say(text.querySelector("tspan") ?? text, words);
  }
}
