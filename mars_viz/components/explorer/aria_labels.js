// Tokens in words, for who cannot see their looks: the same ones wherever a token stands.

/** `index` in the text, null for a draft that did not reach it; an outcome or a ratio that is not known is left out. */
function tokenLabel(index, text, outcome, ratio) {
  const name = index === null ? "draft" : `token ${index + 1}`;
  const known = ratio !== null && ratio !== undefined;
  return [name, `“${spoken(text)}”`, outcome, known && `ratio ${short(ratio)}`].filter(Boolean).join(", ");
}

/** The labels given so far to a reading's tokens, each with its place among all of them, most of which are not there; only
 * what has changed is written. */
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
