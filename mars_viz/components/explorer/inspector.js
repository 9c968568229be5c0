// The inspector beside the text: all that is known of one token.

/**
 * What target and drafter thought of the selected token, and what every rule makes of it.
 *
 * Its elements are made once per run and then only filled: while the dial moves, the selected round may be decided
 * otherwise in every frame, and making some hundred elements anew takes longer than a frame.
 */
class Inspector {
  /** `act` is a button beside where the token stands, `note` a line above it. */
  constructor({ name = "The selected token", act = null, note = null } = {}) {
    Object.assign(this, { act, note, said: null });
    this.element = h("aside", { class: "inspector", "aria-label": name, tabindex: "0" });
  }

  /** Make the elements for a run; `show` fills them, with evidence of the pool that the run's rounds are of. */
  open(run, pool, evidence) {
    Object.assign(this, { run, pool, evidence, judges: null });
    this.token = quote();
    this.pill = h("span");
    this.where = h("p", { class: "where" });
    this.rejected = quote();
    this.instead = h("p", { class: "aside" }, "Numbers below are for ", this.rejected.element, ", which the rule rejected here.");
    this.facts = FACTS.map(([name, tip]) => ({ name, value: h("dd"), change: h("dd", { class: "change" }), tip }));
    this.flip = h("p", { class: "flip" });
    this.target = new LogitTable("Target", run.rows.top);
    this.drafter = new LogitTable("Drafter", run.nodes.top);
    this.undrafted = h("p", { class: "aside" });
    this.judged = quote();
    this.lines = pool.rules.map((rule) => ({ rule, said: null, at: h("div"), verdict: h("div") }));
    const names = grouped(pool.rules.map((rule) => h("th", { scope: "row", "data-tip": rule.formula }, rule.title)));
    const lines = this.lines.map(({ rule, at, verdict }, i) => h("tr", { class: rule.name === run.rule.name ? "own" : null },
      names[i], h("td", { class: rule.follows ? "at follows" : "at" }, at), h("td", {}, verdict)));
    this.verdicts = h("div", { class: "verdicts" }, h("h2", {}, "Every rule on ", this.judged.element), h("table", {}, h("tbody", {}, ...lines)));
    this.coming = h("p", { class: "aside" }, "What target and drafter thought of it is on its way …");
    this.laws = h("div", { class: "laws" }, this.target.element, this.drafter.element);
    this.list = h("dl", { class: "facts" }, ...grouped(this.facts.map(({ name, value, change, tip }) => h("div", { "data-tip": tip }, h("dt", {}, name), value, change))));
    this.extras = h("p", { class: "aside extras" });
    this.hint = h("p", { class: "empty" }, "Click a token, or walk through the text with the arrow keys, to see what target and drafter thought of it.");
    this.sheet = h("div", {},
      h("header", {}, this.note, h("div", { class: "headline" }, h("span", { class: "what" }, this.token.element), this.pill), h("div", { class: "place" }, this.where, this.act)),
      this.instead,
      this.list, this.extras, this.flip, this.coming, this.laws, this.undrafted, this.verdicts);
    this.element.replaceChildren(this.hint, this.sheet);
  }

  /** Take on other rounds of the same run. */
  adopt(run) {
    this.run = run;
  }

  show(reading, slot) {
    const { run } = this;
    this.hint.hidden = slot !== null;
    this.sheet.hidden = slot === null;
    this.said = null;
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
    this.flip.hidden = node < 0;
    if (node >= 0) say(this.flip, flipping(run, node));
    this.undrafted.hidden = node >= 0;
    say(this.undrafted, `Nothing was drafted here, so there is nothing to judge: ${run.branched[r] ? "a path of the tree was kept to its end" : "the whole block was kept"}.`);
    const found = this.evidence.of(this.pool, run, r);
    this.coming.hidden = found !== null;
    this.list.hidden = this.laws.hidden = this.extras.hidden = found === null;
    this.verdicts.hidden = node < 0 || found === null;
    if (found) this.prove(reading, found, row - run.slotAt[r], node < 0 ? -1 : node - run.nodeAt[r], own < 0 ? piece : -1);
  }

  /** What the evidence says: of a row and a node of a round, both counted from its first; `emitted` is the token written there, or -1. */
  prove(reading, { run, round }, ofRow, ofNode, emitted) {
    const row = run.slotAt[round] + ofRow;
    const node = ofNode < 0 ? -1 : run.nodeAt[round] + ofNode;
    const written = emitted < 0 || run.pieces === this.run.pieces ? emitted : run.pieces.ids.indexOf(this.run.pieces.ids[emitted]);
    this.weigh(reading, run, row, node);
    this.said.best = bestTokens(run, row);
    this.add(run, row, node);
    this.target.show(run, run.rows, row, node >= 0 ? run.nodes.token[node] : written, node, written);
    if (node >= 0) this.drafter.show(run, run.nodes, node, run.nodes.token[node], -1, -1);
    else this.drafter.blank();
    if (node >= 0) this.judge(reading, run, node);
  }

