// Where the ratio misleads: runner-ups' ratios under a constant added to every logit, and whose verdicts change.

/** A runner-up's curve: where it begins, closely, then at each constant from −reach on. */
export function pointsOf({ steep, ratios }, reach) {
  const [last] = steep.at(-1);
  return [...steep, ...ratios.map((ratio, i) => [i - reach, ratio]).filter(([c]) => c > last)];
}

class Shift {
  constructor() {
    this.curves = new Chart();
    this.changed = new Chart();
    this.words = h("p", { class: "lesson-finding", role: "status" });
    this.element = h("div", {}, h("div", { class: "lesson-pair" }, this.curves.element, this.changed.element), this.words);
  }

  show({ curves, runnerUps, above, theta, reach, rules, told }, { shift: c }) {
    const sign = whole(c), at = Math.round(c) + reach; // in what Python counted at each constant
    this.curves.show({
      title: `With ${sign} added to every logit ${whole(above[at])} of ${plural(runnerUps, "runner-up")} ${above[at] === 1 ? "lies" : "lie"} above θ = ${dialText(theta)}${c ? `, instead of ${whole(above[reach])}` : ""}`,
      key: [["━", INK.relaxed, "z2/z1 of a drafted runner-up (exact)"], ["┅", INK.dial, "θ"]],
      x: { low: -reach, high: reach, name: "c, added to every logit" },
      y: { low: 0, high: 1.1, name: "z2/z1" },
      marks: [
        ...curves.map((each) => ({ kind: "line", points: pointsOf(each, reach), colour: INK.relaxed, wide: 1.5, faint: true })),
        { kind: "across", y: theta, colour: INK.dial },
        { kind: "down", x: c, colour: INK.dial },
        ...curves.map(({ ratios, odds }) => ({ ratio: ratios[at], odds })).filter(({ ratio }) => ratio !== null && ratio >= 0 && ratio <= 1.1)
          .map(({ ratio, odds }) => ({ kind: "dot", x: c, y: ratio, colour: INK.relaxed, size: 4, tip: `z2/z1 = ${short(ratio)}, while p2/p1 stays ${short(odds)}` })),
      ],
    });
    const counts = rules.map(({ changes }) => changes[at]);
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
    const { z1, z2, odds, ratios } = told;
    const after = ratios[at] === null ? "undefined (z1 is not above 0)" : short(ratios[at]);
    say(this.words, unbroken(`A runner-up of this run: z1 = ${short(z1)}, z2 = ${short(z2)}, so z2/z1 = ${short(ratios[reach] ?? NaN)}. With c = ${sign} it is ${after}. The margin z1 − z2 stays ${short(z1 - z2)}, and p2/p1 stays ${short(odds)} (T = 1).`));
  }
}
