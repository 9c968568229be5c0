// A run as the browser knows it: unpacked columns, and where the rounds, nodes and rows stand in them.
// Touches no document.

const ARRAYS = { uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array, float64: Float64Array };

/** A value with its arrays, which came beside it as one block of bytes. */
export function withArrays(value, bytes) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((item) => withArrays(item, bytes));
  if (!("at" in value)) return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withArrays(item, bytes)]));
  const Kind = ARRAYS[value.type];
  const from = bytes.byteOffset + value.at;
  return new Kind(bytes.buffer.slice(from, from + value.length * Kind.BYTES_PER_ELEMENT));
}

/** An array of the payload: itself, or as base64 where only JSON could be sent. */
function unpack(column) {
  if (ArrayBuffer.isView(column)) return column;
  return new ARRAYS[column.type](bytesOf(column.data).buffer);
}

/** What stands in a text as base64. */
function bytesOf(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function unpackAll(columns) {
  const isArray = (value) => value !== null && typeof value === "object" && "data" in value;
  return Object.fromEntries(Object.entries(columns).map(([name, value]) => [name, isArray(value) ? unpack(value) : value]));
}

/** Columns with breakpoints and gaps; those of a rule that has none are left out of the payload, and all where it is sent without evidence. */
function verdicts(columns) {
  const unpacked = unpackAll(columns);
  unpacked.gapped = Boolean(unpacked.gap);
  if (unpacked.keep) unpacked.breakpoint ??= nowhere(unpacked.keep.length);
  if (unpacked.keep) unpacked.gap ??= nowhere(unpacked.keep.length);
  return unpacked;
}

/** What a rule says of a node: below its breakpoint it is also kept where its gap has not begun. A NaN compares false with everything. */
export function keepsAt({ breakpoint, gap, keep }, node, dial) {
  return dial < breakpoint[node] ? keep[node] & 1 || dial < gap[node] : keep[node] & 2;
}

/** Columns of what rows emit; where it does not depend on the dial, one side is left out. */
function emissions(columns) {
  const unpacked = unpackAll(columns);
  unpacked.breakpoint ??= nowhere(unpacked.emit_above.length);
  unpacked.emit_below ??= unpacked.emit_above;
  unpacked.p_below ??= unpacked.p_above;
  return unpacked;
}

let none = new Float64Array(0);

/** No breakpoints; most rules have none to show, so they share them. */
function nowhere(length) {
  if (none.length < length) none = new Float64Array(length).fill(NaN);
  return none.subarray(0, length);
}

/** The payload with its arrays unpacked, and with the offsets and the children of every row worked out. */
export function readRun(payload) {
  const count = unpack(payload.rounds.nodes);
  const rounds = count.length;
  const nodeAt = new Int32Array(rounds + 1);
  for (let r = 0; r < rounds; r++) nodeAt[r + 1] = nodeAt[r] + count[r];
  const nodes = verdicts(payload.nodes);
  const rows = emissions(payload.rows);
  const { text, special, ends } = payload.pieces;
  const run = {
    id: payload.id,
    about: payload.run,
    rule: payload.rule,
    policy: payload.rule.policy, // which of several kept siblings is gone on with
    dial: payload.dial,
    rules: payload.rules.map(verdicts),
    pieces: { text, special: flags(text.length, special), ends: flags(text.length, ends), ids: unpack(payload.pieces.ids) },
    rounds,
    limit: unpack(payload.rounds.limit), // tokens that each may add; a node at which a stop string is complete has `stops`
    forced: unpack(payload.rounds.forced), // drafted runner-ups in each at which z1 is not above 0 and the rule is strict
    recorded: unpack(payload.recorded), // the path that was walked when the run was made
    map: payload.map && unpackAll(payload.map),
    window: payload.window ?? null, // rounds whose evidence comes together, where it does not come with the run
    count,
    nodeAt,
    slots: nodeAt[rounds] + rounds,
    slotAt: nodeAt.map((at, r) => at + r), // also the round's first row: a round has as many rows as slots
    nodes,
    rows,
  };
  return Object.assign(run, family(run), { branched: branching(run) });
}

function flags(length, indices) {
  const set = new Uint8Array(length);
  for (const index of indices) set[index] = 1;
  return set;
}

/** 1 for each round whose draft is a tree, not a chain. */
function branching({ rounds, count, nodeAt, nodes }) {
  return Uint8Array.from({ length: rounds }, (_, r) => {
    for (let i = 0; i < count[r]; i++) if (nodes.parent[nodeAt[r] + i] !== i - 1) return 1;
    return 0;
  });
}

/** The row that judges each node, and the nodes that each row judges: those of row w are child[childAt[w] … childAt[w + 1]). */
function family({ rounds, count, nodeAt, slotAt, slots, nodes }) {
  const judge = new Int32Array(nodes.token.length);
  const childAt = new Int32Array(slots + 1);
  for (let r = 0; r < rounds; r++) {
    for (let i = nodeAt[r]; i < nodeAt[r] + count[r]; i++) {
      judge[i] = slotAt[r] + nodes.parent[i] + 1;
      childAt[judge[i] + 1]++;
    }
  }
  for (let row = 0; row < slots; row++) childAt[row + 1] += childAt[row];
  const next = childAt.slice();
  const child = new Int32Array(judge.length);
  for (let i = 0; i < judge.length; i++) child[next[judge[i]]++] = i;
  return { judge, childAt, child };
}

export function roundOf(run, slot) {
  let low = 0, high = run.rounds - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (run.slotAt[middle] <= slot) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The node of a slot, or -1 for the slot of an emitted token. */
export function nodeOf(run, slot) {
  const r = roundOf(run, slot);
  return slot === run.slotAt[r + 1] - 1 ? -1 : slot - r;
}
