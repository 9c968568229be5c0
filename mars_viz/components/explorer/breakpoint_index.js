// A run's breakpoints by their place on the dial: which rounds a turn of it can decide otherwise. Touches no document.

const BINS = 1024; // equal parts of the dial's range, by which breakpoints are found

/** The breakpoints of a run's nodes and rows, and where gaps begin, that lie in the range of its dial. */
export class BreakpointIndex {
  constructor(run) {
    const { low, high } = run.dial;
    Object.assign(this, { low, width: (high - low) / BINS, at: new Int32Array(BINS + 1), met: new Int32Array(run.rounds), turn: 0 });
    const flips = [[run.nodes.breakpoint, run.nodeAt], [run.rows.breakpoint, run.slotAt]];
    if (run.nodes.gapped) flips.push([run.nodes.gap, run.nodeAt]);
    const each = (heard) => {
      for (const [flip, starts] of flips) {
        for (let r = 0; r < run.rounds; r++) {
          for (let i = starts[r]; i < starts[r + 1]; i++) if (flip[i] > low && flip[i] <= high) heard(flip[i], r);
        }
      }
    };
    each((breakpoint) => this.at[this.bin(breakpoint) + 1]++);
    for (let bin = 0; bin < BINS; bin++) this.at[bin + 1] += this.at[bin];
    const next = this.at.slice();
    this.breakpoints = new Float64Array(this.at[BINS]);
    this.rounds = new Int32Array(this.at[BINS]);
    each((breakpoint, r) => {
      const i = next[this.bin(breakpoint)]++;
      this.breakpoints[i] = breakpoint;
      this.rounds[i] = r;
    });
  }

  bin(value) {
    return clamp(Math.floor((value - this.low) / this.width), 0, BINS - 1);
  }

  /** The rounds with a breakpoint, or a gap's beginning, b so that `dial < b` is true at one value and false at the other; each once. */
  between(one, other) {
    const from = Math.min(one, other), to = Math.max(one, other);
    const found = [];
    this.turn++;
    for (let i = this.at[this.bin(from)]; i < this.at[this.bin(to) + 1]; i++) {
      const r = this.rounds[i];
      if (this.breakpoints[i] <= from || this.breakpoints[i] > to || this.met[r] === this.turn) continue;
      this.met[r] = this.turn;
      found.push(r);
    }
    return found;
  }
}
