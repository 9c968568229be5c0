// The run in numbers, and how numbers are written. Touches no document.

/**
 * The run in numbers, as `analysis.metrics.summary` defines them. `known` says that `strict` is the strict end's own
 * text, of `strictRun`, which is counted by itself; else it is the same blocks, multiplied to as many tokens.
 */
export function numbers(run, decisions, strict, strictRun = run, known = !run.dial) {
  const { tokens, counts } = decisions.totals;
  const drafted = run.judge.length;
  const kept = counts[MATCHED] + counts[RELAXED];
  const strictTokens = strict.totals.tokens;
  const reach = known || !strictTokens ? 1 : tokens / strictTokens;
  const strictRounds = reach * strictRun.rounds;
  const strictLost = strictRun.judge.length - strict.totals.counts[MATCHED] - strict.totals.counts[RELAXED];
  return {
    tokens,
    rounds: run.rounds,
    tau: tokens / run.rounds,
    drafted,
    kept,
    relaxed: counts[RELAXED],
    acceptance: kept / drafted,
    rolledBack: drafted - kept,
    strictExact: known,
    strictTokens,
    strictTau: strictTokens / strictRun.rounds,
    strictRounds,
    strictRolledBack: reach * strictLost,
    savedStrict: strictRounds - run.rounds,
    savedAutoregressive: tokens - run.rounds,
    sparedDrafts: reach * strictLost - (drafted - kept),
  };
}

const THIN = "\u202f"; // no line is broken at it

export function whole(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = String(Math.round(Math.abs(value)));
  return (Math.round(value) < 0 ? "−" : "") + digits.replace(/\B(?=(\d{3})+$)/g, THIN);
}

/** Three significant digits. */
export function short(value) {
  if (!Number.isFinite(value)) return value === Infinity ? "∞" : value === -Infinity ? "−∞" : "–";
  const size = Math.abs(value);
  if (size >= 999.5) return whole(value);
  if (size < 0.0005) return size === 0 ? "0" : value.toExponential(1).replace("-", "−");
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3).replace("-", "−");
}

/** A dial value with two to four decimals, as many as it needs. */
export function dialText(value) {
  const [units, decimals] = value.toFixed(4).split(".");
  return `${units}.${decimals.replace(/0{1,2}$/, "")}`;
}

function percent(value) {
  return Number.isFinite(value) ? `${short(100 * value)}${THIN}%` : "–";
}

function plural(count, noun, ending = "s") {
  return `${whole(count)} ${noun}${whole(count) === "1" ? "" : ending}`;
}
