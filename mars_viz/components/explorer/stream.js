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
    this.marks = new SlotMarks(this);
    this.ending = h("p", { class: "ending", role: "presentation" });
    this.places = new Placeholders(this.element, (entries) => this.seen(entries));
    this.chunks = [];
  }

  /** Take on a reading of another run. */
  show(reading) {
    const { run } = reading;
    this.unfolding?.fold();
    this.marks.forget();
    this.adopt(reading);
    this.list.clear();
    this.chunks = chunked(run, reading.recorded).map((range) => emptyChunk(run, range));
    const { prompt, whole_prompt: whole } = run.about;
    this.prompt = prompt ? promptBefore(prompt, whole) : null;
    if (this.prompt?.unfold) this.element.setAttribute("aria-description", "p shows the whole prompt");
    else this.element.removeAttribute("aria-description");
    this.element.replaceChildren(...this.places.put(this.chunks), this.ending);
    if (!run.rounds) this.element.replaceChildren(h("p", { class: "empty" }, "This run has no tokens. Choose another, or decode a prompt."));
    this.element.scrollTop = 0;
    this.chunks.slice(0, 4).forEach((chunk) => this.bring(chunk));
    this.list.estimate(this.chunks, run, this.element);
    this.places.watch();
  }

  /** Take on another trajectory of the run: nothing scrolls, and what is built stays. Its rounds are stale until their chunk is
   * refreshed. */
  swap(reading, selected) {
    const unfold = this.unfolding?.carry(reading.run);
    this.unfolding?.fold();
    if (this.selected !== null) this.outline(this.selected, false);
    this.marks.clear();
    this.parting.divider.remove();
    for (const chunk of this.list.built) chunk.stale ??= this.elements.standing(chunk.first, chunk.last);
    this.adopt(reading);
    this.setRanges(chunked(reading.run, reading.recorded));
    unfold?.();
    if (selected !== null) this.select(selected, false);
  }

  /** Take on a reading, of whose rounds nothing is built yet. */
  adopt(reading) {
    const { run, recorded } = reading;
    const elements = new RoundElements(run, this.list, this.prefix);
    Object.assign(this, { run, reading, elements, selected: null });
    this.element.classList.toggle("tall", recorded.totals.tokens > 4 * ONE_CHUNK);
    this.element.classList.toggle("code", looksLikeCode(run, recorded));
    this.flag();
  }

  /** Let the chunks have other ranges of rounds; as many as need be are added, or taken away at the end. */
  setRanges(ranges) {
    for (const chunk of this.chunks.splice(ranges.length)) if (chunk.built) this.takeDown(chunk);
    this.chunks = ranges.map((range, i) => (this.chunks[i] ? setRange(this.run, this.chunks[i], range) : emptyChunk(this.run, range)));
    this.places.change(this.chunks);
    this.list.estimate(this.chunks, this.run, this.element);
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
    for (const { chunk, tall } of this.list.leaving(this.selected === null ? null : this.chunkOf(this.selected))) {
      chunk.element.style.setProperty("--tall", `${tall}px`);
      this.takeDown(chunk);
    }
    if (!this.turning) this.name();
  }

  takeDown(chunk) {
    const { first, last, element } = chunk;
    element.classList.remove("built");
    element.replaceChildren();
    for (const { tokens } of chunk.stale ?? this.elements.standing(first, last)) this.list.putAll(tokens);
    if (!chunk.stale) this.elements.forget(first, last);
    Object.assign(chunk, { built: false, parted: undefined, stale: null });
    this.list.built.delete(chunk);
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

  build(chunk) {
    chunk.built = true;
    this.list.built.add(chunk);
    chunk.element.classList.add("built");
    const built = document.createDocumentFragment();
    if (chunk.first === 0 && this.prompt) built.append(this.prompt);
    for (let r = chunk.first; r <= chunk.last; r++) built.append(this.elements.round(r));
    chunk.element.append(built);
    if (this.selected !== null) this.outline(this.selected, true);
  }

  /** The chunks that are in view. Who asks before anything moves does not wait for a layout. */
  inView() {
    return this.list.inView(this.element);
  }

  /** After the dial moved: of the chunks that were `seen` before, rounds that are decided otherwise. */
  update(seen) {
    this.turning = true; // until names are given again
    const follow = () => this.inView().filter(({ stale }) => stale).forEach((chunk) => this.refresh(chunk));
    if (seen.some(({ stale }) => stale)) requestAnimationFrame(follow); // in the same frame: what another text has moved into view
    for (const chunk of seen) if (chunk.built) this.refresh(chunk);
    if (!this.reading.parted) this.parting.divider.remove();
    this.flag();
  }

  /** Mark the first token that the strict rule would have written otherwise, and say below the text how it ends. */
  flag() {
    const { differs } = this.reading;
    this.marks.show("differs", differs === null ? NO_SLOTS : new Set([differs]));
    const { text } = this.run.pieces, parts = this.reading.ending() ?? [];
    const key = parts.map((part) => part.token ?? part).join();
    if (key === this.ending.dataset.key) return;
    this.ending.dataset.key = key;
    this.ending.replaceChildren(...parts.map((part) => (part.token === undefined ? part : controlToken(text[part.token]))));
  }

  refresh(chunk) {
    const { run, reading } = this;
    if (chunk.stale) this.replaceStale(chunk);
    for (let r = chunk.first; r <= chunk.last; r++) if (this.elements.looks.outdated(reading, r)) this.dress(r);
    const parted = reading.parted ? reading.parted.round : run.rounds;
    if (chunk.parted !== parted) this.parting.fade(chunk, parted);
  }

  /** Another trajectory's rounds make room for the reading's own. */
  replaceStale(chunk) {
    reconcile(this, chunk);
    this.marks.renew(this.run.slotAt[chunk.first], this.run.slotAt[chunk.last + 1]);
    if (this.selected !== null) this.outline(this.selected, true);
    if (this.unfolding?.isIn(chunk)) this.unfolding.grow();
  }

  /** Give the tokens of a round the looks of their outcomes, in reading order. */
  dress(r) {
    const { run, reading, elements } = this;
    const last = run.slotAt[r + 1] - 1;
    const shown = run.branched[r] ? readingOrder(run, reading.now, r) : chainSlots(run, r);
    const tokens = shown.map((slot) => {
      const token = elements.token(slot, r);
      if (slot === last) elements.write(token, reading.now.emitted[r]);
      this.look(token, slot, slot === last ? reading.now.emission[r] : reading.now.outcome[slot - r]);
      return token;
    });
    if (run.branched[r]) this.elements.rounds[r].replaceChildren(...tokens);
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
    return `t ${NAMES[outcome]}${special}${shade}${slot === this.selected ? " selected" : ""}${this.marks.of(slot)}`;
  }

  /** Another overlay: every built token looks otherwise. */
  repaint() {
    this.flag();
    this.elements.looks.forget();
    for (const chunk of this.list.built) chunk.stale?.forEach(({ looks }) => looks.fill(-1));
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

  /** When the hand rests: all that is built, for it may be copied, and the accessible names of what is near; they count tokens, so
   * one change renames all that follow. */
  name() {
    this.turning = false;
    for (const chunk of this.list.built) this.refresh(chunk);
    const listed = this.reading.list();
    for (const chunk of this.list.nearby()) {
      for (let r = chunk.first; r <= chunk.last; r++) nameTokens(this.reading, r, listed, this.elements.tokens);
    }
  }

  select(slot, reveal) {
    if (this.selected !== null) this.outline(this.selected, false);
    this.selected = slot;
    if (slot === null) return;
    const chunk = this.chunkOf(slot);
    if (!chunk) return;
    this.unfolding?.selected(slot);
    if (!this.elements.tokens[slot]) this.element.removeAttribute("aria-activedescendant"); // it named another token
    this.outline(slot, true);
    if (reveal) this.reveal(slot);
  }

  /** Let a slot's token be seen, wherever in a long text it stands. */
  reveal(slot) {
    this.bring(this.chunkOf(slot));
    scrollInto(this.element, this.elementsOf(slot).at(-1) ?? this.elements.rounds[roundOf(this.run, slot)]);
  }

  /** Those that stand for a slot, in the text and in the unfolded tree; the last one is where the keys are. */
  elementsOf(slot) {
    const token = this.elements.tokens[slot]?.isConnected && this.elements.tokens[slot];
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
    if (event.key === "p" && this.prompt?.unfold) {
      this.prompt.unfold();
      this.element.scrollTop = 0;
    }
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
