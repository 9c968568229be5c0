// What colours the tokens: the choice of an overlay, its legend, and the shade of each token under it.

const OVERLAYS = {
  outcome: { label: "Outcome", tip: "What became of each token." },
  ratio: { label: "Ratio", tip: "z2/z1: how close the target's second best raw logit comes to its best. Bright is a close call.", low: "z2/z1" },
  margin: { label: "Margin", tip: "z1 − z2: how far the target prefers its best token, in logits. Dark is a close call.", low: "z1 − z2" },
  p: { label: "p(x)", tip: "The target's probability of the token itself.", low: "p(x)" },
  entropy: { label: "Entropy", tip: "Entropy of the target's law at the token, in nats. Bright is undecided.", low: "nats" },
};

const OF_TREES = {
  [REJECTED]: "The first drafted token that the rule rejected where the path stopped.",
  [DISCARDED]: "Drafted beside or after the kept path, and rolled back.",
  [BONUS]: "Written by the target after a path kept to its end.",
};
const LEGEND = [
  [MATCHED, "Kept, and the strict rule keeps it too."],
  [RELAXED, "Kept only because the rule is relaxed."],
  [REJECTED, "The first drafted token that the rule rejected."],
  [DISCARDED, "Drafted after the end of the kept part, and rolled back."],
  [CORRECTED, "Written by the target in place of the rejected token."],
  [BONUS, "Written by the target after a fully kept block."],
];

/** The buttons that choose, and the legend. Tells of a choice by `chosen`. */
class Overlays {
  constructor({ chosen }) {
    this.chosen = chosen;
    this.name = "outcome";
    this.legend = h("div", { class: "legend" });
    this.radios = Object.entries(OVERLAYS).map(([name, { label, tip }]) =>
      h("button", { type: "button", role: "radio", "data-overlay": name, "data-tip": tip, onclick: () => chosen(name) }, label));
    this.choice = h("div", { class: "overlays", role: "radiogroup", "aria-label": "Colour the tokens by", onkeydown: (e) => this.turn(e) }, ...this.radios);
  }

  /** Take on a run's scales. */
  open(run) {
    this.run = run;
    this.scales = null;
  }

  /** The ends of each scale, worked out when the first is shown: that takes all values in order. */
  get ranges() {
    return (this.scales ??= overlayRanges(this.run));
  }

  /** Show an overlay as chosen without telling anyone. */
  press(name) {
    this.name = name in OVERLAYS ? name : "outcome";
    this.legendOf = null;
    for (const radio of this.radios) {
      const on = radio.dataset.overlay === this.name;
      radio.setAttribute("aria-checked", on);
      radio.tabIndex = on ? 0 : -1;
    }
  }

  turn(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = this.radios.findIndex((radio) => radio.dataset.overlay === this.name);
    const next = this.radios[(at + step + this.radios.length) % this.radios.length];
    next.focus();
    this.chosen(next.dataset.overlay);
  }

  /** The class of a token's shade, with a leading blank; none for the outcome overlay. */
  shade(reading, slot) {
    if (this.name === "outcome") return "";
    const { run, now } = reading;
    const r = roundOf(run, slot);
    const node = slot === run.slotAt[r + 1] - 1 ? -1 : slot - r;
    const row = node < 0 ? now.stop[r] : run.judge[node];
    const value = this.name !== "p" ? run.rows[this.name][row] : node < 0 ? reading.chance(row) : run.nodes.p[node];
    const [low, high] = this.ranges[this.name];
    return Number.isNaN(value) ? "" : ` c${Math.round(clamp((value - low) / (high - low), 0, 1) * (SHADES - 1))}`;
  }

  /** The legend, with what the reading adds to it. */
  draw(reading) {
    if (this.legendOf !== this.name) {
      this.legendOf = this.name;
      this.legend.replaceChildren(...(this.name === "outcome" ? this.outcomeLegend() : this.scaleLegend()));
    }
    if (this.name === "outcome") this.tallies.forEach((tally, outcome) => say(tally, whole(reading.now.totals.counts[outcome])));
    else if (this.line) this.line.style.left = `${100 * clamp((reading.dial - this.ranges.ratio[0]) / (this.ranges.ratio[1] - this.ranges.ratio[0]), 0, 1)}%`;
  }

  outcomeLegend() {
    this.tallies = LEGEND.map(() => h("div"));
    this.legend.style.setProperty("--digits", `${whole(this.run.judge.length).length}ch`); // none of them grows wider
    return grouped(LEGEND.map(([outcome, tip], i) => h("span", { class: "key", "data-tip": (this.run.about.tree && OF_TREES[outcome]) || tip },
      h("span", { class: `t ${NAMES[outcome]}` }, NAMES[outcome]), h("span", { class: "tally" }, this.tallies[i]))));
  }

  scaleLegend() {
    const [low, high] = this.ranges[this.name];
    const stops = Array.from({ length: 9 }, (_, i) => `rgb(${cividis(i / 8)})`).join(",");
    const ramp = h("span", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${stops})`;
    this.line = this.name === "ratio" && this.run.dial?.of_ratio ? h("span", { class: "line", "data-tip": "where the dial stands" }) : null;
    if (this.line) ramp.append(this.line);
    const edge = (value, sign) => `${sign}${THIN}${short(value)}`;
    const lowText = this.name === "ratio" ? edge(low, "≤") : short(low);
    const highText = this.name === "margin" || this.name === "entropy" ? edge(high, "≥") : short(high);
    return [h("span", { class: "unit" }, OVERLAYS[this.name].low), h("span", {}, lowText), ramp, h("span", {}, highText)];
  }
}

/** What the ends of each scale stand for: the 2nd or 98th percentile where the quantity has no natural end. */
function overlayRanges(run) {
  const high = (values) => {
    const sorted = values.filter(Number.isFinite).sort();
    return sorted.length ? Math.max(sorted[Math.floor(0.98 * (sorted.length - 1))], 1e-3) : 1;
  };
  const ratios = run.rows.ratio.filter(Number.isFinite).sort();
  const low = ratios.length ? clamp(Math.floor(20 * ratios[Math.floor(0.02 * ratios.length)]) / 20, 0, 0.95) : 0;
  return { ratio: [low, 1], p: [0, 1], margin: [0, high(run.rows.margin)], entropy: [0, high(run.rows.entropy)] };
}
