// Where the dial leads: the reading for each of its values. With a dial map that is the text which the value really
// generates; outside the map it is the recorded text, judged block by block. Touches no document.

/** The rounds of a pool that a path passes through, as a run of their own; its evidence stays in the pool. */
export function along(pool, path) {
  if (path.length === pool.rounds) return Object.assign(pool, { poolSlot: null });
  const rounds = path.length;
  const ranges = rangesOf(path);
  const count = copied(pool.count, ranges, rounds);
  const nodeAt = new Int32Array(rounds + 1);
  for (let r = 0; r < rounds; r++) nodeAt[r + 1] = nodeAt[r] + count[r];
  const slots = nodeAt[rounds] + rounds; // rows are numbered as slots are
  const within = (starts) => ranges.map(([from, to]) => [starts[from], starts[to]]);
  const ofNodes = within(pool.nodeAt), ofSlots = within(pool.slotAt);
  const run = {
    ...pool,
    rounds,
    count,
    nodeAt,
    slots,
    slotAt: nodeAt.map((at, r) => at + r),
    limit: copied(pool.limit, ranges, rounds),
    forced: copied(pool.forced, ranges, rounds),
    nodes: gathered(pool.nodes, ofNodes, nodeAt[rounds], pool.judge.length),
    rows: gathered(pool.rows, ofSlots, slots, pool.slots),
    rules: [],
    poolSlot: numbered(ofSlots, slots),
  };
  return Object.assign(run, family(run), { branched: branching(run) });
}

/** What a path passes through in the pool's own order, as ranges of rounds: of many rounds few, and those are copied at once. */
function rangesOf(path) {
  const ranges = [];
  for (const r of path) {
    if (ranges.at(-1)?.[1] === r) ranges.at(-1)[1]++;
    else ranges.push([r, r + 1]);
  }
  return ranges;
}

/** The lines of every column in these ranges, lists of candidates excepted. */
function gathered(columns, ranges, length, lines) {
  const own = Object.entries(columns).filter(([, column]) => !ArrayBuffer.isView(column) || column.length === lines);
  return Object.fromEntries(own.map(([name, column]) => [name, ArrayBuffer.isView(column) ? copied(column, ranges, length) : column]));
}

function copied(column, ranges, length) {
  const found = new column.constructor(length);
  let at = 0;
  for (const [from, to] of ranges) {
    found.set(column.subarray(from, to), at);
    at += to - from;
  }
  return found;
}

function numbered(ranges, length) {
  const found = new Int32Array(length);
  let at = 0;
  for (const [from, to] of ranges) for (let i = from; i < to; i++) found[at++] = i;
  return found;
}

export class Trajectories {
  constructor(pool) {
    this.pool = pool;
    this.paths = pool.map ? paths(pool.map) : [];
    this.readings = new Array(this.paths.length);
    const strictAt = pool.dial ? this.segment(pool.dial.strict) : -1;
    this.strict = strictAt < 0 ? null : (this.readings[strictAt] = this.walked(strictAt, ITSELF)); // null where the map does not know the strict end's text
    this.own = new Reading(along(pool, pool.recorded), { strict: this.strict });
  }

  /** The reading for a dial value; the same one for all values of a segment. */
  at(dial) {
    const segment = dial === null ? -1 : this.segment(dial);
    return segment < 0 ? this.own : this.exact(segment);
  }

  /** The segment that holds a dial value and whose text is known to its end, or -1. */
  segment(dial) {
    const { map } = this.pool;
    if (!map) return -1;
    const { low, high, complete } = map;
    for (let s = low.length - 1; s >= 0; s--) {
      if (dial >= low[s]) return complete[s] && (dial < high[s] || s === low.length - 1 && dial <= high[s]) ? s : -1;
    }
    return -1;
  }

  exact(segment) {
    return (this.readings[segment] ??= this.walked(segment, this.strict));
  }

  walked(segment, strict) {
    return new Reading(along(this.pool, this.paths[segment]), { at: this.pool.map.low[segment], strict });
  }

  /** What a strip of segments shows: for each its ends, tokens per round, and whether it is complete. */
  strip() {
    const { map } = this.pool;
    return this.paths.map((path, s) => ({
      low: map.low[s],
      high: map.high[s],
      complete: Boolean(map.complete[s]),
      rounds: path.length,
      tau: map.complete[s] ? map.tau[s] : NaN,
    }));
  }
}

function paths({ lengths, rounds }) {
  let first = 0;
  return Array.from(lengths, (length) => rounds.subarray(first, (first += length)));
}

/** The slot of one reading's run in another's, or null where that does not pass through the round. */
export function carried(slot, from, to) {
  if (slot === null || from === to) return slot;
  const inPool = from.poolSlot ? from.poolSlot[slot] : slot;
  const found = to.poolSlot ? to.poolSlot.indexOf(inPool) : inPool < to.slots ? inPool : -1;
  return found < 0 ? null : found;
}

/** True if a round of one run is a round of another, of the same pool. */
function sameRound(run, r, other, s) {
  const at = ({ poolSlot, slotAt }, round) => (poolSlot ? poolSlot[slotAt[round]] : slotAt[round]);
  return at(run, r) === at(other, s);
}
