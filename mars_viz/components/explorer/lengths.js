// The second dial: draft lengths γ that the run's map holds, of trees their numbers of nodes. What another one makes is sent anew, so it tells of a choice,
// and the page answers.

/** How many tokens are drafted, by the name that a run has for it. */
export function lengthName(tree) {
  return tree ? "nodes" : "γ";
}

/** Let a part of a box that scrolls be seen, and nothing else move. */
function scrollWithin(box, part) {
  if (part.offsetTop < box.scrollTop || part.offsetTop + part.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = part.offsetTop;
}

/** One button for each length; hidden where there is no choice. Tells of a choice by `chosen`. */
class Lengths {
  constructor({ chosen }) {
    this.chosen = chosen;
    this.value = null;
    this.buttons = h("span", { class: "lengths", role: "radiogroup", "aria-label": "Draft length γ", onkeydown: (e) => this.turn(e) });
    this.symbol = h("span", { class: "symbol" });
    this.element = h("div", { class: "gamma" }, this.symbol, this.buttons);
  }

  /** Take on what can be chosen, what is, and what the run was decoded with. */
  show(lengths, value, { recorded_gamma: recorded, tree }) {
    this.element.hidden = lengths.length < 2;
    const what = tree ? "Nodes of the tree: tokens drafted per round, the likeliest paths" : "Draft length γ: tokens drafted per round";
    this.element.dataset.tip = `${what}. The run was decoded with ${lengthName(tree)} = ${recorded}; the others are exact too.`;
    this.buttons.setAttribute("aria-label", tree ? "Nodes of the tree" : "Draft length γ");
    this.buttons.classList.toggle("many", tree && lengths.length > 6);
    this.name = lengthName(tree);
    say(this.symbol, `${this.name} =`);
    this.recorded = recorded;
    if (lengths.join() !== this.lengths?.join()) { // else the keys stay where they are
      this.radios = lengths.map((length) => h("button", { type: "button", role: "radio", onclick: () => this.choose(length) }, String(length)));
      this.buttons.replaceChildren(...this.radios);
    }
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
      if (on) scrollWithin(this.buttons, radio);
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
