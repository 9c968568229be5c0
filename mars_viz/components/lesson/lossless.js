// Why rejection sampling is lossless: two laws as areas, and trials that come to follow the target's before your eyes.

const PACE = 5000; // milliseconds from the first trials to the last

class Lossless {
  /** `move` places a knob, as the hand does; `rest` says that it stands. */
  constructor({ move, rest }) {
    Object.assign(this, { move, rest });
    this.areas = new Chart();
    this.seen = new Chart();
    this.button = h("button", { type: "button", class: "lesson-play", onclick: () => this.toggle() }, "▶ Run the trials");
    this.heard = h("p", { class: "heard", role: "status" }); // the second title, which changes sixty times a second
    this.element = h("div", {}, this.button, this.heard, h("div", { class: "lesson-pair" }, this.areas.element, this.seen.element));
  }

  show(laws, { draws }) {
    if (laws !== this.laws) {
      this.pause();
      this.laws = laws;
      this.showAreas(laws);
    }
    const { p, q, names, kept, written, apart } = laws;
    const at = Math.max(0, laws.draws.findLastIndex((count) => count <= draws)), counts = written[at];
    const shares = counts.map((count) => count / laws.draws[at]);
    const title = `After ${plural(laws.draws[at], "trial")} the written tokens are ${percent(apart[at])} from the target’s distribution (TV); every draft kept: ${percent(1 - kept)}`;
    if (!this.frame) say(this.heard, title);
    this.seen.show({
      title,
      key: [["■", INK.quiet, "written (simulated)"], ["◆", INK.dial, "target p"], ["○", INK.rejected, "drafter q"]],
      x: { low: -0.6, high: names.length - 0.4, name: "", names },
      y: { low: 0, high: 1.12 * Math.max(...p, ...q), name: "share" },
      marks: [
        ...shares.map((share, i) => ({ kind: "bar", x: i, low: 0, high: Math.min(share, 1.12 * Math.max(...p, ...q)), colour: INK.quiet, tip: `${names[i]}: written ${plural(counts[i], "time")}, ${short(share)}` })),
        ...p.map((value, i) => ({ kind: "dot", shape: "diamond", x: i, y: value, colour: INK.dial, tip: `p = ${short(value)}` })),
        ...q.map((value, i) => ({ kind: "dot", shape: "ring", x: i, y: value, colour: INK.rejected, tip: `q = ${short(value)}` })),
      ],
    });
  }

  showAreas({ p, q, shared, residual, names, kept }) {
    this.areas.show({
      title: `${percent(kept)} of drafts are kept here: the area that p and q share`,
      key: [["■", INK.quiet, "min(p, q): kept"], ["■", INK.dial, "(p − q)₊: written instead"], ["■", INK.rejected, "(q − p)₊: rejected"]],
      x: { low: -0.6, high: names.length - 0.4, name: "", names },
      y: { low: 0, high: 1.12 * Math.max(...p, ...q), name: "probability (exact)" },
      marks: names.flatMap((name, i) => {
        const tip = `${name}: p = ${short(p[i])}, q = ${short(q[i])}`;
        return [
          { kind: "bar", x: i, low: 0, high: shared[i], colour: INK.quiet, tip },
          { kind: "bar", x: i, low: shared[i], high: shared[i] + residual[i], colour: INK.dial, tip },
          { kind: "bar", x: i, low: shared[i] + residual[i], high: shared[i] + residual[i] + Math.max(0, q[i] - shared[i]), colour: INK.rejected, tip },
        ];
      }),
    });
  }

  toggle() {
    if (this.frame) {
      this.pause();
      this.rest();
      return;
    }
    const { draws } = this.laws, last = draws.length - 1;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.move(draws[last]);
      this.rest();
      return;
    }
    const began = performance.now();
    const step = (now) => {
      const passed = Math.min(1, Math.max(0, now - began) / PACE);
      this.move(draws[Math.round(passed * last)]);
      if (passed < 1) this.frame = requestAnimationFrame(step);
      else {
        this.pause();
        this.rest();
      }
    };
    say(this.button, "■ Stop");
    this.frame = requestAnimationFrame(step);
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    say(this.button, "▶ Run the trials");
  }
}
