// The strip under the dial: the segments of a dial map, coloured by tokens per round. A click goes to a segment's edge,
// as do Page Up and Page Down on Explore's dial.

const REACH = 7; // pixels from an edge within which a click means it

/** Tells of a dial value by `chosen`. */
class Strip {
  constructor({ chosen }) {
    this.chosen = chosen;
    this.lane = h("div", { class: "segments", role: "img", onclick: (e) => this.click(e), onpointermove: (e) => this.hover(e) });
    this.said = h("p", { class: "segment" });
    this.element = h("div", { class: "strip" }, this.lane, this.said);
  }

  /** Take on a map's segments; none hides the strip. */
  show(dial, segments) {
    this.element.hidden = !segments.length;
    Object.assign(this, { dial, segments, here: null });
    const taus = segments.map(({ tau }) => tau).filter(Number.isFinite);
    const low = Math.min(...taus), high = Math.max(...taus);
    this.lane.replaceChildren(...segments.map(({ low: from, high: to, tau, complete }) => {
      const part = h("div", { class: complete ? "part" : "part unknown" });
      part.style.left = `${100 * this.share(from)}%`;
      part.style.width = `${100 * (this.share(to) - this.share(from))}%`;
      if (complete) part.style.background = `rgb(${cividis(high > low ? (tau - low) / (high - low) : 0.5)})`;
      return part;
    }));
    this.lane.setAttribute("aria-label", `${whole(segments.length)} segments of the dial, coloured by tokens per round`);
  }

  share(value) {
    return (value - this.dial.low) / (this.dial.high - this.dial.low);
  }

  /** Say which segment the dial stands in. */
  place(value) {
    if (!this.segments.length) return;
    const here = this.segments.findLastIndex(({ low }) => value >= low);
    const outside = here < 0 || value > this.segments.at(-1).high;
    if (here !== this.here) {
      this.lane.children[this.here]?.classList.remove("here");
      if (!outside) this.lane.children[here].classList.add("here");
      this.here = here;
    }
    say(this.said, outside ? "Outside the dial map: judged block by block." : this.words(here));
  }

  words(index) {
    const { low, high, tau, complete } = this.segments[index];
    const range = `${this.dial.symbol} ${dialText(low)} to ${dialText(high)}`;
    if (!complete) return `${range}: not mapped to its end, judged block by block.`;
    return `Segment ${whole(index + 1)} of ${whole(this.segments.length)}: ${range}, τ\u00a0=\u00a0${short(tau)}`;
  }

  /** Where the next segment begins, or the one before; past the map's ends, the dial's. */
  leafed(value, forward) {
    const { low, high } = this.dial, starts = this.segments.map(({ low: from }) => from);
    const here = starts.findLastIndex((from) => value >= from);
    if (forward) return starts[here + 1] ?? high;
    return starts[here - 1] ?? (value > starts[0] ? starts[0] : low);
  }

  /** The dial value under the pointer, and the edge within reach of it, if there is one. */
  under(event) {
    const box = this.lane.getBoundingClientRect();
    const value = clamp(this.dial.low + ((event.clientX - box.left) / box.width) * (this.dial.high - this.dial.low), this.dial.low, this.dial.high);
    const away = (edge) => Math.abs(this.share(edge) - this.share(value)) * box.width;
    const edges = this.segments.slice(1).map(({ low }) => low).sort((a, b) => away(a) - away(b));
    return { value, edge: edges.length && away(edges[0]) <= REACH ? edges[0] : null };
  }

  click(event) {
    const { value, edge } = this.under(event);
    this.chosen(edge ?? value);
  }

  hover(event) {
    this.lane.classList.toggle("edge", this.under(event).edge !== null);
  }
}
