// Where the dial leads: the reading for each of its values. With a dial map that is the text which the value really
// generates; outside the map it is the recorded text, judged block by block. Touches no document.

/** The rounds of a pool that a path passes through, as a run of their own; its evidence stays in the pool. */
export function along(pool, path) {
  if (path.length === pool.rounds) return Object.assign(pool, { poolSlot: null });
  const rounds = path.length;
  const count = Int32Array.from(path, (r) => pool.count[r]);
  const nodeAt = new Int32Array(rounds + 1);
  for (let r = 0; r < rounds; r++) nodeAt[r + 1] = nodeAt[r] + count[r];
  const nodeIndex = new Int32Array(nodeAt[rounds]);
  const poolSlot = new Int32Array(nodeAt[rounds] + rounds); // rows are numbered as slots are
  path.forEach((from, r) => {
    for (let i = 0; i < count[r]; i++) nodeIndex[nodeAt[r] + i] = pool.nodeAt[from] + i;
    for (let i = 0; i <= count[r]; i++) poolSlot[nodeAt[r] + r + i] = pool.slotAt[from] + i;
  });
  const run = {
    ...pool,
    rounds,
    count,
    nodeAt,
    slots: poolSlot.length,
    slotAt: nodeAt.map((at, r) => at + r),
    limit: Int32Array.from(path, (r) => pool.limit[r]),
    forced: Uint16Array.from(path, (r) => pool.forced[r]),
    nodes: gathered(pool.nodes, nodeIndex, pool.judge.length),
    rows: gathered(pool.rows, poolSlot, pool.slots),
    rules: [],
    poolSlot,
  };
  return Object.assign(run, family(run), { branched: branching(run) });
}

/** The lines of every column that `index` names, lists of candidates excepted. */
function gathered(columns, index, lines) {
  const own = Object.entries(columns).filter(([, column]) => !ArrayBuffer.isView(column) || column.length === lines);
  return Object.fromEntries(own.map(([name, column]) => {
    if (!ArrayBuffer.isView(column)) return [name, column];
    const found = new column.constructor(index.length);
    for (let i = 0; i < index.length; i++) found[i] = column[index[i]];
    return [name, found];
  }));
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
