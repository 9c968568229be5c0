// Why drafting pays: the speed-up that theory expects, over α, and what follows from the times of recorded runs.

/** Between the values of a table over 0 to 1, evenly spaced. */
export function interpolated(values, share) {
  const at = clamp(share, 0, 1) * (values.length - 1);
  const low = Math.min(Math.floor(at), values.length - 2);
  return values[low] + (at - low) * (values[low + 1] - values[low]);
}

/** Tokens per target pass, and those over what a round costs: the speed-up over the target alone. Both tables come from
 *  Python, a row for each γ: tokens over α, and the cost over c. */
export function theoryAt({ tokens, cost }, alpha, gamma, c) {
  const perPass = interpolated(tokens[gamma - 1], alpha);
  return { tokens: perPass, speedUp: perPass / interpolated(cost[gamma - 1], c) };
}

/** A speed-up in words; a digit more near 1, and no number where three digits would hide on which side of 1 it lies. */
export function paceWords(speedUp) {
  const off = Math.abs(speedUp - 1);
  if (off < 0.0005) return "as fast as the target alone";
  const ratio = off < 0.0095 ? speedUp.toFixed(3) : short(speedUp);
  return speedUp > 1 ? `${ratio} times as fast` : `${ratio} times as fast, slower than the target alone`;
}

/** The formula with the dials put in, as words and raised exponents; at α = 1, where it is 0/0, its limit. */
function worked(alpha, block, cost, speedUp) {
  const a = alpha.toFixed(2), price = `(${block}\u00a0×\u00a0${cost.toFixed(2)}\u00a0+\u00a01) = ${short(speedUp)} (modelled)`;
  if (alpha === 1) return [`Speed-up = (γ + 1) / (γc + 1) = (${block} + 1) / ${price}`];
  return ["Speed-up = (1 − α", h("sup", {}, "γ+1"), `) / ((1 − α)(γc + 1)) = (1 − ${a}`, h("sup", {}, `${block + 1}`), `) / ((1 − ${a})${price.replace(" =", ") =")}`];
}

class Drafting {
  constructor() {
    this.chart = new Chart();
    this.words = h("p", { class: "lesson-finding", role: "status" });
    this.sum = h("p", { class: "lesson-sum" });
    this.note = h("p", { class: "lesson-note" }, "Diamonds: sample runs, modelled from the times measured when they were recorded. Like the formula, they take a pass over γ + 1 positions to cost what a pass over one does.");
    this.element = h("div", {}, this.chart.element, this.sum, this.words, this.note);
  }

  show({ theory, runs, own }, { alpha, block, cost }) {
    const { tokens, speedUp: here } = theoryAt(theory, alpha, block, cost);
    const steps = theory.tokens[0].length - 1;
    const curve = Array.from({ length: steps + 1 }, (_, i) => [i / steps, theoryAt(theory, i / steps, block, cost).speedUp]);
    const top = 1.08 * Math.max(1, curve.at(-1)[1], ...runs.map(({ speedUp }) => speedUp));
    const gammas = [...new Set(runs.map(({ gamma }) => gamma))]; // the curve is of the dial's γ, and they are of theirs
    const lengths = gammas.length === 1 ? ` at γ\u00a0=\u00a0${gammas[0]}` : ", each at its own γ";
    this.chart.show({
      title: `With α = ${alpha.toFixed(2)}, γ = ${block} and c = ${cost.toFixed(2)} decoding is ${paceWords(here)}`,
      key: [
        ["●", INK.dial, "at these settings (modelled)"],
        ["┅", INK.quiet, "no draft"],
        ...(runs.length ? [["◆", INK.relaxed, `sample runs${lengths}, passes and draft steps only (modelled from measured times)`]] : []),
      ],
      x: { low: 0, high: 1, name: "α, acceptance rate of a drafted token" },
      y: { low: 0, high: top, name: "speed-up" },
      marks: [
        { kind: "across", y: 1, colour: INK.quiet },
        { kind: "line", points: curve, colour: INK.dial },
        ...runs.map(({ name, alpha: a, gamma, c, speedUp }) => ({
          kind: "dot", shape: "diamond", x: a, y: speedUp, colour: INK.relaxed, faint: gamma !== block,
          tip: `${name}: α ${short(a)}, γ ${gamma}, c ${short(c)}: ${short(speedUp)} times (modelled from measured times)`,
        })),
        { kind: "dot", x: alpha, y: here, colour: INK.dial, size: 8 },
      ],
    });
    this.note.hidden = !runs.length;
    this.sum.replaceChildren(...worked(alpha, block, cost, here));
    say(this.words, `A target pass yields ${short(tokens)} tokens on average (modelled). ${own}`);
  }
}
