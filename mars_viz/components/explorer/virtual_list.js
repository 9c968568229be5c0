// Which parts of a long text are there: those built last and nearest stay, and what is taken down is used again.

const BUILT = 32; // chunks, more than three thousand tokens: a text no longer than that is all there once it has been read
const SPARE = 4000; // elements of tokens that wait for another use

const FAST = 50; // ms between two leaps of a text that is scrolled fast; a single leap is none
const SHOWN = 120; // ms; so often a text that is scrolled fast is shown

/** Whether the text is scrolled faster than a window a frame: nobody reads it then, and building all of it would cost frames. */
class ScrollSpeed {
  constructor(slowed) {
    Object.assign(this, { slowed, fast: false, at: 0, last: -Infinity, waiting: 0 });
  }

  moved({ scrollTop, clientHeight }) {
    const now = performance.now();
    const leap = Math.abs(scrollTop - this.at) > clientHeight;
    if (leap && now - this.last < FAST) this.fast = true;
    if (this.fast) this.waiting ||= setTimeout(() => this.slow(), SHOWN);
    if (leap) this.last = now;
    this.at = scrollTop;
  }

  slow() {
    Object.assign(this, { fast: false, waiting: 0 });
    this.slowed();
  }
}

/** The chunks that are built, of which about `most` stay, and elements to spare. */
class VirtualList {
  constructor(most) {
    this.most = most;
    this.clear();
  }

  clear() {
    Object.assign(this, { built: new Set(), spare: [], estimated: false });
  }

  nearby() {
    return [...this.built].filter((chunk) => chunk.near);
  }

  /** Those that can be seen in the box around them; all is read, before anything is written. */
  inView(box) {
    const { top, bottom } = box.getBoundingClientRect();
    return this.nearby().filter(({ element }) => {
      const at = element.getBoundingClientRect();
      return at.top < bottom && at.bottom > top;
    });
  }

  /** Of a text of so many chunks that it is never there as a whole: tell its element how tall a slot is, once. */
  estimate(chunks, run, { style }) {
    if (this.estimated || chunks.length <= this.most) return;
    this.estimated = true;
    style.setProperty("--per-slot", `${this.perSlot(run)}px`);
  }

  /** Pixels that a slot takes up, all in all, by the chunks that are built. */
  perSlot({ slotAt }) {
    let tall = 0, slots = 0;
    for (const { element, first, last } of this.built) {
      tall += element.offsetHeight;
      slots += slotAt[last + 1] - slotAt[first];
    }
    return tall && slots ? tall / slots : 3;
  }

  /** What is to be taken down, with its height: the farthest first, never what is near nor the chunk `selected`. */
  leaving(selected) {
    const over = this.built.size - this.most;
    if (over <= 0) return [];
    const [here] = this.nearby();
    const away = (chunk) => (here ? Math.abs(chunk.first - here.first) : 0);
    const far = [...this.built].filter((chunk) => !chunk.near && chunk !== selected).sort((a, b) => away(b) - away(a));
    return far.slice(0, over).map((chunk) => ({ chunk, tall: chunk.element.offsetHeight })); // all read, before anything is written
  }

  /** An element for a token, which may have been another one's. */
  token() {
    return this.spare.pop() ?? h("span", { role: "option" });
  }

  /** Elements that no slot has any more; of a round's some may never have been made. */
  putAll(tokens) {
    for (const token of tokens) if (token) this.put(token);
  }

  put(token) {
    if (this.spare.length >= SPARE) return;
    token.piece = undefined;
    unname(token);
    token.removeAttribute("aria-selected");
    this.spare.push(token);
  }
}
