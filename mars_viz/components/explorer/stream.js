// The text: tokens in rounds, each with the looks of its outcome. It shows one reading, which may be swapped.

/**
 * The tokens in rounds; of a draft tree the path taken and where it stopped. Chunks are built when they come near, and touched
 * only while they are near; of a long text those that are far away are taken down again and leave their height behind.
 */
class Stream {
  /** `prefix` keeps the names of tokens apart where there are several streams; `most` chunks stay built. The tree of one round can
   * be unfolded where `shares` gives the q of its nodes. */
  constructor({ pick, shade, shares = null, prefix = "", most = BUILT }) {
    Object.assign(this, { pick, shade, prefix, list: new VirtualList(most), speed: new ScrollSpeed(() => this.buildNear()) });
    this.element = h("div", {
      class: "stream", role: "listbox", tabindex: "0", "aria-label": "Tokens of the run; arrow keys move, up and down by rounds",
      onclick: (e) => this.click(e),
      onkeydown: (e) => this.key(e),
      onscroll: () => this.scrolled(),
      onpointerover: (e) => labelled(e.target.closest(".r"), this.element),
    });
    this.parting = new Parting(this);
    this.frame = h("div", { class: "frame" }, this.element, this.parting.jump);
    this.unfolding = shares && new Unfolding(this, shares);
    this.places = new Placeholders(this.element, (entries) => this.seen(entries));
    this.chunks = [];
  }

  /** Take on a reading, of another run or of another trajectory. */
  show(reading) {
    const { run } = reading;
    this.unfolding?.fold();
    Object.assign(this, { run, reading, shown: new Int32Array(2 * run.rounds).fill(-1), labels: new AriaLabels(), selected: null, flagged: reading.differs });
    this.element.classList.toggle("tall", reading.recorded.totals.tokens > 4 * ONE_CHUNK);
    this.element.classList.toggle("code", looksLikeCode(run, reading.recorded));
    this.roundElements = new Array(run.rounds);
    this.slotElements = new Array(run.slots);
    this.list.clear();
    this.chunks = chunked(run, reading.recorded).map((range) => this.emptyChunk(range));
    const prompt = run.about.prompt;
    this.prompt = prompt ? promptBefore(prompt) : null;
    this.element.replaceChildren(...this.places.put(this.chunks));
    if (!run.rounds) this.element.replaceChildren(h("p", { class: "empty" }, "This run has no tokens. Choose another, or decode a prompt."));
    this.element.scrollTop = 0;
    this.chunks.slice(0, 4).forEach((chunk) => this.bring(chunk));
    if (this.list.sheds(this.chunks)) this.element.style.setProperty("--per-slot", `${this.list.perSlot(run)}px`);
    this.places.watch();
  }

  /** The text of another dial value, where the hand is: nothing scrolls. */
  swap(reading, selected) {
    const { scrollTop } = this.element;
    const unfold = this.unfolding?.carry(reading.run);
    this.show(reading);
    unfold?.();
    this.element.scrollTop = scrollTop;
    if (selected !== null) this.select(selected, false);
  }

