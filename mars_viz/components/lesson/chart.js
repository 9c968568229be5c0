// A figure with axes that is drawn anew at every position of a knob: marks in, SVG out. Knows no lesson.
// Words in it only ever become text nodes.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 46, RIGHT = 14, TOP = 10;
const SMALL = 0.83; // ems of the words in it, as the style has them
const WIDE = 0.52; // of a letter on average, in ems: enough to see whether words fit

/** An SVG element; attributes by name, then its text, which is data. */
function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Round numbers from low to high, about so many. */
export function ticks(low, high, about = 5) {
  const rough = (high - low) / about;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * size).find((by) => by >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A tick's number, as round as it is. */
function tickText(value) {
  return Math.abs(value) >= 1000 ? whole(value) : String(value).replace("-", "−");
}

/** Words of which no line ends inside 'θ = 0.9' or 'z1 − z2'. */
function unbroken(words) {
  return words.replace(/ ([=−]) /g, "\u00a0$1\u00a0");
}

/** Title, key, axes and marks; as wide as its place. */
class Chart {
  constructor() {
    this.title = h("h3", { class: "chart-title" });
    this.key = h("p", { class: "chart-key" });
    this.canvas = svg("svg", { class: "chart", role: "img" });
    this.element = h("figure", { class: "chart-figure" }, this.title, this.key, this.canvas);
    this.resized = new ResizeObserver(() => this.paint());
    this.resized.observe(this.element);
  }

  /** What to show: { title, key: [[mark, colour, words]], x: {low, high, name, names?}, y: {low, high, name}, marks }. */
  show(figure) {
    this.figure = figure;
    say(this.title, unbroken(figure.title));
    this.canvas.setAttribute("aria-label", figure.title);
    const key = JSON.stringify(figure.key);
    if (key !== this.keyed) {
      this.keyed = key;
      this.key.replaceChildren(...figure.key.map(([mark, colour, words]) => h("span", {}, h("i", { style: `color:${colour}` }, mark), ` ${words}`)));
    }
    this.paint();
  }

  paint() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width || !this.figure) return;
    this.size = { width, height, em: Number.parseFloat(getComputedStyle(this.canvas).fontSize) * SMALL };
    this.bottom = this.room();
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.replaceChildren(...this.grid(), ...this.figure.marks.flatMap((mark) => this[mark.kind](mark)));
  }

  /** Pixels below the plot, for the words that stand there. */
  room() {
    const { x } = this.figure, { width, em } = this.size;
    const lines = Math.max(...(x.names ?? [""]).map((name) => name.split("\n").length));
    const longest = Math.max(0, ...(x.names ?? []).map((name) => name.length));
    this.slanted = lines === 1 && Boolean(x.names) && longest * WIDE * em > (width - LEFT - RIGHT) / x.names.length - 3;
    const names = this.slanted ? 0.6 * longest * WIDE * em : (lines - 1) * 1.2 * em;
    return 8 + 1.2 * em + names + (x.name ? 1.6 * em : 0);
  }

  x(value) {
    const { low, high } = this.figure.x;
    return LEFT + ((value - low) / (high - low)) * (this.size.width - LEFT - RIGHT);
  }

  y(value) {
    const { low, high } = this.figure.y;
    return this.size.height - this.bottom - ((value - low) / (high - low)) * (this.size.height - TOP - this.bottom);
  }

  grid() {
    const { x, y } = this.figure;
    const { width, height } = this.size;
    const parts = [];
    for (const value of ticks(y.low, y.high, 4)) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: this.y(value), y2: this.y(value) }));
      parts.push(svg("text", { x: LEFT - 7, y: this.y(value) + 4, "text-anchor": "end" }, tickText(value)));
    }
    const marks = x.names ? x.names.map((name, i) => [i, name]) : ticks(x.low, x.high, width < 420 ? 4 : 8).map((value) => [value, tickText(value)]);
    for (const [value, name] of marks) {
      const at = this.x(value), below = height - this.bottom + 4 + this.size.em;
      parts.push(this.slanted
        ? svg("text", { x: at + 4, y: below - 2, "text-anchor": "end", transform: `rotate(-32 ${at + 4} ${below - 2})` }, name)
        : svg("text", { y: below, "text-anchor": "middle" }, ""));
      if (!this.slanted) name.split("\n").forEach((line, i) => parts.at(-1).append(svg("tspan", { x: at, dy: i ? "1.2em" : 0 }, line)));
    }
    parts.push(svg("line", { class: "base", x1: LEFT, x2: width - RIGHT, y1: height - this.bottom, y2: height - this.bottom }));
    parts.push(svg("text", { class: "name", x: (LEFT + width - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, x.name));
    const middle = (TOP + height - this.bottom) / 2;
    parts.push(svg("text", { class: "name", x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, y.name));
    return parts;
  }

  // ---- marks; a point outside the axes is cut off

  line({ points, colour, wide = 2.5, dashed, faint }) {
    const { low, high } = this.figure.y;
    const runs = [[]];
    for (const [x, y] of points) {
      if (Number.isFinite(y) && y >= low && y <= high) runs.at(-1).push(`${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`);
      else if (runs.at(-1).length) runs.push([]);
    }
    return runs.filter((run) => run.length > 1).map((run) => svg("polyline", {
      points: run.join(" "), fill: "none", stroke: colour, "stroke-width": wide, "stroke-linejoin": "round",
      "stroke-dasharray": dashed ? "5 5" : null, opacity: faint ? 0.7 : null,
    }));
  }

  dot({ x, y, colour, size = 5, shape = "full", faint, tip }) {
    const at = { cx: this.x(x), cy: this.y(y), r: size, fill: shape === "ring" ? "none" : colour, stroke: shape === "ring" ? colour : "var(--ground)", "stroke-width": shape === "ring" ? 2 : 1 };
    const mark = shape === "diamond"
      ? svg("rect", { x: at.cx - size, y: at.cy - size, width: 2 * size, height: 2 * size, fill: colour, stroke: "var(--ground)", transform: `rotate(45 ${at.cx} ${at.cy})` })
      : svg("circle", at);
    if (faint) mark.setAttribute("opacity", 0.45);
    if (tip) mark.append(svg("title", {}, tip));
    return [mark];
  }

  bar({ x, low, high, wide = 0.8, colour, faint, tip }) {
    const left = this.x(x - wide / 2), top = this.y(high);
    const mark = svg("rect", { x: left, y: top, width: this.x(x + wide / 2) - left, height: Math.max(0, this.y(low) - top), fill: colour, opacity: faint ? 0.45 : null });
    if (tip) mark.append(svg("title", {}, tip));
    return [mark];
  }

  band({ low, high, colour }) {
    const left = this.x(low);
    return [svg("rect", { x: left, y: TOP, width: Math.max(0, this.x(high) - left), height: this.size.height - TOP - this.bottom, fill: colour, opacity: 0.2 })];
  }

  across({ y, colour, dashed = true }) {
    return [svg("line", { x1: LEFT, x2: this.size.width - RIGHT, y1: this.y(y), y2: this.y(y), stroke: colour, "stroke-width": 1.5, "stroke-dasharray": dashed ? "5 5" : null })];
  }

  down({ x, colour }) {
    return [svg("line", { x1: this.x(x), x2: this.x(x), y1: TOP, y2: this.size.height - this.bottom, stroke: colour, "stroke-width": 2 })];
  }

  /** Words above a point; `brief` in their place where their neighbours would run into them. */
  label({ x, y, words, brief, colour, strong }) {
    if (brief !== undefined && words.length * WIDE * this.size.em > this.x(1) - this.x(0)) words = brief;
    return [svg("text", { x: this.x(x), y: this.y(y) - 5, "text-anchor": "middle", fill: colour, "font-weight": strong ? 600 : null }, words)];
  }
}

/** Colours as the lesson's style has them. */
const INK = { dial: "var(--m-dial)", relaxed: "var(--m-relaxed)", rejected: "var(--m-rejected)", quiet: "var(--m-quiet)", text: "var(--ink)" };
