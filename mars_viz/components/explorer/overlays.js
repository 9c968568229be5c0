// What colours the tokens: the choice of an overlay, its legend, and the shade of each token under it.

const OVERLAYS = {
  outcome: { label: "Outcome", tip: "What became of each token." },
  ratio: { label: "Ratio", tip: "z2/z1: how close the target's second best raw logit comes to its best. Bright is a close call.", low: "z2/z1" },
  margin: { label: "Margin", tip: "z1 − z2: how far the target prefers its best token, in logits. Dark is a close call.", low: "z1 − z2" },
  p: { label: "p(x)", tip: "The target's probability of the token itself.", low: "p(x)" },
  entropy: { label: "Entropy", tip: "Entropy of the target's law at the token, in nats. Bright is undecided.", low: "nats" },
  drafter: { label: "Drafter", tip: "Which of the two drafters drafted the token." },
};
const BY = [" c3", " c20"]; // shades of the first and the second of two drafters

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
    this.legendOf = null;
    for (const radio of this.radios) radio.hidden = radio.dataset.overlay === "drafter" && !run.nodes.by;
    if (this.name === "drafter" && !run.nodes.by) this.press("outcome");
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
    const shown = this.radios.filter((radio) => !radio.hidden);
    const at = shown.findIndex((radio) => radio.dataset.overlay === this.name);
    const next = shown[(at + step + shown.length) % shown.length];
    next.focus();
    this.chosen(next.dataset.overlay);
  }

  /** The class of a token's shade, with a leading blank; none for the outcome overlay. */
  shade(reading, slot) {
    if (this.name === "outcome") return "";
    const { run, now } = reading;
    const r = roundOf(run, slot);
    const node = slot === run.slotAt[r + 1] - 1 ? -1 : slot - r;
    if (this.name === "drafter") return node < 0 || !run.nodes.by ? "" : BY[run.nodes.by[node]];
    const row = node < 0 ? now.stop[r] : run.judge[node];
    const value = this.name !== "p" ? run.rows[this.name][row] : node < 0 ? reading.chance(row) : run.nodes.p[node];
    const [low, high] = this.ranges[this.name];
    return Number.isNaN(value) ? "" : ` c${Math.round(clamp((value - low) / (high - low), 0, 1) * (SHADES - 1))}`;
  }

  /** The legend, with what the reading adds to it. */
  draw(reading) {
    if (this.legendOf !== this.name) {
      this.legendOf = this.name;
      const legends = { outcome: () => this.outcomeLegend(), drafter: () => this.drafterLegend() };
      this.legend.replaceChildren(...(legends[this.name] ?? (() => this.scaleLegend()))());
    }
    if (this.name === "drafter") {
      keptBy(reading).forEach(([kept, of], i) => say(this.tallies[i], `${whole(kept)} of ${whole(of)} kept`));
      return;
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

  drafterLegend() {
    this.tallies = BY.map(() => h("span", { style: "margin-left: 4px" }));
    const { drafter } = this.run.about;
    const plus = drafter.indexOf("+");
    return [drafter.slice(0, plus), drafter.slice(plus + 1)].map((name, i) => h("span", { class: "key" }, h("span", { class: `t${BY[i]}` }, name), this.tallies[i]));
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

/** For each of two drafters the kept and all of its tokens in the text shown. */
function keptBy({ run, now }) {
  const tally = [[0, 0], [0, 0]];
  run.nodes.by?.forEach((by, node) => {
    tally[by][1] += 1;
    if (now.outcome[node] === MATCHED || now.outcome[node] === RELAXED) tally[by][0] += 1;
  });
  return tally;
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
