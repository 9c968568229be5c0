// Which parts of a long text are there: those built last and nearest stay, and what is taken down is used again.

const BUILT = 32; // chunks, more than three thousand tokens: a text no longer than that is all there once it has been read
const SPARE = 4000; // elements of tokens that wait for another use

/** The chunks that are built, of which about `most` stay, and elements to spare. */
class Upkeep {
  constructor(most) {
    this.most = most;
    this.clear();
  }

  clear() {
    Object.assign(this, { built: new Set(), spare: [] });
  }

  nearby() {
    return [...this.built].filter((chunk) => chunk.near);
  }

  /** True if a text of so many chunks is never there as a whole. */
  sheds(chunks) {
    return chunks.length > this.most;
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

  put(token) {
    if (this.spare.length >= SPARE) return;
    token.piece = undefined;
    token.removeAttribute("aria-label");
    token.removeAttribute("aria-selected");
    this.spare.push(token);
  }
}
