// Where the ratio misleads: runner-ups' ratios under a constant added to every logit, and whose verdicts change.

/** z2/z1 after c is added to both; NaN where z1 is then not above 0, where a ratio means nothing. */
export function shiftedRatio(z1, z2, c) {
  return z1 + c > 0 ? (z2 + c) / (z1 + c) : NaN;
}

const CURVES = 12; // runner-ups drawn, the closest first

/** The ratio from where z2 + c is 0 on: closely at first, where it is steep. */
export function curve(z1, z2, reach) {
  const from = Math.max(-z2, -reach), length = reach - from;
  return Array.from({ length: 81 }, (_, i) => from + length * (i / 80) ** 3).map((x) => [x, shiftedRatio(z1, z2, x)]);
}

class Shift {
  constructor() {
    this.curves = new Chart();
    this.changed = new Chart();
    this.words = h("p", { class: "lesson-finding", role: "status" });
    this.element = h("div", {}, h("div", { class: "lesson-pair" }, this.curves.element, this.changed.element), this.words);
  }

  show({ calls, theta, reach, rules, told }, { shift: c }) {
    const above = calls.filter(([z1, z2]) => shiftedRatio(z1, z2, c) > theta).length;
    const sign = whole(c);
    const before = calls.filter(([z1, z2]) => shiftedRatio(z1, z2, 0) > theta).length;
    const drawn = calls.slice(0, CURVES);
    this.curves.show({
      title: `With ${sign} added to every logit ${whole(above)} of ${plural(calls.length, "runner-up")} ${above === 1 ? "lies" : "lie"} above θ = ${dialText(theta)}${c ? `, instead of ${whole(before)}` : ""}`,
      key: [["━", INK.relaxed, "z2/z1 of a drafted runner-up (exact)"], ["┅", INK.dial, "θ"]],
      x: { low: -reach, high: reach, name: "c, added to every logit" },
      y: { low: 0, high: 1.1, name: "z2/z1" },
      marks: [
        ...drawn.map(([z1, z2]) => ({ kind: "line", points: curve(z1, z2, reach), colour: INK.relaxed, wide: 1.5, faint: true })),
        { kind: "across", y: theta, colour: INK.dial },
        { kind: "down", x: c, colour: INK.dial },
        ...drawn.map(([z1, z2]) => [shiftedRatio(z1, z2, c), z1, z2]).filter(([ratio]) => ratio >= 0 && ratio <= 1.1)
          .map(([ratio, z1, z2]) => ({ kind: "dot", x: c, y: ratio, colour: INK.relaxed, size: 4, tip: `z2/z1 = ${short(ratio)}, while p2/p1 stays ${short(Math.exp(z2 - z1))}` })),
      ],
    });
    const counts = rules.map(({ changes }) => changes[Math.round(c) + reach]);
    const most = Math.max(...counts);
    this.changed.show({
      title: most ? `${rules[counts.indexOf(most)].name} changes ${plural(most, "verdict")}, though no probability changes` : "No rule changes a verdict",
      key: [["■", INK.rejected, "verdicts changed (block-local)"]],
      x: { low: -0.6, high: rules.length - 0.4, name: "", names: rules.map(({ name }) => name.replace(/ (by|at) /g, "\n$1 ")) },
      y: { low: 0, high: Math.max(5, 1.2 * Math.max(...rules.flatMap(({ changes }) => changes))), name: "verdicts" },
      marks: counts.flatMap((count, i) => [
        { kind: "bar", x: i, low: 0, high: count, colour: INK.rejected },
        { kind: "label", x: i, y: count, words: whole(count), colour: INK.text },
      ]),
    });
    const ratio = shiftedRatio(told.z1, told.z2, c);
    const after = Number.isFinite(ratio) ? short(ratio) : "undefined (z1 is not above 0)";
    say(this.words, unbroken(`A runner-up of this run: z1 = ${short(told.z1)}, z2 = ${short(told.z2)}, so z2/z1 = ${short(told.z2 / told.z1)}. With c = ${sign} it is ${after}. The margin z1 − z2 stays ${short(told.z1 - told.z2)}, and p2/p1 stays ${short(Math.exp(told.z2 - told.z1))} (T = 1).`));
  }
}
