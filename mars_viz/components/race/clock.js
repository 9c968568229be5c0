// The recorded clock: where a replay stands, in recorded seconds, and how it moves. Touches no document.

/** Calls `moved(seconds)` whenever the time changes, and `turned(playing)` when it starts or stops. */
class Clock {
  constructor({ moved, turned }) {
    Object.assign(this, { moved, turned, end: 0, at: 0, slow: 1, playing: false, frame: 0, last: 0 });
  }

  play() {
    if (this.playing || !this.end) return;
    if (this.at >= this.end) this.seek(0);
    this.playing = true;
    this.last = performance.now();
    this.turned(true);
    const step = (now) => {
      if (!this.playing) return;
      const passed = Math.max(0, now - this.last) / 1000 / this.slow;
      this.last = now;
      this.seek(this.at + passed);
      if (this.at >= this.end) this.pause();
      else this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.frame);
    this.turned(false);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  seek(seconds) {
    this.at = clamp(seconds, 0, this.end);
    this.moved(this.at);
  }
}

/** How many of the ascending `times` have passed at `at`. */
function passed(times, at) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
