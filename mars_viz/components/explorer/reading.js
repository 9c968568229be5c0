// A reading: a run's rounds as they stand at one dial value. It is the one piece of state that all views show; whoever
// swaps it shows other rounds. Touches no document.

const ITSELF = Symbol("the strict end's own text");

export class Reading {
  /**
   * Of recorded rounds, judged block by block wherever the dial stands; or, with `at`, of rounds that are walked at that
   * dial value and its neighbours. `strict` is the reading of the strict end's own text, this one itself where `at` is
   * the strict end; null where that text is not known: then these rounds are judged strictly instead.
   */
  constructor(run, { at = null, strict = null } = {}) {
    const decided = (dial) => decide(run, dial, emptyDecisions(run));
    this.run = run;
    this.exact = at !== null;
    this.dial = at ?? (run.dial ? run.dial.recorded : null);
    this.recorded = decided(this.dial);
    const known = strict === ITSELF ? this : strict;
    this.strictKnown = known !== null || !run.dial;
    this.strictRun = known?.run ?? run;
    this.strict = known?.recorded ?? decided(run.dial ? run.dial.strict : null);
    this.now = structuredClone(this.recorded);
    this.forced = run.forced.reduce((sum, count) => sum + count, 0);
    this.starts = new Int32Array(run.rounds + 1); // where each round begins in the text shown
  }

  /** Decide all at a dial value, and work out what the views say of it. */
  turn(dial) {
    const { run, now } = this;
    this.decide(dial);
    this.parted = run.dial && !this.exact ? parting(run, now, this.recorded) : null;
    this.local = run.dial && !this.exact ? decidedOtherwise(run, now, this.recorded) : false;
    this.fromStrict = !run.dial ? null : this.strictKnown ? textsPart(run, now, this.strictRun, this.strict) : parting(run, now, this.strict);
    this.values = numbers(run, now, this.strict, this.strictRun, this.strictKnown);
    this.counted = false;
    this.differs = this.fromStrict && this.fromStrict.left >= 0 ? this.slotOf(this.fromStrict) : null;
  }

  /** Only the rounds of which the dial has crossed a breakpoint. */
  decide(dial) {
    if (dial === this.dial) return;
    decideAgain(this.run, dial, (this.breakpoints ??= new BreakpointIndex(this.run)).between(this.dial, dial), this.now);
    this.dial = dial;
  }

  /** How the text shown ends, in parts as those of a sentence, as `analysis.metrics.ending` says it of a run. Null if there is no
   * text, or if it parts from the recorded text and is judged block by block. */
  ending() {
    const { run, now, parted, exact } = this, last = run.rounds - 1, { about, pieces } = run;
    if (last < 0 || parted) return null;
    const token = now.tokens[run.slotAt[last] + now.length[last] - 1];
    if (pieces.ends[token]) return ["ended with ", { token }, ` (id ${pieces.ids[token]})`];
    if (now.totals.tokens >= about.limit) return [`stopped at the limit of ${plural(about.limit, "token")}`];
    if (!exact && !about.finished) return [`cut short after ${plural(now.totals.tokens, "token")}`];
    return [about.stop.length === 1 ? `stopped at the stop string “${spoken(about.stop[0])}”` : "stopped at a stop string"];
  }

  /** The slot that wrote the token at an index of the text, which lies in this round. */
  slotOf({ round, index }) {
    this.count();
    const { run, now } = this;
    const wrote = (slot) => this.textIndex(slot) !== null;
    return readingOrder(run, now, round).filter(wrote)[index - this.starts[round]] ?? null;
  }

  /** The dial value nearest to the one asked for; null for a rule without a dial. */
  within(dial) {
    const range = this.run.dial;
    return range ? clamp(dial ?? range.recorded, range.low, range.high) : null;
  }

  /** The slot that a newcomer should look at first: a token that is only there because the rule is relaxed. */
  remarkable() {
    const { run, now } = this;
    const first = (outcome) => now.outcome.indexOf(outcome);
    const node = first(RELAXED) >= 0 ? first(RELAXED) : first(REJECTED);
    if (node < 0) return run.rounds ? 0 : null;
    let r = 0;
    while (run.nodeAt[r + 1] <= node) r++;
    return node + r;
  }

  count() {
    if (this.counted) return;
    for (let r = 0; r < this.run.rounds; r++) this.starts[r + 1] = this.starts[r] + this.now.length[r];
    this.counted = true;
  }

  /** The index in the text shown of what a slot wrote, or null. */
  textIndex(slot) {
    this.count();
    const { run, now } = this;
    const r = roundOf(run, slot);
    const node = nodeOf(run, slot);
    if (node < 0) return now.emission[r] === NOTHING ? null : this.starts[r] + now.length[r] - 1;
    if (now.outcome[node] !== MATCHED && now.outcome[node] !== RELAXED) return null;
    return this.starts[r] + run.nodes.depth[node] - 1;
  }

  /** Where each round begins among all tokens shown, drafts included, and at the end how many they are. */
  list() {
    const { run, now } = this;
    this.listed ??= new Int32Array(run.rounds + 1);
    for (let r = 0; r < run.rounds; r++) {
      const here = run.branched[r] ? readingOrder(run, now, r).length : run.count[r] + (now.emission[r] === NOTHING ? 0 : 1);
      this.listed[r + 1] = this.listed[r] + here;
    }
    return this.listed;
  }

  /** A slot in words, for who cannot see its looks. */
  label(slot) {
    const { run, now } = this;
    const node = nodeOf(run, slot);
    const r = roundOf(run, slot);
    const index = this.textIndex(slot);
    const row = node < 0 ? now.stop[r] : run.judge[node];
    const outcome = NAMES[node < 0 ? now.emission[r] : now.outcome[node]];
    return tokenLabel(index, run.pieces.text[tokenOf(run, now, slot)], outcome, run.rows.ratio[row]);
  }

  /** The target's probability of what a row emits. */
  chance(row) {
    return chanceOf(this.run.rows, this.dial, row);
  }
}

function chanceOf(rows, dial, row) {
  return dial !== null && dial < rows.breakpoint[row] ? rows.p_below[row] : rows.p_above[row];
}

/** The slot to which a key leads from the selected one, in reading order; undefined for a key that leads nowhere. */
function neighbour(run, reading, selected, key) {
  if (!run.rounds) return undefined;
  const order = (r) => readingOrder(run, reading.now, r);
  if (key === "Home") return order(0)[0];
  if (key === "End") return order(run.rounds - 1).at(-1);
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return undefined;
  if (selected === null) return order(0)[0];
  const r = roundOf(run, selected);
  const here = order(r);
  const at = here.indexOf(selected);
  if (key === "ArrowRight") return at + 1 < here.length ? here[at + 1] : order(Math.min(r + 1, run.rounds - 1)).at(r + 1 < run.rounds ? 0 : -1);
  if (key === "ArrowLeft") return at > 0 ? here[at - 1] : r > 0 ? order(r - 1).at(-1) : here[0];
  const other = order(clamp(r + (key === "ArrowDown" ? 1 : -1), 0, run.rounds - 1));
  return other[Math.min(Math.max(at, 0), other.length - 1)];
}