  emptyChunk({ first, last }) {
    const element = h("div", { class: "chunk", role: "presentation" });
    element.style.setProperty("--slots", this.run.slotAt[last + 1] - this.run.slotAt[first]);
    return (element.chunk = { first, last, element, built: false, near: false, parted: undefined });
  }

  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      target.chunk.near = isIntersecting;
      if (isIntersecting && !this.speed.fast) this.bring(target.chunk);
    }
    this.tidy();
  }

  /** Build what is near, now that the text is not scrolled fast any more. */
  buildNear() {
    for (const chunk of this.chunks) if (chunk.near) this.bring(chunk);
    this.tidy();
  }

  tidy() {
    for (const { chunk, tall } of this.list.leaving(this.selected === null ? null : this.chunkOf(this.selected))) this.takeDown(chunk, tall);
    if (!this.turning) this.name();
  }

  takeDown(chunk, tall) {
    const { first, last, element } = chunk;
    element.style.setProperty("--tall", `${tall}px`);
    element.classList.remove("built");
    element.replaceChildren();
    Object.assign(chunk, { built: false, parted: undefined });
    this.list.built.delete(chunk);
    const { slotAt } = this.run;
    this.shown.fill(-1, 2 * first, 2 * last + 2);
    this.roundElements.fill(undefined, first, last + 1);
    for (let slot = slotAt[first]; slot < slotAt[last + 1]; slot++) {
      if (this.slotElements[slot]) this.list.put(this.slotElements[slot]);
      this.slotElements[slot] = undefined;
      this.labels.forget(slot);
    }
  }

  chunkOf(slot) {
    return this.chunks.find(({ last }) => slot < this.run.slotAt[last + 1]) ?? null;
  }

  /** Make a chunk show where the reading stands. */
  bring(chunk) {
    if (!chunk.built) this.build(chunk);
    chunk.near = true;
    this.refresh(chunk);
  }

  /** The element of a slot, made when it is first shown: most nodes of a tree never are. */
  token(slot, r) {
    if (this.slotElements[slot]) return this.slotElements[slot];
    const { run } = this;
    const token = (this.slotElements[slot] = this.list.token());
    token.id = `${this.prefix}slot-${slot}`;
    token.mine = slot; // not `slot`, which is an element's own and turns into text
    if (slot < run.slotAt[r + 1] - 1) fill(token, run.pieces.text[run.nodes.token[slot - r]]);
    return token;
  }

  build(chunk) {
    chunk.built = true;
    this.list.built.add(chunk);
    chunk.element.classList.add("built");
    const built = document.createDocumentFragment();
    if (chunk.first === 0 && this.prompt) built.append(this.prompt);
    for (let r = chunk.first; r <= chunk.last; r++) {
      const round = (this.roundElements[r] = h("span", { class: "r", role: "presentation", "data-round": `round ${r + 1}` }));
      for (let slot = this.run.slotAt[r]; slot < this.run.slotAt[r + 1] && !this.run.branched[r]; slot++) round.append(this.token(slot, r));
      built.append(round);
    }
    chunk.element.append(built);
    if (this.selected !== null) this.outline(this.selected, true);
  }

  /** After the dial moved: only what is in view, and of that only rounds that are decided otherwise. */
  update() {
    this.turning = true; // until names are given again
    for (const chunk of this.list.inView(this.element)) this.refresh(chunk);
    if (!this.reading.parted) this.parting.divider.remove();
    this.flag();
  }

  /** Mark the first token that the strict rule would have written otherwise. */
  flag() {
    const { differs } = this.reading;
    if (differs === this.flagged) return;
    this.slotElements[this.flagged]?.classList.remove("differs");
    this.slotElements[differs]?.classList.add("differs");
    this.flagged = differs;
  }

  refresh(chunk) {
    const { run, shown, reading } = this;
    for (let r = chunk.first; r <= chunk.last; r++) {
      if (shown[2 * r] === reading.now.stop[r] && shown[2 * r + 1] === reading.now.emitted[r]) continue;
      shown[2 * r] = reading.now.stop[r];
      shown[2 * r + 1] = reading.now.emitted[r];
      this.dress(r);
    }
    const parted = reading.parted ? reading.parted.round : run.rounds;
    if (chunk.parted !== parted) this.parting.fade(chunk, parted);
  }

  /** Give the tokens of a round the looks of their outcomes, in reading order. */
  dress(r) {
    const { run, reading } = this;
    const last = run.slotAt[r + 1] - 1;
    const shown = run.branched[r] ? readingOrder(run, reading.now, r) : Array.from({ length: run.count[r] + 1 }, (_, i) => run.slotAt[r] + i);
    const tokens = shown.map((slot) => {
      const token = this.token(slot, r);
      if (slot === last && token.piece !== reading.now.emitted[r]) {
        token.piece = reading.now.emitted[r];
        fill(token, run.pieces.text[token.piece]);
      }
      this.look(token, slot, slot === last ? reading.now.emission[r] : reading.now.outcome[slot - r]);
      return token;
    });
    if (run.branched[r]) this.roundElements[r].replaceChildren(...tokens);
    if (run.branched[r]) this.unfolding?.dress(r, shown, tokens.at(-1));
  }

  look(token, slot, outcome) {
    const name = `${this.named(slot, outcome)}${token.kind}`;
    if (token.className !== name) token.className = name;
    token.hidden = outcome === NOTHING;
  }

  /** The classes of a slot's token, but for those of its text. */
  named(slot, outcome) {
    const special = this.run.pieces.special[tokenOf(this.run, this.reading.now, slot)] ? " special" : "";
    const shade = this.shade(this.reading, slot);
    return `t ${NAMES[outcome]}${special}${shade}${slot === this.selected ? " selected" : ""}${slot === this.flagged ? " differs" : ""}`;
  }

  /** Another overlay: every built token looks otherwise. */
  repaint() {
    this.shown.fill(-1);
    this.catchUp();
  }

  /** What is near but out of view, and so was left behind by the hand. */
  catchUp() {
    for (const chunk of this.list.nearby()) this.refresh(chunk);
  }

  scrolled() {
    if (!this.reading) return;
    this.speed.moved(this.element);
    this.catchUp();
    if (this.reading.parted) this.parting.point();
  }

  /** When the hand rests: what is near, and its accessible names; they count tokens, so one change renames all that follow. */
  name() {
    this.turning = false;
    this.catchUp();
    const listed = this.reading.list();
    for (const chunk of this.list.nearby()) {
      for (let r = chunk.first; r <= chunk.last; r++) this.labels.give(this.reading, r, listed, this.slotElements);
    }
  }

  select(slot, reveal) {
    if (this.selected !== null) this.outline(this.selected, false);
    this.selected = slot;
    if (slot === null) return;
    const chunk = this.chunkOf(slot);
    if (!chunk) return;
    this.unfolding?.selected(slot);
    if (reveal) this.bring(chunk);
    if (!this.slotElements[slot]) this.element.removeAttribute("aria-activedescendant"); // it named another token
    this.outline(slot, true);
    if (reveal) scrollInto(this.element, this.elementsOf(slot).at(-1) ?? this.roundElements[roundOf(this.run, slot)]);
  }

  /** Those that stand for a slot, in the text and in the unfolded tree; the last one is where the keys are. */
  elementsOf(slot) {
    const token = this.slotElements[slot]?.isConnected && this.slotElements[slot];
    const node = this.unfolding?.box(slot);
    return (this.unfolding?.walking ? [token, node] : [node, token]).filter(Boolean);
  }

  outline(slot, on) {
    const elements = this.elementsOf(slot);
    for (const element of elements) {
      element.classList.toggle("selected", on);
      element.setAttribute("aria-selected", on);
    }
    if (on && elements.length) this.element.setAttribute("aria-activedescendant", elements.at(-1).id);
  }

  click(event) {
    const token = event.target.closest(".t");
    if (!token || this.element.getRootNode().getSelection?.()?.type === "Range") return;
    this.pick(token.mine, this.unfolding?.enters(token) ?? false);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = this.unfolding?.key(event.key) ?? this.neighbour(event.key);
    if (next === undefined) return;
    event.preventDefault();
    this.pick(next, true);
  }

  /** The slot to which a key leads in the text; undefined for a key that leads nowhere. */
  neighbour(key) {
    return neighbour(this.run, this.reading, this.selected, key);
  }
}
