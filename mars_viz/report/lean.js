// Undoes lean.py: what the report says of the texts beside its first one, as the columns that the explorer takes.
// Touches no document.

const MOST_RECENT = 250, FAR_OFF = -128;

/** The payload with whole columns; as it is where it has them. */
function restored({ together, lean, ...payload }) {
  const rules = together ? separate(payload.rules, together) : payload.rules;
  if (!lean) return { ...payload, rules };
  const { nodes, rows } = payload;
  const rest = hung(payload, lean);
  const tokens = candidates(lean, rest, nodes.token);
  const [ours, theirs] = [law(lean.target, rest.before.length, rows.top), law(lean.drafter, rest.judge.length, nodes.top)];
  const z = beside(lean.z, lean.target.count, rest, nodes.token.subarray(lean.nodes), tokens.target, ours);
  const drafted = nodes.token.subarray(lean.nodes);
  const q = corrected(lean.q, chances(drafted, tokens.drafter, nodes.top, theirs));
  const p = corrected(lean.p, Float64Array.from(z, (logit, i) => Math.exp(logit - ours.logsumexp[rest.judge[i]])));
  const [first, second] = [0, 1].map((k) => Float64Array.from(rest.before, (_, row) => (k < lean.target.count ? ours.logits[row * rows.top + k] : NaN)));
  const sides = Object.fromEntries(["below", "above"].filter((side) => lean[side]).flatMap((side) => {
    const found = emitted(lean[side], rows.top, tokens.target, ours);
    return [[`emit_${side}`, found.token], [`p_${side}`, found.p]];
  }));
  return {
    ...payload,
    rules,
    nodes: behind(nodes, { p, z, q, coin: lean.coin, logsumexp: theirs.logsumexp, top_token: spread(tokens.drafter, lean.drafter.count, nodes.top, rest.judge.length), top_logit: theirs.logits }),
    rows: behind(rows, {
      ratio: corrected(lean.ratio, second.map((logit, i) => logit / first[i])),
      margin: corrected(lean.margin, first.map((logit, i) => logit - second[i])),
      entropy: lean.entropy, ...sides, logsumexp: ours.logsumexp,
      top_token: spread(tokens.target, lean.target.count, rows.top, rest.before.length), top_logit: ours.logits,
    }),
  };
}

/** What every rule says of every node, of what they say of it together. */
function separate(rules, { of, patterns }) {
  return rules.map((rule, i) => ({ ...rule, keep: Uint8Array.from(of, (pattern) => patterns[pattern * rules.length + i]) }));
}

/** For each node of the rest the row that judges it, and for each row the node whose token stands before it, or -1. */
function hung({ rounds, nodes, recorded }, lean) {
  const judge = new Int32Array(nodes.token.length - lean.nodes);
  const before = new Int32Array(judge.length + rounds.nodes.length - recorded.length).fill(-1);
  let node = 0;
  for (let r = recorded.length, row = 0; r < rounds.nodes.length; row += rounds.nodes[r++] + 1) {
    for (let i = 0; i < rounds.nodes[r]; i++, node++) {
      judge[node] = row + nodes.parent[lean.nodes + node] + 1;
      before[row + i + 1] = node;
    }
  }
  return { judge, before };
}

/** Both laws' tokens, [rows or nodes, told]: places in the list of those that were candidates lately, after one token. */
function candidates({ target, drafter, nodes }, { judge, before }, all) {
  const drafted = all.subarray(nodes), recent = new Map();
  const judged = Array.from(before, () => []);
  judge.forEach((row, node) => judged[row].push(node));
  const ours = taker(target, before.length), theirs = taker(drafter, judge.length);
  before.forEach((node, row) => {
    const token = node < 0 ? -1 : drafted[node];
    if (!recent.has(token)) recent.set(token, []);
    const known = recent.get(token);
    ours.take(row, known);
    for (const child of judged[row]) {
      const at = known.indexOf(drafted[child]);
      if (at >= 0) known.splice(at, 1);
      known.unshift(drafted[child]);
      theirs.take(child, known);
    }
    known.length = Math.min(known.length, MOST_RECENT);
  });
  return { target: ours.tokens, drafter: theirs.tokens };
}

