// Where the text shown leaves the recorded one: a line across the text, and the way to it.

class Parting {
  /** Of a stream. */
  constructor(stream) {
    this.stream = stream;
    this.divider = h("span", { class: "divider", role: "presentation" }, "block-local from here: at this setting the text would go on otherwise");
    this.jump = h("button", { class: "jump", type: "button", hidden: true, onclick: () => this.show() });
  }

  /** Where the shown text leaves the recorded one, into view. */
  show() {
    const { stream } = this, { round } = stream.reading.parted, { element } = stream;
    stream.bring(stream.chunks.find(({ last }) => last >= round));
    const at = this.divider.getBoundingClientRect().top - element.getBoundingClientRect().top;
    element.scrollTop += at - element.clientHeight / 2;
  }

  /** Offer the way to the parting while it is out of view. */
  point() {
    const { parted } = this.stream.reading;
    if (parted) say(this.jump, `parts from the recorded text at token ${whole(parted.index + 1)}`);
    const box = this.stream.element.getBoundingClientRect();
    const at = this.divider.getBoundingClientRect();
    const seen = this.divider.isConnected && at.top >= box.top && at.bottom <= box.bottom;
    this.jump.hidden = !parted || seen;
  }

  /** Everything after the round that parted is faded; the divider stands right after that round. */
  fade(chunk, parted) {
    const { run, elements: { rounds } } = this.stream;
    chunk.element.classList.toggle("faded", chunk.first > parted);
    const before = chunk.parted ?? run.rounds;
    const inside = (r) => r >= chunk.first && r <= chunk.last;
    if (inside(parted) || inside(before)) {
      for (let r = chunk.first; r <= chunk.last; r++) {
        rounds[r].classList.toggle("faded", r > parted && inside(parted));
      }
    }
    if (inside(parted)) {
      rounds[parted].after(this.divider);
    } else if (this.divider.parentNode === chunk.element) this.divider.remove();
    chunk.parted = parted;
  }
}