  title(reading, slot, piece, outcome, r, own) {
    const { run } = this;
    const index = reading.textIndex(slot);
    const where = [index === null ? "not in the text" : `token ${whole(index + 1)}`, `round ${whole(r + 1)}`];
    if (own >= 0) where.push(...placeOf(run, r, own));
    this.token.show(run, piece);
    this.outcome = outcome;
    this.pill.className = `pill t ${NAMES[outcome]}`;
    say(this.pill, NAMES[outcome]);
    say(this.where, `${where.join(" · ")} · id ${run.pieces.ids[piece]}`);
  }

  /** The numbers of a row, and of a node where one was judged there. */
  weigh(reading, { rows, nodes }, row, node) {
    const z = (i) => (i < rows.top ? rows.top_logit[row * rows.top + i] : NaN);
    const values = [short(z(0)), short(z(1)), short(rows.ratio[row]), short(rows.margin[row]), `${short(rows.entropy[row])} nats`];
    if (node < 0) values.push(null, short(chanceOf(rows, reading.dial, row)), null, null, null);
    else values.push(whole(nodes.rank[node]), short(nodes.p[node]), short(besideBest(this.run, nodes.p[node], nodes.z[node] - z(0))), short(nodes.q[node]), short(nodes.coin[node]));
    const p = node < 0 ? chanceOf(rows, reading.dial, row) : nodes.p[node];
    this.said = { outcome: this.outcome, numbers: { ratio: rows.ratio[row], margin: rows.margin[row], entropy: rows.entropy[row], "p(x)": p } };
    this.facts.forEach(({ value }, i) => {
      value.parentElement.hidden = values[i] === null;
      say(value, values[i] ?? "");
    });
  }

  /** Evidence that the run's file holds and this version does not know: of the row, and of a node where one was judged there. */
  add({ rows, nodes }, row, node) {
    const of = ({ extras }, at) => (at < 0 ? [] : extras.map(({ name, values }) => `${name} ${short(values[at])}`));
    const words = [...of(nodes, node), ...of(rows, row)];
    this.extras.hidden = !words.length;
    say(this.extras, `Also in its file: ${words.join(" · ")}`);
  }

  /** What every rule says: those that share the run's dial where the hand holds it, the others at their defaults. */
  judge(reading, run, node) {
    this.judged.show(run, run.nodes.token[node]);
    if (this.judges !== run) {
      this.judges = run;
      for (const line of this.lines) line.said = run.rules.find(({ name }) => name === line.rule.name) ?? null;
    }
    for (const { rule, said, at, verdict } of this.lines) {
      const dial = rule.follows ? reading.dial : rule.default ?? NaN;
      const unsaid = said === null; // the rule lacks something here
      const keeps = !unsaid && keepsAt(said, node, dial);
      say(at, rule.symbol === null ? "" : `${rule.symbol} ${dialText(dial)}${rule.follows ? "" : " (default)"}`);
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
  ["p(x)/p(v1)", "How likely the target finds it beside its best token; a kept token far below .2 is known to do harm."],
  ["q(x)", "The drafter's probability of it, likewise."],
  ["coin", "The acceptance coin u in [0, 1); rejection sampling keeps the token if u ≤ p/q, of siblings what those refused before leave of both."],
];

/** The vocabulary's ids of a row's best tokens. */
function bestTokens({ rows, pieces }, row) {
  return Array.from(rows.top_token.subarray(row * rows.top, row * rows.top + rows.top), (piece) => pieces.ids[piece]);
}

/** Where a drafted token stands in its block, or in its tree. */
export function placeOf(run, r, node) {
  const depth = run.nodes.depth[node], count = run.count[r];
  if (!run.branched[r]) return [`draft ${depth} of ${count}`];
  const row = run.judge[node], first = run.childAt[row], siblings = run.childAt[row + 1] - first;
  const among = siblings > 1 ? [`sibling ${run.child.indexOf(node, first) - first + 1} of ${siblings}`] : [];
  return [`depth ${depth}`, `node ${node - run.nodeAt[r] + 1} of ${count}`, ...among];
}

/** p(x)/p(v1), of raw logits that lie `margin` apart: no matter what else the law leaves out. */
export function besideBest(run, p, margin) {
  return p === 0 ? 0 : Math.exp(margin / (run.about.temperature || 1));
}

function flipping(run, node) {
  const at = run.nodes.breakpoint[node];
  const from = run.nodes.gap[node];
  const keep = run.nodes.keep[node];
  if (!run.dial || Number.isNaN(at)) return `No breakpoint: ${keep & 2 ? "kept" : "rejected"} ${run.dial && !run.dial.cuts ? `at every ${run.dial.symbol}` : "by this rule"}.`;
  if (!Number.isNaN(from)) return `Gap from ${run.dial.symbol} = ${short(from)} to ${short(at)}: rejected there, kept below it and from its end on.`;
  const [below, above] = keep & 1 ? ["kept", "rejected"] : ["rejected", "kept"];
  return `Breakpoint ${run.dial.symbol} = ${short(at)}: ${below} below it, ${above} from it on.`;
}
