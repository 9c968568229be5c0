// What every block comes to at a dial value. It knows no rule: Python sends every verdict as a breakpoint, and as where
// a gap below it begins; `decide` compares the dial with them, walks down the kept nodes as the rule's policy chooses among
// siblings and cuts the block, exactly as `rules.settle` and `analysis.metrics` do. Touches no document.

export const MATCHED = 0, RELAXED = 1, REJECTED = 2, DISCARDED = 3, CORRECTED = 4, BONUS = 5, NOTHING = 6;
export const NAMES = ["matched", "relaxed", "rejected", "discarded", "corrected", "bonus", "not emitted"];

/** Room for what `decide` finds. */
export function emptyDecisions(run) {
  return {
    outcome: new Uint8Array(run.judge.length), // of each node
    emission: new Uint8Array(run.rounds), // CORRECTED, BONUS or NOTHING
    stop: new Int32Array(run.rounds), // the row at which the round stopped
    emitted: new Int32Array(run.rounds), // the token of that row, whether or not the text ended before it
    length: new Int32Array(run.rounds), // tokens that reached the text
    tokens: new Int32Array(run.slots), // they themselves, from slotAt[r]
    totals: { tokens: 0, counts: new Int32Array(7) },
  };
}

/** What every recorded block comes to at this dial value, written into `out`. A null dial is a rule without one. */
export function decide(run, dial, out) {
  out.totals.counts.fill(0);
  out.totals.tokens = 0;
  for (let r = 0; r < run.rounds; r++) {
    decideRound(run, dial, r, out);
    tally(run, out, r, 1);
  }
  return out;
}

/** The same for some rounds only, where `out` holds what all the others come to. */
export function decideAgain(run, dial, rounds, out) {
  for (const r of rounds) {
    tally(run, out, r, -1);
    decideRound(run, dial, r, out);
    tally(run, out, r, 1);
  }
  return out;
}

function decideRound(run, dial, r, out) {
  const { nodes, rows, childAt, child, nodeAt, slotAt } = run;
  const { keep, token, stops } = nodes;
  const { outcome, tokens } = out;
  const ends = run.pieces.ends;
  const at = dial === null ? NaN : dial; // compares false with everything, and such a rule has no breakpoints
  const first = slotAt[r];
  const limit = run.limit[r];
  const merit = meritOf(run, r, at);
  let row = first, length = 0, open = limit > 0;
  for (let i = nodeAt[r]; i < nodeAt[r + 1]; i++) outcome[i] = DISCARDED;
  for (;;) {
    let kept = -1;
    for (let c = childAt[row]; c < childAt[row + 1] && !(kept >= 0 && !merit); c++) {
      if (keepsAt(nodes, child[c], at) && (kept < 0 || merit(child[c]) > merit(kept))) kept = child[c];
    }
    if (kept < 0) break;
    if (open) {
      outcome[kept] = keep[kept] & 4 ? MATCHED : RELAXED;
      tokens[first + length++] = token[kept];
      open = length < limit && !ends[token[kept]] && !stops?.[kept];
    }
    row = first + kept - nodeAt[r] + 1;
  }
  const judged = childAt[row] < childAt[row + 1];
  const emitted = at < rows.breakpoint[row] ? rows.emit_below[row] : rows.emit_above[row];
  if (open) {
    tokens[first + length++] = emitted;
    if (judged) outcome[child[childAt[row]]] = REJECTED;
  }
  out.emission[r] = !open ? NOTHING : judged ? CORRECTED : BONUS;
  out.stop[r] = row;
  out.emitted[r] = emitted;
  out.length[r] = length;
}

/** What the policy prefers a kept node for, the first of equals; null where the first kept sibling is gone on with. */
function meritOf(run, r, at) {
  const { nodes, policy, branched } = run;
  if (policy === "draft-order" || !branched[r]) return null;
  if (policy === "strict-first") return (node) => nodes.keep[node] & 4;
  const reach = reaches(run, r, at);
  return (node) => reach[node - run.nodeAt[r]];
}

