// The text: tokens in rounds, each with the looks of its outcome. It shows one reading, which may be swapped.

/**
 * The tokens in rounds. Chunks are built when they come near, and touched only while they are near; of a long text those
 * that are far away are taken down again and leave their height behind.
 */
class Stream {
  /** `prefix` keeps the names of tokens apart where there are several streams; `most` chunks stay built. */
  constructor({ pick, shade, prefix = "", most = BUILT }) {
    Object.assign(this, { pick, shade, prefix, list: new VirtualList(most), speed: new ScrollSpeed(() => this.buildNear()) });
    this.element = h("div", {
      class: "stream", role: "listbox", tabindex: "0", "aria-label": "Tokens of the run; arrow keys move, up and down by rounds",
      onclick: (e) => this.click(e),
      onkeydown: (e) => this.key(e),
      onscroll: () => this.scrolled(),
      onpointerover: (e) => labelled(e.target.closest(".r"), this.element),
    });
    this.divider = h("span", { class: "divider", role: "presentation" }, "block-local from here: at this setting the text would go on otherwise");
    this.jump = h("button", { class: "jump", type: "button", hidden: true, onclick: () => this.showParting() });
    this.frame = h("div", { class: "frame" }, this.element, this.jump);
    this.places = new Placeholders(this.element, (entries) => this.seen(entries));
    this.chunks = [];
  }

  /** Take on a reading, of another run or of another trajectory. */
  show(reading) {
    const { run } = reading;
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
    this.show(reading);
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
      this.list.put(this.slotElements[slot]);
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

  build(chunk) {
    chunk.built = true;
    this.list.built.add(chunk);
    chunk.element.classList.add("built");
    const built = document.createDocumentFragment();
    if (chunk.first === 0 && this.prompt) built.append(this.prompt);
    for (let r = chunk.first; r <= chunk.last; r++) {
      const round = (this.roundElements[r] = h("span", { class: "r", role: "presentation", "data-round": `round ${r + 1}` }));
      for (let slot = this.run.slotAt[r]; slot < this.run.slotAt[r + 1]; slot++) {
        const token = (this.slotElements[slot] = this.list.token());
        token.id = `${this.prefix}slot-${slot}`;
        token.mine = slot; // not `slot`, which is an element's own and turns into text
        if (slot < this.run.slotAt[r + 1] - 1) fill(token, this.run.pieces.text[this.run.nodes.token[slot - r]]);
        round.append(token);
      }
      built.append(round);
    }
    chunk.element.append(built);
    if (this.selected !== null) this.outline(this.selected, true);
  }

  /** After the dial moved: only what is in view, and of that only rounds that are decided otherwise. */
  update() {
    this.turning = true; // until names are given again
    for (const chunk of this.list.inView(this.element)) this.refresh(chunk);
    if (!this.reading.parted) this.divider.remove();
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

  /** Where the shown text leaves the recorded one, into view. */
  showParting() {
    const { round } = this.reading.parted;
    this.bring(this.chunks.find(({ last }) => last >= round));
    const at = this.divider.getBoundingClientRect().top - this.element.getBoundingClientRect().top;
    this.element.scrollTop += at - this.element.clientHeight / 2;
  }

  /** Offer the way to the parting while it is out of view. */
  point() {
    const { parted } = this.reading;
    if (parted) say(this.jump, `parts from the recorded text at token ${whole(parted.index + 1)}`);
    const box = this.element.getBoundingClientRect();
    const at = this.divider.getBoundingClientRect();
    const seen = this.divider.isConnected && at.top >= box.top && at.bottom <= box.bottom;
    this.jump.hidden = !parted || seen;
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
    if (chunk.parted !== parted) this.fade(chunk, parted);
  }

  /** Everything after the round that parted is faded; the divider stands right after that round. */
  fade(chunk, parted) {
    chunk.element.classList.toggle("faded", chunk.first > parted);
    const before = chunk.parted ?? this.run.rounds;
    const inside = (r) => r >= chunk.first && r <= chunk.last;
    if (inside(parted) || inside(before)) {
      for (let r = chunk.first; r <= chunk.last; r++) {
        this.roundElements[r].classList.toggle("faded", r > parted && inside(parted));
      }
    }
    if (inside(parted)) {
      this.roundElements[parted].after(this.divider);
    } else if (this.divider.parentNode === chunk.element) this.divider.remove();
    chunk.parted = parted;
  }

  /** Give the tokens of a round the looks of their outcomes, in reading order. */
  dress(r) {
    const { run, reading, slotElements } = this;
    const last = run.slotAt[r + 1] - 1;
    for (let slot = run.slotAt[r]; slot < last; slot++) {
      this.look(slotElements[slot], slot, reading.now.outcome[slot - r]);
    }
    const token = slotElements[last];
    if (token.piece !== reading.now.emitted[r]) {
      token.piece = reading.now.emitted[r];
      fill(token, run.pieces.text[token.piece]);
    }
    this.look(token, last, reading.now.emission[r]);
    if (run.branched[r]) this.roundElements[r].append(...readingOrder(run, reading.now, r).map((slot) => slotElements[slot]));
  }

  look(token, slot, outcome) {
    const special = this.run.pieces.special[tokenOf(this.run, this.reading.now, slot)] ? " special" : "";
    const shade = this.shade(this.reading, slot);
    const name = `t ${NAMES[outcome]}${token.kind}${special}${shade}${slot === this.selected ? " selected" : ""}${slot === this.flagged ? " differs" : ""}`;
    if (token.className !== name) token.className = name;
    token.hidden = outcome === NOTHING;
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
    if (this.reading.parted) this.point();
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
    if (reveal) this.bring(chunk);
    if (!this.slotElements[slot]) this.element.removeAttribute("aria-activedescendant"); // it named another token
    this.outline(slot, true);
    if (reveal) scrollInto(this.element, this.slotElements[slot]);
  }

  outline(slot, on) {
    const token = this.slotElements[slot];
    if (!token) return;
    token.classList.toggle("selected", on);
    token.setAttribute("aria-selected", on);
    if (on) this.element.setAttribute("aria-activedescendant", token.id);
  }

  click(event) {
    const token = event.target.closest(".t");
    if (token && this.element.getRootNode().getSelection?.()?.type !== "Range") this.pick(token.mine, false);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = neighbour(this.run, this.reading, this.selected, event.key);
    if (next === undefined) return;
    event.preventDefault();
    this.pick(next, true);
  }
}
