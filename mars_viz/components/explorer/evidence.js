// The evidence of a run's tokens: in the run itself, or for a long run in windows of rounds that are asked for one by one.
// Touches no document.

const WINDOWS = 64; // kept, the latest used
const HURRY = 60; // ms; who walks on before asks for nothing

/** Where evidence is found. `heard` is told when some arrives; whoever brings it is let in by `connect`. */
export class Evidence {
  constructor() {
    Object.assign(this, { windows: new Map(), send: null, asked: null, turn: 0, heard: null });
  }

  /** The run that holds the evidence of a round, and which of its rounds that is; null while it is on its way. */
  of(pool, run, r) {
    const round = run.poolSlot ? roundOf(pool, run.poolSlot[run.slotAt[r]]) : r;
    if (!pool.window) return { run: pool, round };
    const index = Math.floor(round / pool.window);
    const found = this.windows.get(index);
    if (!found) {
      this.ask(index);
      return null;
    }
    this.windows.delete(index); // to the end: the latest used
    this.windows.set(index, found);
    return { run: found, round: round - index * pool.window };
  }

  ask(index) {
    if (index === this.asked) return;
    this.asked = index;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.post(), HURRY);
  }

  post() {
    if (this.asked !== null) this.send?.({ window: this.asked, turn: ++this.turn });
  }

  /** `send` asks for a window; what nobody has heard of yet, or has forgotten since, is asked for now. */
  connect(send, heard) {
    const first = !this.send;
    this.send = send;
    if (first || !heard) this.post();
  }

  /** Whoever asked goes, unless another has come in between. */
  leave(send) {
    if (this.send === send) this.send = null;
  }

  take(index, run) {
    this.windows.set(index, run);
    if (this.windows.size > WINDOWS) this.windows.delete(this.windows.keys().next().value);
    if (index === this.asked) this.asked = null;
    this.heard?.();
  }
}
