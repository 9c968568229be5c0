// The second dial: draft lengths γ that the run's map holds. What another one makes is sent anew, so it tells of a choice,
// and the page answers.

/** One button for each length; hidden where there is no choice. Tells of a choice by `chosen`. */
class Lengths {
  constructor({ chosen }) {
    this.chosen = chosen;
    this.value = null;
    this.buttons = h("span", { class: "lengths", role: "radiogroup", "aria-label": "Draft length γ", onkeydown: (e) => this.turn(e) });
    this.element = h("div", { class: "gamma" }, h("span", { class: "symbol" }, "γ ="), this.buttons);
  }

  /** Take on what can be chosen, what is, and what the run was decoded with. */
  show(lengths, value, recorded) {
    this.element.hidden = lengths.length < 2;
    this.element.dataset.tip = `Draft length γ: tokens drafted per round. The run was decoded with γ = ${recorded}; the others are exact too.`;
    this.recorded = recorded;
    this.radios = lengths.map((length) => h("button", { type: "button", role: "radio", onclick: () => this.choose(length) }, String(length)));
    this.buttons.replaceChildren(...this.radios);
    this.lengths = lengths;
    this.place(value);
  }

  /** True where another length is shown than the run's own. */
  get moved() {
    return this.value !== this.recorded;
  }

  place(value) {
    this.value = value;
    this.radios.forEach((radio, i) => {
      const on = this.lengths[i] === value;
      radio.setAttribute("aria-checked", on);
      radio.tabIndex = on ? 0 : -1;
    });
  }

  choose(value) {
    if (value === this.value) return;
    this.place(value);
    this.chosen(value);
  }

  turn(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = clamp(this.lengths.indexOf(this.value) + step, 0, this.lengths.length - 1);
    this.radios[next].focus();
    this.choose(this.lengths[next]);
  }
}
