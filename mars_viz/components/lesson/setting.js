// A sweep's key figures at the dial, beside strict's: words that came with the page, one set for each stretch of the
// dial. The setting's mark on the page's own figure follows; which stretch holds a value is all that is found here.

const ALIKE = 6e-5; // the figure may write the dial with four decimals

/** The stretch that holds a dial value: the last that begins at or below it. */
export function stretchAt(places, dial) {
  return places[Math.max(0, places.findLastIndex(({ low }) => dial >= low))];
}

class Setting {
  constructor() {
    this.tiles = h("dl", { class: "setting" });
    this.note = h("p", { class: "aside" });
    this.heard = h("p", { class: "heard", role: "status" });
    this.element = h("div", {}, this.tiles, this.note, this.heard);
  }

  show(data, { dial }) {
    const fresh = data !== this.data;
    if (fresh) this.open(data);
    this.dial = dial;
    const here = (this.here = stretchAt(data.places, dial));
    this.cells.forEach(({ value, spread }, i) => {
      const [estimate, interval = ""] = here.cells[i].replace(/\)$/, "").split(" (");
      say(value, estimate);
      say(spread, interval || "\u00a0");
    });
    const near = dial > here.low && dial >= here.until;
    say(this.note, near ? `Read at ${data.symbol} = ${dialText(here.low)}, the nearest of ${whole(data.places.length)} settings that were worked out.` : "");
    this.mark();
    if (fresh) this.rested();
  }

  open(data) {
    this.data = data;
    this.cells = data.rows.map(() => ({ value: h("dd"), spread: h("dd", { class: "spread" }) }));
    this.tiles.replaceChildren(...data.rows.map(({ title, kind, strict }, i) => {
      const { value, spread } = this.cells[i];
      return h("div", { title: kind }, h("dt", {}, title), value, spread, h("dd", { class: "strict" }, `${data.against} ${strict.split(" (")[0]}`));
    }));
  }

  /** The page's figure with the setting's mark where the dial stands. What its title says is of where the hand last
   *  rested, so it is faded until the page has drawn it anew; then the mark stands right by itself. */
  mark() {
    const figure = document.querySelector?.(`.st-key-${this.data.chart} .js-plotly-plot`);
    if (!figure?._fullLayout?.xaxis) return;
    if (figure !== this.figure) {
      this.close();
      this.figure = figure;
      this.again = () => this.mark();
      figure.on("plotly_afterplot", this.again);
    }
    const { x, y } = this.here, words = `${this.data.symbol} = ${dialText(this.dial)}`;
    const drawn = marksNamed(figure, this.data.mark).find((mark) => mark.words || mark.y !== null);
    if (!drawn) return;
    moveMarks(figure, this.data.mark, { x: x ?? this.dial, y, words });
    const told = figure.layout.annotations?.find(({ name }) => name === this.data.mark)?.text.replace(/<[^>]*>/g, "").split(" ").at(-1);
    const title = figure.querySelector(".g-gtitle");
    if (title) title.style.opacity = told === undefined || Math.abs(told - this.dial) < ALIKE ? "" : 0.35;
  }

  /** For those who hear the page: what the setting comes to, once the hand rests. */
  rested() {
    const said = this.data.rows.map(({ title }, i) => `${title} ${this.here.cells[i]}`);
    say(this.heard, `${this.data.symbol} = ${dialText(this.dial)}: ${said.join("; ")}`);
  }

  close() {
    this.figure?.removeListener?.("plotly_afterplot", this.again);
    this.figure = null;
  }
}
