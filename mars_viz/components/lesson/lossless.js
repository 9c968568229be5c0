// Why rejection sampling is lossless: two laws as areas, and trials that come to follow the target's before your eyes.

const PACE = 5000; // milliseconds from ten trials to the last
const SEED = 0x9e3779b9;

/** Uniforms in [0, 1) from a seed: mulberry32 (Tommy Ettinger, public domain); the same in every browser. */
export function uniforms(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The group that a uniform falls into, by mass; never one without any. */
function drawn(mass, uniform) {
  let rest = uniform * mass.reduce((sum, part) => sum + part, 0);
  let last = 0;
  for (let i = 0; i < mass.length; i++) {
    if (mass[i] > 0) last = i;
    if (rest < mass[i]) return i;
    rest -= mass[i];
  }
  return last;
}

/** One trial of rejection sampling: x from q, kept with chance min(1, p/q), else drawn from (p − q)₊; its group. */
export function trial({ q, shared, residual }, [draft, coin, instead]) {
  const x = drawn(q, draft);
  if (coin * q[x] <= shared[x] || residual.every((part) => part <= 0)) return x;
  return drawn(residual, instead);
}

/** How often each group was written in so many trials; more go on where fewer stopped. */
export class Trials {
  constructor(laws) {
    this.laws = laws;
    this.begin();
  }

  begin() {
    this.done = 0;
    this.counts = this.laws.p.map(() => 0);
    this.luck = uniforms(SEED);
  }

  upTo(draws) {
    if (draws < this.done) this.begin();
    for (; this.done < draws; this.done++) this.counts[trial(this.laws, [this.luck(), this.luck(), this.luck()])]++;
    return this.counts;
  }
}

/** Total variation: the share of the text that would have to change. */
export function distance(shares, law) {
  return shares.reduce((sum, part, i) => sum + Math.abs(part - law[i]), 0) / 2;
}

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
      this.trials = new Trials(laws);
      this.showAreas(laws);
    }
    const counts = this.trials.upTo(draws);
    const shares = counts.map((count) => count / draws);
    const { p, q, shared, names } = laws;
    const apart = 1 - shared.reduce((sum, part) => sum + part, 0); // of the laws themselves: groups are no further apart
    const title = `After ${plural(draws, "trial")} the written tokens are ${percent(distance(shares, p))} from the target’s distribution (TV); every draft kept: ${percent(apart)}`;
    if (!this.frame) say(this.heard, title);
    this.seen.show({
      title,
      key: [["■", INK.quiet, "written (simulated)"], ["◆", INK.dial, "target p"], ["○", INK.rejected, "drafter q"]],
      x: { low: -0.6, high: names.length - 0.4, name: "", names },
      y: { low: 0, high: 1.12 * Math.max(...p, ...q), name: "share" },
      marks: [
        ...shares.map((written, i) => ({ kind: "bar", x: i, low: 0, high: Math.min(written, 1.12 * Math.max(...p, ...q)), colour: INK.quiet, tip: `${names[i]}: written ${plural(counts[i], "time")}, ${short(written)}` })),
        ...p.map((value, i) => ({ kind: "dot", shape: "diamond", x: i, y: value, colour: INK.dial, tip: `p = ${short(value)}` })),
        ...q.map((value, i) => ({ kind: "dot", shape: "ring", x: i, y: value, colour: INK.rejected, tip: `q = ${short(value)}` })),
      ],
    });
  }

  showAreas({ p, q, shared, residual, names }) {
    const kept = shared.reduce((sum, part) => sum + part, 0);
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
    const [first, last] = [10, this.move.most];
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.move(last);
      this.rest();
      return;
    }
    const began = performance.now();
    const step = (now) => {
      const passed = Math.min(1, Math.max(0, now - began) / PACE);
      this.move(Math.round(first * (last / first) ** passed));
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
