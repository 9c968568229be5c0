// What the looks of each round follow from, as it was last dressed, so that only what has changed is dressed again: at which
// of its rows it stopped, and what was written there. Touches no document.

const EACH = 2; // numbers of a round

class Looks {
  constructor(rounds) {
    this.values = new Int32Array(EACH * rounds).fill(-1);
  }

  /** True if a round does not look as the reading has it; it will from now on. */
  outdated({ run, now }, r) {
    const { values } = this, at = EACH * r;
    const row = now.stop[r] - run.slotAt[r], emitted = now.emitted[r];
    if (values[at] === row && values[at + 1] === emitted) return false;
    [values[at], values[at + 1]] = [row, emitted];
    return true;
  }

  /** The numbers of a round, which hold in whichever reading it stands. */
  of(r) {
    return this.values.slice(EACH * r, EACH * (r + 1));
  }

  put(r, numbers) {
    this.values.set(numbers, EACH * r);
  }

  /** Rounds are to be dressed again, whatever they look like: all, or some. */
  forget(first = 0, last = Infinity) {
    this.values.fill(-1, EACH * first, EACH * (last + 1));
  }
}
