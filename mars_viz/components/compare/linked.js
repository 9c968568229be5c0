// Two texts that scroll together: rounds that start at the same place are brought to the same height.

class Linked {
  constructor(left, right) {
    this.sides = [left, right];
    this.anchors = [[0, 0]];
    this.led = null; // the side that was scrolled by the other, and where to
    for (const side of this.sides) side.element.addEventListener("scroll", () => this.follow(side), { passive: true });
    this.resized = new ResizeObserver(() => this.measure());
    for (const { element, unfolding } of this.sides) for (const each of [element, unfolding.tree.element]) this.resized.observe(each);
  }

  /** Note where the rounds of a pair begin in either text. */
  measure() {
    const [left, right] = this.sides;
    this.anchors = [[0, 0]];
    left.pane?.partners.forEach((partner, round) => {
      if (partner === null) return;
      const at = [left.top(round), right.top(partner)];
      const [before, other] = this.anchors.at(-1);
      if (at[0] > before && at[1] > other) this.anchors.push(at); // several rounds share a line
    });
  }

  /** Bring the other text to where this one has been scrolled. */
  follow(side) {
    const { scrollTop } = side.element;
    if (this.led?.side === side && Math.abs(scrollTop - this.led.to) < 2) return; // it was us
    const from = this.sides.indexOf(side);
    const other = this.sides[1 - from];
    other.element.scrollTop = this.across(scrollTop, from);
    this.led = { side: other, to: other.element.scrollTop };
  }

  /** The height in the other text; between two anchors in proportion, after the last one as far from it. */
  across(at, from) {
    const next = this.anchors.findIndex((anchor) => anchor[from] > at);
    const [a, b] = next < 0 ? [this.anchors.at(-1)] : [this.anchors[next - 1], this.anchors[next]];
    const share = b ? (at - a[from]) / (b[from] - a[from]) : 0;
    return b ? a[1 - from] + share * (b[1 - from] - a[1 - from]) : a[1 - from] + at - a[from];
  }

  /** A token into view, and what stands beside it. */
  show(side, slot) {
    const token = side.elements.tokens[slot];
    side.element.scrollTop = side.offset(token) - side.element.clientHeight / 3;
    this.led = null;
    this.follow(side);
  }

  close() {
    this.resized.disconnect();
  }
}
