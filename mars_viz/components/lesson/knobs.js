// Knobs that follow the hand: a slider each, of a range or of stops. They tell of every value, and know no lesson.

/** The multiples of the step around a knob's two ends: a browser counts steps from its slider's low end, and the knob
 *  counts them from 0. The value under a thumb beyond an end is that end. */
export function thumbEnds({ low, high, step }) {
  const even = (count) => Number((count * step).toFixed(10));
  return [even(Math.floor(low / step + 1e-9)), even(Math.ceil(high / step - 1e-9))];
}

/** One slider. Tells of every value by `moved`, of a rest by `rested`. A double click goes back to where it began. */
class Knob {
  constructor(knob, { moved, rested }) {
    Object.assign(this, { knob, moved, held: false });
    const { name, label, help, stops } = knob;
    const [first, last] = stops ? [0, stops.length - 1] : thumbEnds(knob);
    this.range = h("input", {
      type: "range", min: first, max: last, step: stops ? 1 : knob.step, "aria-label": label, "data-knob": name, disabled: first === last,
      oninput: () => this.follow(),
      onpointerdown: () => { this.held = true; },
      onpointerup: () => { this.held = false; },
      onpointercancel: () => { this.held = false; },
      onchange: () => { this.held = false; rested(); },
      onkeydown: (event) => this.key(event),
      ondblclick: () => { this.place(this.knob.start); moved(); rested(); },
    });
    this.said = h("span", { class: "knob-value" });
    this.element = h("label", { class: "knob", title: help || null }, h("span", { class: "knob-label" }, label), this.said, this.range);
    this.place(knob.start);
  }

  /** The same knob, but for where it starts and what is said of it on hover. */
  take(knob) {
    this.knob = knob;
    this.element.setAttribute("title", knob.help ?? "");
  }

  follow() {
    const { stops, low, high } = this.knob;
    this.value = stops ? stops[this.range.valueAsNumber] : clamp(this.range.valueAsNumber, low, high);
    this.write();
    this.moved();
  }

  /** Shift makes a step of an arrow key ten. */
  key(event) {
    const by = { ArrowRight: 10, ArrowUp: 10, ArrowLeft: -10, ArrowDown: -10 }[event.key];
    if (!event.shiftKey || !by) return;
    event.preventDefault();
    this.range.valueAsNumber = clamp(this.range.valueAsNumber + by * Number(this.range.step), Number(this.range.min), Number(this.range.max));
    this.follow();
    this.range.dispatchEvent(new Event("change"));
  }

  /** Show a value without telling anyone; the thumb of one between two stops stands at the lower,
   *  and of one between two steps at the nearer. */
  place(value) {
    const { stops } = this.knob;
    this.value = value;
    this.range.value = stops ? Math.max(0, stops.findLastIndex((stop) => stop <= value)) : value;
    this.write();
  }

  write() {
    const { digits, exact } = this.knob;
    const finer = exact && Number(this.value.toFixed(digits)) !== this.value;
    const words = finer ? String(this.value) : digits ? this.value.toFixed(digits).replace("-", "−") : whole(this.value);
    say(this.said, words);
    this.range.setAttribute("aria-valuetext", words);
    const [first, last] = [Number(this.range.min), Number(this.range.max)];
    const share = (this.range.value - first) / (last - first || 1);
    this.range.style.setProperty("--share", `${100 * share}%`);
  }
}
