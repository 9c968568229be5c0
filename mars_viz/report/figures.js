// The figures of a report, which follow its dial: each drawn setting came with the file, and the nearest is shown.
// Knows Plotly and where the figures stand; knows no explorer.

const BY_FINGER = matchMedia("(pointer: coarse)");

/** A place of the page and what stands in it. */
class Figure {
  constructor(element, name, plotly, file) {
    Object.assign(this, { element, name, plotly, file });
  }

  draw({ data, layout }) {
    const save = (format) => ({ name: `Save as ${format.toUpperCase()}`, icon: this.plotly.Icons.camera, click: (drawn) => this.plotly.downloadImage(drawn, { format, filename: `${this.file()}-${this.name}`, scale: format === "png" ? 2 : 1, width: drawn.offsetWidth, height: layout.height }) });
    this.config ??= { responsive: true, displaylogo: false, modeBarButtons: [[save("svg"), save("png")]] };
    if (BY_FINGER.matches) layout.dragmode = false; // a finger that moves over a figure means the page, and no zoom
    this.plotly.react(this.element, data, layout, this.config);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", layout.title.text.replace(/<br>/g, " ").replace(/<\/?b>/g, ""));
  }
}

/** The map of all settings. Its marks of the dial are moved as they stand, which costs next to nothing; when they have
 *  rested for a moment the map is drawn anew, so that it says what is seen, also where it is saved. */
class MapFigure extends Figure {
  static REST = 150; // ms

  /** `describe` gives the description at a dial value, with the dial's marks, which bear the name `dialMark`. */
  constructor(element, plotly, file, dialMark, describe) {
    super(element, "heat_map", plotly, file);
    Object.assign(this, { dialMark, describe });
  }

  show(dial) {
    clearTimeout(this.resting);
    this.drawn = true;
    this.draw(this.describe(dial));
    if (dial !== null) moveMarks(this.element, this.dialMark, { x: dial, words: this.words });
  }

  move(dial, words) {
    this.words = words;
    if (!this.drawn) return this.show(dial);
    moveMarks(this.element, this.dialMark, { x: dial, words });
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.show(dial), MapFigure.REST);
  }
}

/** What a report was sent to draw: specs of figures, in the colours of the theme, and the settings that they are of. */
class Drawn {
  constructor({ settings, specs, traces, template, colours }, dark) {
    Object.assign(this, { settings, specs, traces, template, colours, dark, painted: new Map() });
  }

  /** The drawn setting that stands for a dial value: the nearest in the same segment of the map. */
  setting(dial) {
    if (dial === null) return this.settings[0];
    const away = ([value]) => Math.abs(value - dial);
    const within = this.settings.filter(([, low, high]) => (low === null ? !this.onMap(dial) : dial >= low && dial < high));
    return (within.length ? within : this.settings).reduce((best, one) => (away(one) < away(best) ? one : best));
  }

  onMap(dial) {
    return this.settings.some(([, low, high]) => low !== null && dial >= low && dial < high);
  }

  /** A figure's description in the colours of the theme. Plotly writes into what it is given, where the reader zooms, so
   *  each drawing gets its own; the columns are the same ones each time, by which Plotly knows that they have not changed. */
  spec(index) {
    const { data, layout } = this.specs[index];
    return { data: data.map((trace) => ({ ...this.trace(trace) })), layout: { ...this.paint(layout), template: this.template } };
  }

  trace(index) {
    if (!this.painted.has(index)) this.painted.set(index, this.paint(this.traces[index]));
    return this.painted.get(index);
  }

  paint(value) {
    if (typeof value === "string") return this.dark.matches ? value.replace(/#[0-9A-F]{6}\b/gi, (colour) => this.colours[colour] ?? colour) : value;
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map((item) => this.paint(item));
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, this.paint(item)]));
  }
}

/** The figures along the dial, and the map of all settings with the dial's mark on it. */
class Figures {
  /** `places` are the page's elements: `basis`, `figures`, `maps`, `quantities` and `heat_map`. */
  constructor(described, places, { plotly, file, symbol, dark }) {
    const { names, maps, dialMark } = described;
    Object.assign(this, { places, maps, dialMark, symbol, map: 0, pace: new Pace(), drawn: new Drawn(described, dark) });
    this.along = names.map((name, i) => {
      const figure = new Figure(places.figures.appendChild(h("div", { class: "figure", id: name })), name, plotly, file);
      return { index: -1, draw: () => this.drawAlong(i), figure };
    });
    this.heatMap = new MapFigure(places.heat_map, plotly, file, dialMark, (at) => this.marked(this.drawn.spec(this.maps[this.map].spec), at));
    this.moveMap = () => this.heatMap.move(this.dial, this.label);
    places.maps.hidden = !maps.length;
    this.choices = maps.map(({ label }, i) => h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => this.choose(i) }, label));
    places.quantities.append(...this.choices);
  }

  /** Let all stand at a dial value: the words at once, the figures as soon as the frames have room for them. */
  show(dial) {
    if (dial === this.dial) return;
    this.dial = dial;
    const [drawn, , , basis, ...indices] = this.drawn.setting(dial);
    const about = drawn === null || Math.abs(drawn - dial) < 5e-5 ? "" : ` Drawn at ${this.symbol} = ${dialText(drawn)}, the nearest value that there are figures of.`;
    say(this.places.basis, basis + about);
    this.indices = indices;
    this.along.forEach(({ index, draw }, i) => index !== indices[i] && this.pace.ask(draw));
    if (this.maps.length) this.pace.ask(this.moveMap);
  }

  /** All of them again, in the colours that hold now. */
  repaint() {
    this.drawn.painted.clear();
    for (const place of this.along) {
      place.index = -1;
      this.pace.ask(place.draw);
    }
    if (this.maps.length) this.heatMap.show(this.dial);
  }

  drawAlong(i) {
    const place = this.along[i];
    if (place.index === this.indices[i]) return; // the hand has come back
    place.index = this.indices[i];
    place.figure.draw(this.drawn.spec(place.index));
  }

  choose(index) {
    this.map = index;
    this.choices.forEach((button, i) => button.setAttribute("aria-pressed", i === index));
    this.heatMap.show(this.dial);
  }

  get label() {
    return this.dial === null ? "" : `${this.symbol} = ${dialText(this.dial)}`;
  }

  /** The description of the map with every mark of the dial at this value. */
  marked({ data, layout }, at) {
    const ours = ({ name }) => name === this.dialMark;
    if (at === null) return { data, layout };
    const [low, high] = layout.xaxis.range;
    const left = at > (low + high) / 2;
    const label = { x: at, text: this.label, xanchor: left ? "right" : "left", xshift: left ? -4 : 4 };
    const moved = (marks, place) => marks?.map((mark) => (ours(mark) ? { ...mark, ...place } : mark));
    const [annotations, shapes] = [moved(layout.annotations, label), moved(layout.shapes, { x0: at, x1: at })];
    return { data: moved(data, { x: [at] }), layout: { ...layout, ...(annotations && { annotations }), ...(shapes && { shapes }) } };
  }
}