/** For each node of a round the tokens of the longest kept path that begins with it; 0 where it is not kept itself. */
function reaches({ nodes, nodeAt }, r, at) {
  const first = nodeAt[r];
  const reach = new Int32Array(nodeAt[r + 1] - first); // of each node at first what is kept below it
  for (let i = reach.length - 1; i >= 0; i--) {
    reach[i] = keepsAt(nodes, first + i, at) ? reach[i] + 1 : 0;
    const above = nodes.parent[first + i];
    if (above >= 0) reach[above] = Math.max(reach[above], reach[i]);
  }
  return reach;
}

/** Add a round to the totals, or with a `sign` of -1 take it out of them. */
function tally(run, { outcome, emission, length, totals }, r, sign) {
  totals.tokens += sign * length[r];
  totals.counts[emission[r]] += sign;
  for (let i = run.nodeAt[r]; i < run.nodeAt[r + 1]; i++) totals.counts[outcome[i]] += sign;
}

/** Where two decisions of the same rounds part in the text: the round, the index in the text, and the two tokens there; null where they agree. */
export function parting(run, left, right) {
  let written = 0;
  for (let r = 0; r < run.rounds; r++) {
    const first = run.slotAt[r];
    const shared = Math.min(left.length[r], right.length[r]);
    let i = 0;
    while (i < shared && left.tokens[first + i] === right.tokens[first + i]) i++;
    if (i < shared || left.length[r] !== right.length[r]) {
      const read = (side) => (i < side.length[r] ? side.tokens[first + i] : -1);
      return { round: r, index: written + i, left: read(left), right: read(right) };
    }
    written += left.length[r];
  }
  return null;
}

/** Where two texts part, whatever rounds they were written in; as `parting`, with the left text's round. */
export function textsPart(run, left, rightRun, right) {
  const other = flat(rightRun, right);
  let written = 0;
  for (let r = 0; r < run.rounds; r++) {
    for (let i = 0; i < left.length[r]; i++, written++) {
      const ours = left.tokens[run.slotAt[r] + i];
      if (ours !== other[written]) return { round: r, index: written, left: ours, right: other[written] ?? -1 };
    }
  }
  return written < other.length ? { round: run.rounds - 1, index: written, left: -1, right: other[written] } : null;
}

function flat(run, decisions) {
  const text = [];
  for (let r = 0; r < run.rounds; r++) {
    for (let i = 0; i < decisions.length[r]; i++) text.push(decisions.tokens[run.slotAt[r] + i]);
  }
  return text;
}

/** True if some block is decided otherwise, whether or not its text shows it. */
export function decidedOtherwise(run, left, right) {
  for (let r = 0; r < run.rounds; r++) {
    if (left.stop[r] !== right.stop[r] || left.emitted[r] !== right.emitted[r]) return true;
  }
  return false;
}

function tokenOf(run, decisions, slot) {
  const node = nodeOf(run, slot);
  return node < 0 ? decisions.emitted[roundOf(run, slot)] : run.nodes.token[node];
}

/** The slots of a round as they are read: the kept path, what was rejected and discarded, then what the target wrote. */
export function readingOrder(run, decisions, r) {
  const slots = Array.from({ length: run.count[r] }, (_, i) => run.slotAt[r] + i);
  const kept = (slot) => decisions.outcome[slot - r] === MATCHED || decisions.outcome[slot - r] === RELAXED;
  const rejected = (slot) => decisions.outcome[slot - r] === REJECTED;
  const rest = slots.filter((slot) => !kept(slot) && !rejected(slot) && !folded(run, decisions, r, slot));
  const emission = decisions.emission[r] === NOTHING ? [] : [run.slotAt[r + 1] - 1];
  return [...slots.filter(kept), ...slots.filter(rejected), ...rest, ...emission];
}

/** True of a tree's node that the text leaves out: neither on its path nor rejected where that stopped. */
function folded(run, decisions, r, slot) {
  const node = slot - r;
  if (!run.branched[r] || decisions.outcome[node] !== DISCARDED) return false;
  return decisions.emission[r] !== CORRECTED || run.judge[node] !== decisions.stop[r];
}