function taker({ count, place, new: fresh }, size) {
  const tokens = new Int32Array(size * count);
  let next = 0;
  const take = (row, known) => {
    for (let k = 0; k < count; k++) {
      const at = place[k][row];
      const token = at ? known.splice(at - 1 + k, 1)[0] : fresh[next++];
      known.splice(k, 0, token);
      tokens[row * count + k] = token;
    }
  };
  return { tokens, take };
}

function law({ count, level, gaps, odd, as_is: asIs }, size, width) {
  const logits = new Float32Array(size * width).fill(NaN), logsumexp = new Float32Array(size).fill(NaN);
  if (!count) return { logits, logsumexp };
  for (let i = 0, next = 0, strange = 0; i < size; i++) {
    if (i === odd[strange]) {
      const from = strange++ * (count + 1);
      logits.set(asIs.subarray(from, from + count), i * width);
      logsumexp[i] = asIs[from + count];
      continue;
    }
    let at = (logsumexp[i] = level[next]);
    for (let k = 0; k < count; k++) logits[i * width + k] = at -= gaps[k][next];
    next++;
  }
  return { logits, logsumexp };
}

/** The target's logit of each drafted token: a candidate's, or one that was sent for it. */
function beside({ code, odd, as_is: asIs }, count, { judge }, drafted, tokens, { logits }) {
  const width = judge.length ? logits.length / (tokens.length / count) : 0;
  const sent = code.slice();
  odd.forEach((at, i) => (sent[at] = asIs[i]));
  let next = 0;
  return Float32Array.from(drafted, (token, node) => {
    const from = judge[node] * count;
    for (let k = 0; k < count; k++) if (tokens[from + k] === token) return logits[judge[node] * width + k];
    return count ? sent[next++] : NaN;
  });
}

function emitted({ place, new: fresh, p }, width, tokens, law) {
  const count = place.length ? tokens.length / place.length : 0;
  let next = 0;
  const token = Int32Array.from(place, (at, row) => (at ? tokens[row * count + at - 1] : fresh[next++]));
  return { token, p: corrected(p, chances(token, tokens, width, law)) };
}

/** How likely a law finds a token of each row, or NaN. */
function chances(wanted, tokens, width, { logits, logsumexp }) {
  const count = wanted.length ? tokens.length / wanted.length : 0;
  return Float64Array.from(wanted, (token, row) => {
    for (let k = 0; k < count; k++) if (tokens[row * count + k] === token) return Math.exp(logits[row * width + k] - logsumexp[row]);
    return NaN;
  });
}

/** Numbers as shown, of guesses and of what these are off by in units of the last digit. */
function corrected({ off, else: others }, guesses) {
  let next = 0;
  return Float32Array.from(off, (units, i) => {
    if (units === FAR_OFF) return others[next++];
    const exponent = lastDigit(Math.abs(guesses[i]));
    return scaled(evenly(guesses[i] / 10 ** exponent) + units, exponent);
  });
}

function lastDigit(size) {
  if (size >= 0.0005) return size >= 99.95 ? 0 : size >= 9.995 ? -1 : size >= 0.9995 ? -2 : -3;
  return size > 0 ? Math.max(Math.floor(Math.log10(size)) - 1, -120) : 0;
}

/** The nearest whole number, the even one of two. */
function evenly(value) {
  const nearest = Math.round(value);
  return nearest - value === 0.5 && nearest % 2 ? nearest - 1 : nearest;
}

function spread(tokens, count, width, size) {
  const wide = new Int32Array(size * width);
  tokens.forEach((token, i) => (wide[Math.floor(i / count) * width + (i % count)] = token));
  return wide;
}

/** The columns with what follows their first part. */
function behind(columns, more) {
  const joined = Object.entries(more).map(([name, rest]) => {
    const whole = columns[name], Kind = whole.constructor;
    const all = new Kind(whole.length + rest.length);
    all.set(whole);
    all.set(rest, whole.length);
    return [name, all];
  });
  return { ...columns, ...Object.fromEntries(joined) };
}
