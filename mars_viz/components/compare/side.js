// One of two texts: a stream whose tokens and rounds also say what the other text has at the same place.

/** Tells of a token that was chosen by `picked`. */
class Side extends Stream {
  constructor({ name, picked }) {
    super({ pick: (slot) => picked(this, slot), shade: (reading, slot) => this.mark(reading, slot), shares: (r) => this.shares(r), prefix: `${name}-`, most: Infinity });
  }

  /** The drafter's q of a round's nodes. */
  shares(r) {
    const { nodes, nodeAt } = this.run;
    return nodes.q.subarray(nodeAt[r], nodeAt[r + 1]);
  }

  /** True where a round of the text drafted a tree. */
  get trees() {
    return this.run.branched.some(Boolean);
  }

  /** Take on a text; where it is the one shown before, nothing scrolls. */
  open(pane) {
    const { scrollTop } = this.element;
    const again = this.pane?.run.id === pane.run.id;
    this.pane = pane;
    this.common = spread(pane.common);
    const unfold = again && this.unfolding.carry(this.run);
    this.show(readingOf(pane.run));
    if (unfold) unfold();
    this.chunks.forEach((chunk) => this.bring(chunk)); // all of them: places are measured
    this.element.setAttribute("aria-label", `Text of ${pane.name}; left and right move between tokens, up and down by rounds, Page Up and Page Down switch texts`);
    if (again) this.element.scrollTop = scrollTop;
  }

  /** What the other text has of a token, as classes. */
  mark(reading, slot) {
    const index = reading.textIndex(slot);
    if (index === null) return " away"; // a draft that did not reach the text
    return differenceOf(this.common, this.pane.parts, index);
  }

  build(chunk) {
    super.build(chunk);
    for (let r = chunk.first; r <= chunk.last; r++) {
      const partner = this.pane.partners[r];
      const words = partner === null ? ": no round of the other text starts here" : partner === r ? "" : `, where round ${partner + 1} of the other starts`;
      this.elements.rounds[r].dataset.round += words;
      this.elements.rounds[r].classList.toggle("alone", partner === null);
    }
  }

  /** How many tokens before the chosen one are in common; for a draft that did not reach the text, before the token written last
   * before it. -1 where there is none. */
  inCommon() {
    return this.selected === null ? -1 : this.inCommonBefore(this.written(this.selected));
  }

  /** The same for a round: before the token that was written last before it. */
  inCommonAt(round) {
    return this.inCommonBefore(this.reading.starts[round] - 1);
  }

  inCommonBefore(index) {
    return index < 0 ? -1 : this.common.slice(0, index).filter(Boolean).length;
  }

  /** The index of the token that a slot wrote; of a draft that did not reach the text, of the one written last before it, or -1. */
  written(slot) {
    const { reading, run } = this;
    const index = reading.textIndex(slot);
    if (index !== null) return index;
    const r = roundOf(run, slot);
    const row = nodeOf(run, slot) < 0 ? reading.now.stop[r] : run.judge[nodeOf(run, slot)];
    return row === run.slotAt[r] ? reading.starts[r] - 1 : this.written(row - 1); // its parent
  }

  /** The round of the other text that starts where the chosen token's does, or else the last one before it that has such a round; null
   * for none. */
  partner() {
    const known = this.selected === null ? [] : this.pane.partners.slice(0, roundOf(this.run, this.selected) + 1);
    return known.findLast((partner) => partner !== null) ?? null;
  }

  /** The slot that wrote the token at an index of the text, or null. */
  slotAt(index) {
    const { reading, run } = this;
    if (index === null || index >= reading.recorded.totals.tokens) return null;
    let round = 0;
    for (let written = 0; round < run.rounds && written + reading.now.length[round] <= index; round++) written += reading.now.length[round];
    return reading.slotOf({ round, index });
  }

  /** As in any stream, but past the tokens that are not seen in this colouring. */
  neighbour(key) {
    const on = ["ArrowLeft", "ArrowUp", "End"].includes(key) ? "ArrowLeft" : "ArrowRight";
    let to = super.neighbour(key);
    while (to !== undefined && !this.elements.tokens[to].getClientRects().length) {
      const further = neighbour(this.run, this.reading, to, on);
      if (further === to) return this.selected ?? undefined;
      to = further;
    }
    return to;
  }

  /** Where a round begins in the text, pixels from its top. */
  top(round) {
    return this.offset(this.elements.rounds[round]);
  }

  offset(element) {
    return element.getBoundingClientRect().top - this.element.getBoundingClientRect().top + this.element.scrollTop;
  }
}

const readings = new Map(); // by run, the last few: leafing comes back to them

function readingOf(payload) {
  if (!readings.has(payload.id)) {
    if (readings.size >= 24) readings.delete(readings.keys().next().value);
    const reading = new Trajectories(readRun(payload)).own;
    reading.turn(reading.within(null));
    readings.set(payload.id, reading);
  }
  return readings.get(payload.id);
}
