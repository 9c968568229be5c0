// The way in: the knobs of a lesson and its figure, which follows them; and the traffic with Python.

const FIGURES = { drafting: Drafting, rollback: Rollback, lossless: Lossless, shift: Shift, choosing: Choosing, branching: Branching, setting: Setting };

class LessonView {
  constructor(parent) {
    this.row = h("div", { class: "knobs" });
    this.place = h("div");
    this.root = h("div", { class: "explorer lesson", role: "region" }, this.row, this.place);
    parent.append(this.root);
  }

  receive({ id, key, revision, kind, position, knobs, large, label, figure }) {
    themed(this.root);
    this.root.classList.toggle("large", large);
    this.root.setAttribute("aria-label", label);
    const anew = id !== this.id;
    const asked = JSON.stringify([kind, knobs.map(({ start, help, ...lasting }) => lasting)]);
    if (asked !== this.asked) this.open(kind, knobs, figure);
    else if (anew) this.knobs.forEach((each, i) => each.take(knobs[i])); // under the hand, which may hold one
    Object.assign(this, { id, key, asked, data: figure });
    if (revision === this.revision && !anew) return;
    this.revision = revision;
    if (this.knobs.some(({ held }) => held)) return this.show(); // other figures, under a knob that a hand holds
    const stands = positionIn(key, revision, position);
    for (const knob of this.knobs) knob.place(stands[knob.knob.name] ?? knob.knob.start);
    this.show();
  }

  open(kind, knobs, figure) {
    this.shown?.pause?.();
    this.shown?.close?.();
    this.knobs = knobs.map((knob) => new Knob(knob, { moved: () => this.moved(), rested: () => this.report() }));
    this.row.replaceChildren(...this.knobs.map(({ element }) => element));
    const [first] = this.knobs;
    const move = (value) => { first.place(value); this.show(); };
    // a figure's own movement may stop between two of the knob's stops, where no link could lead: to the one below
    const rest = () => { first.follow(); this.report(); };
    // a figure may lead the knob to a value of its own, which no step of the slider needs to hit
    const put = (value) => { first.place(value); this.show(); this.report(); };
    this.shown = new FIGURES[kind]({ move, rest, put });
    this.place.replaceChildren(this.shown.element);
  }

  moved() {
    this.shown.pause?.();
    this.show();
  }

  show() {
    this.shown.show(this.data, this.values());
  }

  /** Where the knobs stand, by name. */
  values() {
    return Object.fromEntries(this.knobs.map(({ knob, value }) => [knob.name, value]));
  }

  report() {
    this.shown.rested?.();
    tellPosition(this, this.key, { revision: this.revision, ...this.values() });
  }

  close() {
    this.shown?.pause?.();
    this.shown?.close?.();
    this.root.remove();
  }
}

export default function lesson(page) {
  return mounted(page, (place) => new LessonView(place));
}
