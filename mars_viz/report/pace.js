// How drawing keeps pace with a hand that moves: what waits is drawn a frame at a time. Touches no document.

/** Draws what was asked for, as much in a frame as `budget` milliseconds hold and always one thing. What waits already
 *  keeps its turn, so of several things none waits for ever while the hand moves; each draws what holds at its turn. */
class Pace {
  constructor({ frame = (turn) => requestAnimationFrame(turn), now = () => performance.now(), budget = 10 } = {}) {
    Object.assign(this, { frame, now, budget, waiting: new Set(), asked: false });
  }

  /** Ask for something to be drawn: a function, the same one each time. */
  ask(draw) {
    this.waiting.add(draw);
    if (!this.asked) this.next();
  }

  next() {
    this.asked = true;
    this.frame(() => this.turn());
  }

  turn() {
    const began = this.now();
    this.asked = false;
    for (const draw of this.waiting) {
      this.waiting.delete(draw);
      draw();
      if (this.now() - began >= this.budget) break;
    }
    if (this.waiting.size && !this.asked) this.next();
  }
}
