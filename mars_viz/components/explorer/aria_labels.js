// What is heard of the tokens: a label for each that is shown, and its place among all of them, most of which are not there.

/** The labels given so far, so that only what has changed is written. */
class AriaLabels {
  constructor() {
    this.said = new Map();
  }

  /** Name the tokens of a round, of which `listed` says where it begins among all; `elements` are the tokens' by slot. */
  give(reading, r, listed, elements) {
    const all = listed[reading.run.rounds];
    readingOrder(reading.run, reading.now, r).forEach((slot, i) => {
      const words = { label: reading.label(slot), posinset: listed[r] + i + 1, setsize: all };
      const said = Object.values(words).join(" ");
      if (this.said.get(slot) === said) return;
      this.said.set(slot, said);
      for (const [name, value] of Object.entries(words)) elements[slot].setAttribute(`aria-${name}`, value);
    });
  }

  /** A slot's element is gone. */
  forget(slot) {
    this.said.delete(slot);
  }
}
