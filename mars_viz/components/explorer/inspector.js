// The inspector beside the text: all that is known of one token.

/**
 * What target and drafter thought of the selected token, and what every rule makes of it.
 *
 * Its elements are made once per run and then only filled: while the dial moves, the selected round may be decided
 * otherwise in every frame, and making some hundred elements anew takes longer than a frame.
 */
class Inspector {
  constructor() {
    this.element = h("aside", { class: "inspector", "aria-label": "The selected token", tabindex: "0" });
  }

  /** Make the elements for a run; `show` fills them. */
  open(run) {
    this.run = run;
    this.token = quote();
    this.pill = h("span");
    this.where = h("p", { class: "where" });
    this.rejected = quote();
    this.instead = h("p", { class: "aside" }, "in place of the rejected ", this.rejected.element, ", of which the numbers below speak");
    this.facts = FACTS.map(([name, tip]) => ({ name, value: h("dd"), tip }));
    this.flip = h("p", { class: "flip" });
    this.target = new Law("Target", run.rows.top);
    this.drafter = new Law("Drafter", run.nodes.top);
    this.undrafted = h("p", { class: "aside" }, "Nothing was drafted here, so there is nothing to judge: the whole block was kept.");
    this.judged = quote();
    this.lines = run.rules.map((rule) => ({ rule, at: h("div"), verdict: h("div") }));
    const lines = this.lines.map(({ rule, at, verdict }) => h("tr", { class: rule.name === run.rule.name ? "own" : null },
      h("th", { scope: "row", "data-tip": rule.formula, tabindex: "0" }, rule.title), h("td", { class: "at" }, at), h("td", {}, verdict)));
    this.verdicts = h("div", { class: "verdicts" }, h("h4", {}, "Every rule on ", this.judged.element), h("table", {}, h("tbody", {}, ...lines)));
    this.hint = h("p", { class: "empty" }, "Click a token, or walk through the text with the arrow keys, to see what target and drafter thought of it.");
    this.sheet = h("div", {},
      h("header", {}, h("div", { class: "headline" }, h("span", { class: "what" }, this.token.element), this.pill), this.where),
      this.instead,
      h("dl", { class: "facts" }, ...this.facts.map(({ name, value, tip }) => h("div", { "data-tip": tip, tabindex: "0" }, h("dt", {}, name), value))),
      this.flip, h("div", { class: "laws" }, this.target.element, this.drafter.element), this.undrafted, this.verdicts);
    this.element.replaceChildren(this.hint, this.sheet);
  }

  /** Take on other rounds of the same run. */
  adopt(run) {
    this.run = run;
    this.lines.forEach((line, i) => (line.rule = run.rules[i]));
  }

  show(reading, slot) {
    const { run } = this;
    this.hint.hidden = slot !== null;
    this.sheet.hidden = slot === null;
    if (slot === null) return;
    const r = roundOf(run, slot);
    const own = nodeOf(run, slot);
    const emission = reading.now.emission[r];
    const row = own < 0 ? reading.now.stop[r] : run.judge[own];
    const node = own < 0 && emission === CORRECTED ? run.child[run.childAt[row]] : own;
    const piece = tokenOf(run, reading.now, slot);
    this.title(reading, slot, piece, own < 0 ? emission : reading.now.outcome[own], r, own);
    this.instead.hidden = own >= 0 || node < 0;
    if (!this.instead.hidden) this.rejected.show(run, run.nodes.token[node]);
    this.weigh(reading, row, node);
    this.target.show(run, run.rows, row, node >= 0 ? run.nodes.token[node] : piece, node, own < 0 ? piece : -1);
    if (node >= 0) this.drafter.show(run, run.nodes, node, run.nodes.token[node], -1, -1);
    else this.drafter.blank();
    this.undrafted.hidden = node >= 0;
    this.verdicts.hidden = node < 0;
    if (node >= 0) this.judge(reading, node);
  }

  title(reading, slot, piece, outcome, r, own) {
    const { run } = this;
    const index = reading.textIndex(slot);
    const where = [index === null ? "not in the text" : `token ${whole(index + 1)}`, `round ${whole(r + 1)}`];
    if (own >= 0) where.push(`draft ${run.nodes.depth[own]} of ${run.count[r]}`);
    this.token.show(run, piece);
    this.pill.className = `pill t ${NAMES[outcome]}`;
    say(this.pill, NAMES[outcome]);
    say(this.where, `${where.join(" · ")} · id ${run.pieces.ids[piece]}`);
  }

  /** The numbers of a row, and of a node where one was judged there. */
  weigh(reading, row, node) {
    const { rows, nodes } = this.run;
    const z = (i) => (i < rows.top ? rows.top_logit[row * rows.top + i] : NaN);
    const values = [short(z(0)), short(z(1)), short(rows.ratio[row]), short(rows.margin[row]), `${short(rows.entropy[row])} nats`];
    if (node < 0) values.push(null, short(reading.chance(row)), null, null);
    else values.push(whole(nodes.rank[node]), short(nodes.p[node]), short(nodes.q[node]), short(nodes.coin[node]));
    this.facts.forEach(({ value }, i) => {
      value.parentElement.hidden = values[i] === null;
      say(value, values[i] ?? "");
    });
    this.flip.hidden = node < 0;
    if (node >= 0) say(this.flip, flipping(this.run, node));
  }

  /** What every rule says: those that share the run's dial where the hand holds it, the others at their defaults. */
  judge(reading, node) {
    this.judged.show(this.run, this.run.nodes.token[node]);
    for (const { rule, at, verdict } of this.lines) {
      const dial = rule.follows ? reading.dial : rule.default ?? NaN;
      const keeps = dial < rule.breakpoint[node] ? rule.keep[node] & 1 : rule.keep[node] & 2;
      say(at, rule.symbol === null ? "" : `${rule.symbol} ${dialText(dial)}${rule.follows ? "" : " (default)"}`);
      const unsaid = rule.keep[node] & 8; // a report may leave it out
      say(verdict, unsaid ? "–" : keeps ? "✓ keeps" : "× rejects");
      verdict.className = unsaid ? "" : keeps ? "keeps" : "rejects";
    }
  }
}

const FACTS = [
  ["z1", "The target's largest raw logit."],
  ["z2", "Its second largest."],
  ["ratio", "z2 / z1"],
  ["margin", "z1 − z2"],
  ["entropy", "Of the target's law: 0 is certain."],
  ["rank", "The target's rank of the drafted token; 1 is its best."],
  ["p(x)", "The target's probability of the token, processed as the run samples."],
  ["q(x)", "The drafter's probability of it, likewise."],
  ["coin", "The acceptance coin u in [0, 1); rejection sampling keeps the token if u ≤ p/q."],
];

function flipping(run, node) {
  const at = run.nodes.breakpoint[node];
  const keep = run.nodes.keep[node];
  if (!run.dial || Number.isNaN(at)) return `No breakpoint: ${keep & 2 ? "kept" : "rejected"} ${run.dial ? `at every ${run.dial.symbol}` : "by this rule"}.`;
  const [below, above] = keep & 1 ? ["kept", "rejected"] : ["rejected", "kept"];
  return `Breakpoint ${run.dial.symbol} = ${short(at)}: ${below} below it, ${above} from it on.`;
}
