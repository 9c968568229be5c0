// The one tree of a text that is unfolded: what opens and closes it, and the keys in it.

/** Of a stream; `shares` gives the drafter's q of a round's nodes, or null while they are on their way. */
class Unfolding {
  constructor(stream, shares) {
    Object.assign(this, { stream, shares, round: null, walking: false });
    this.tree = new Tree({ name: (slot, outcome) => stream.named(slot, outcome), id: `${stream.prefix}node`, closed: () => this.fold() });
  }

  /** A round that drafted a tree was dressed: put its handle, which says how many nodes the text leaves out, at its end,
   * before a last token that ends the line. */
  dress(r, shown, last) {
    const { run } = this.stream;
    const count = run.count[r], out = count - shown.filter((slot) => slot < run.slotAt[r + 1] - 1).length;
    const tip = `This round drafted ${plural(count, "token")} as a tree; show it (t)`;
    const pressed = () => this.toggle(this.stream.elements.rounds.indexOf(handle.parentNode)); // the element may have become another round's
    const handle = h("span", { class: "fold", role: "presentation", "data-more": out ? `+${out}` : "tree", "data-tip": tip, onclick: pressed });
    if (last.classList.contains("broken")) last.before(handle);
    else last.after(handle);
    if (r === this.round) this.grow();
  }

  /** Unfold a round's tree, with the keys in it, or fold it. */
  toggle(r) {
    const { run, reading, selected } = this.stream;
    if (this.round === r) return this.fold();
    this.unfold(r);
    this.walking = true;
    const here = selected !== null && roundOf(run, selected) === r;
    this.stream.pick(here ? selected : readingOrder(run, reading.now, r)[0], true);
  }

  unfold(r) {
    this.fold();
    this.round = r;
    if (this.stream.elements.rounds[r]) this.grow();
  }

  fold() {
    const { round, stream } = this;
    Object.assign(this, { round: null, walking: false });
    this.tree.element.remove();
    this.tree.boxes.clear();
    if (round !== null && stream.selected !== null) stream.outline(stream.selected, true);
  }

  /** True if the round is one of a chunk's. */
  isIn({ first, last }) {
    return this.round !== null && this.round >= first && this.round <= last;
  }

  /** Draw the tree below its round. */
  grow() {
    const { stream, tree, round } = this;
    tree.show(stream.reading, round, this.shares(round));
    stream.elements.rounds[round].after(tree.element);
    if (stream.selected !== null) stream.outline(stream.selected, true);
  }

  /** Evidence has come, of which the tree may have waited for some. */
  weigh() {
    if (this.tree.element.isConnected && !this.tree.shares) this.grow();
  }

  /** What unfolds the same tree in another reading's run, where that passes through its round. */
  carry(run) {
    const { round, walking, stream } = this;
    const slot = round === null ? null : carried(stream.run.slotAt[round], stream.run, run);
    return () => {
      if (slot === null) return;
      this.unfold(roundOf(run, slot));
      this.walking = walking;
    };
  }

  /** The box of a slot, where it is in the tree. */
  box(slot) {
    return this.round === null ? undefined : this.tree.boxes.get(slot);
  }

  /** A token was clicked: true if it stands in the tree, where the keys go from there. */
  enters(token) {
    return (this.walking = this.tree.element.contains(token));
  }

  /** A slot was selected: the keys stay in the tree where it is one of its own. */
  selected(slot) {
    if (roundOf(this.stream.run, slot) !== this.round) this.walking = false;
    else this.tree.reveal(slot);
  }

  /** The slot to which a key leads in the tree, or undefined; t unfolds the selected token's tree or folds it, Escape folds it. */
  key(key) {
    const { run, reading, selected } = this.stream;
    const r = selected === null ? null : roundOf(run, selected);
    if (key === "t" && r !== null && run.branched[r]) this.toggle(r);
    if (key === "Escape" && this.round !== null) this.fold();
    this.walking &&= key !== "Home" && key !== "End"; // of the text
    return this.walking ? relative(run, reading.now, selected, key) : undefined;
  }
}
