// The explorer in the browser: shows a run's tokens, and what its rule decides of them wherever the dial stands.
//
// It knows no rule. Python sends every verdict as a breakpoint; `decide` compares the dial with it, walks down the
// kept nodes and cuts the block, exactly as `rules.settle` and `analysis.metrics` do. Token text is data: it only ever
// becomes a text node. The first three sections touch no document, so a test can run them by themselves.

// ------------------------------------------------------------------------------------------------ 1. reading a run

const ARRAYS = { uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array, float64: Float64Array };

function unpack({ type, data }) {
  const binary = atob(data);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new ARRAYS[type](bytes.buffer);
}

function unpackAll(columns) {
  const isArray = (value) => value !== null && typeof value === "object" && "data" in value;
  return Object.fromEntries(Object.entries(columns).map(([name, value]) => [name, isArray(value) ? unpack(value) : value]));
}

/** Columns with breakpoints; those of a rule that never flips are left out of the payload. */
function verdicts(columns) {
  const unpacked = unpackAll(columns);
  unpacked.breakpoint ??= new Float64Array(unpacked.keep.length).fill(NaN);
  return unpacked;
}

/** The payload with its arrays unpacked, and with the offsets and the children of every row worked out. */
export function readRun(payload) {
  const count = unpack(payload.rounds.nodes);
  const rounds = count.length;
  const nodeAt = new Int32Array(rounds + 1);
  for (let r = 0; r < rounds; r++) nodeAt[r + 1] = nodeAt[r] + count[r];
  const nodes = verdicts(payload.nodes);
  const rows = unpackAll(payload.rows);
  const { text, special, ends } = payload.pieces;
  const run = {
    id: payload.id,
    about: payload.run,
    rule: payload.rule,
    dial: payload.dial,
    rules: payload.rules.map(verdicts),
    pieces: { text, special: flags(text.length, special), ends: flags(text.length, ends), ids: unpack(payload.pieces.ids) },
    rounds,
    lastLimit: payload.rounds.last_limit,
    count,
    nodeAt,
    slots: nodeAt[rounds] + rounds,
    slotAt: nodeAt.map((at, r) => at + r), // also the round's first row: a round has as many rows as slots
    nodes,
    rows,
  };
  return Object.assign(run, family(run));
}

function flags(length, indices) {
  const set = new Uint8Array(length);
  for (const index of indices) set[index] = 1;
  return set;
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

// --------------------------------------------------------------------------------------------------- 2. deciding

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
  const { nodes, rows, childAt, child, nodeAt, slotAt, count } = run;
  const { breakpoint, keep, token } = nodes;
  const { outcome, tokens, totals } = out;
  const ends = run.pieces.ends;
  const at = dial === null ? NaN : dial; // compares false with everything, and such a rule has no breakpoints
  outcome.fill(DISCARDED);
  totals.counts.fill(0);
  totals.tokens = 0;
  for (let r = 0; r < run.rounds; r++) {
    const first = slotAt[r];
    const limit = r === run.rounds - 1 ? run.lastLimit : Infinity;
    let row = first, length = 0, open = limit > 0;
    for (;;) {
      let kept = -1;
      for (let c = childAt[row]; c < childAt[row + 1]; c++) {
        if (at < breakpoint[child[c]] ? keep[child[c]] & 1 : keep[child[c]] & 2) {
          kept = child[c];
          break;
        }
      }
      if (kept < 0) break;
      if (open) {
        outcome[kept] = keep[kept] & 4 ? MATCHED : RELAXED;
        tokens[first + length++] = token[kept];
        open = length < limit && !ends[token[kept]];
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
    totals.tokens += length;
    totals.counts[out.emission[r]]++;
    for (let i = nodeAt[r]; i < nodeAt[r] + count[r]; i++) totals.counts[outcome[i]]++;
  }
  return out;
}

/** Where two decisions' texts part: the round, the index in the text, and the two tokens there; null where they agree. */
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

/** True if some block is decided otherwise, whether or not its text shows it. */
export function decidedOtherwise(run, left, right) {
  for (let r = 0; r < run.rounds; r++) {
    if (left.stop[r] !== right.stop[r] || left.emitted[r] !== right.emitted[r]) return true;
  }
  return false;
}

// --------------------------------------------------------------------------------------- 3. numbers and their words

/** The run in numbers, as `analysis.metrics.summary` defines them. */
export function numbers(run, decisions, strict) {
  const { tokens, counts } = decisions.totals;
  const drafted = run.judge.length;
  const kept = counts[MATCHED] + counts[RELAXED];
  const strictTau = strict.totals.tokens / run.rounds;
  return {
    tokens,
    rounds: run.rounds,
    tau: tokens / run.rounds,
    drafted,
    kept,
    relaxed: counts[RELAXED],
    acceptance: kept / drafted,
    rolledBack: drafted - kept,
    strictRounds: tokens / strictTau,
    savedStrict: run.rounds ? tokens / strictTau - run.rounds : 0,
    savedAutoregressive: tokens - run.rounds,
    /** What strict would have rolled back on the way to as many tokens, less what was. */
    sparedDrafts: ((drafted - strict.totals.counts[MATCHED] - strict.totals.counts[RELAXED]) * tokens) / strict.totals.tokens - (drafted - kept),
  };
}

const THIN = "\u2009";

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

function times(count) {
  return whole(count) === "1" ? "once" : `${whole(count)} times`;
}

function plural(count, noun) {
  return `${whole(count)} ${noun}${whole(count) === "1" ? "" : "s"}`;
}

/** The sentence above the numbers, in parts: strings, and `{ token }` for a token's text. */
export function sentence(run, dial, values, fromStrict, fromRecorded) {
  if (!run.rounds) return ["This run has no rounds: nothing was decoded."];
  const be = (count) => (fromRecorded ? (count === 1 ? "is" : "are") : count === 1 ? "was" : "were");
  const away = `${plural(values.rolledBack, "drafted token")} ${be(values.rolledBack)} thrown away`;
  if (!run.dial) {
    return [
      `${run.rule.title} has no dial: the target ran ${times(values.rounds)} instead of ${whole(values.tokens)} for `,
      `${plural(values.tokens, "token")}, and ${away}.`,
    ];
  }
  const at = `At ${run.dial.symbol} = ${dialText(dial)}`;
  const ran = fromRecorded
    ? `${at}, judged on the blocks recorded at ${dialText(run.dial.recorded)}, the target runs ${times(values.rounds)}`
    : `${at} the target ran ${times(values.rounds)}`;
  if (!fromStrict) return [`${ran} for ${plural(values.tokens, "token")}, as the strict rule does, and ${away}.`];
  const spared = Math.round(values.sparedDrafts);
  const drafts = spared ? plural(Math.abs(spared), `${spared < 0 ? "more" : "fewer"} drafted token`) : "as many drafted tokens";
  const thrown = `${drafts} ${be(Math.abs(spared))} thrown away`;
  const differs = [`, and the text first differs from strict at token ${whole(fromStrict.index + 1)}`];
  if (fromStrict.left >= 0 && fromStrict.right >= 0) {
    differs.push(" (", { token: fromStrict.left }, " instead of ", { token: fromStrict.right }, ")");
  }
  const often = whole(values.strictRounds) === whole(values.rounds)
    ? ", about as often as the strict rule would" : ` instead of about ${whole(values.strictRounds)}`;
  return [`${ran}${often}, ${thrown}`, ...differs, "."];
}

// ------------------------------------------------------------------------------------------------ 4. small helpers

/** An element; attributes by name, `class` and listeners (`onclick`) included, then its children. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function say(element, text) {
  if (element.firstChild?.nodeType === 3 && element.childNodes.length === 1) {
    if (element.firstChild.data !== text) element.firstChild.data = text;
  } else element.textContent = text;
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

const DIRECTED = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const ORDINARY = /^ ?[^\s\p{C}\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]+$/u;
const UNSEEN = /^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u3164\ufe0f]*$/u;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/u;

/** Fill an element with a token's text as it is; marks for what cannot be seen come from CSS and are not copied. */
function fill(element, text) {
  const ordinary = ORDINARY.test(text);
  element.kind = [ordinary && text[0] === " " && " lead", text.includes("\n") && " broken", DIRECTED.test(text) && " bidi"].filter(Boolean).join("");
  if (ordinary) element.textContent = text;
  else element.replaceChildren(...spelled(text));
  return element;
}

function spelled(text) {
  if (text === "") return [h("i", { class: "w u", "data-u": "empty" })];
  const parts = [];
  const all = UNSEEN.test(text);
  for (const char of text) {
    const mark = char === " " ? "s" : char === "\n" ? "n" : char === "\t" ? "tab" : CONTROL.test(char) || all ? "u" : "";
    if (mark === "u") parts.push(h("i", { class: "w u", "data-u": codepoint(char) }, char));
    else if (mark) parts.push(h("i", { class: `w ${mark}` }, char));
    else if (typeof parts.at(-1) === "string") parts[parts.length - 1] += char;
    else parts.push(char);
  }
  return parts;
}

function codepoint(char) {
  return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A token's text for an accessible name: what cannot be seen is spelled out, and it is never very long. */
function spoken(text) {
  const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
  return Array.from(shown, (char) => (char === "\n" ? "⏎" : CONTROL.test(char) ? codepoint(char) : char)).join("");
}

// Cividis (Nuñez, Anderton, Renslow 2018) at nine points; light text on the dark half.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#fee838"];
const SHADES = 24;

function cividis(share) {
  const at = clamp(share, 0, 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const channel = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mix = (i) => Math.round(channel(CIVIDIS[low], i) + (at - low) * (channel(CIVIDIS[low + 1], i) - channel(CIVIDIS[low], i)));
  return [mix(0), mix(1), mix(2)];
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function shadeSheet() {
  const rules = Array.from({ length: SHADES }, (_, i) => {
    const rgb = cividis(i / (SHADES - 1));
    const ink = luminance(rgb) > 0.18 ? "#111" : "#fff";
    const faded = (color) => `color-mix(in srgb,${color} 50%,var(--ground))`;
    return `.t.c${i}{background:rgb(${rgb});color:${ink};--mark:${ink}}.faded .t.c${i}{background:${faded(`rgb(${rgb})`)}}`;
  });
  return h("style", {}, rules.join(""));
}

const TAGS = {
  exact: "Exact: on the text that this very setting generates.",
  "block-local": "Block-local: each block is judged on the prefix recorded at the run's own setting. From the first changed decision on, this setting would have reached other prefixes.",
  measured: "Measured: wall clock of the recorded decoding, on this device.",
};

const OVERLAYS = {
  outcome: { label: "Outcome", tip: "What became of each token." },
  ratio: { label: "Ratio", tip: "z2/z1: how close the target's second best raw logit comes to its best. Bright is a close call.", low: "z2/z1" },
  margin: { label: "Margin", tip: "z1 − z2: how far the target prefers its best token, in logits. Dark is a close call.", low: "z1 − z2" },
  p: { label: "p(x)", tip: "The target's probability of the token itself.", low: "p(x)" },
  entropy: { label: "Entropy", tip: "Entropy of the target's law at the token, in nats. Bright is undecided.", low: "nats" },
};

const LEGEND = [
  [MATCHED, "Kept, and the strict rule keeps it too."],
  [RELAXED, "Kept only because the rule is relaxed."],
  [REJECTED, "The first drafted token that the rule rejected."],
  [DISCARDED, "Drafted after the end of the kept part, and rolled back."],
  [CORRECTED, "Written by the target in place of the rejected token."],
  [BONUS, "Written by the target after a fully kept block."],
];

// ------------------------------------------------------------------------------------------------- 5. the dial

/** The slider, its number box, its marks and the button beside it. Tells of every value by `moved`, of a rest by `rested`. */
class Dial {
  constructor({ moved, rested, decode }) {
    Object.assign(this, { moved, rested, value: null, dial: null, grip: null });
    this.thumb = h("div", { class: "thumb", role: "slider", tabindex: "0", onkeydown: (e) => this.key(e), onkeyup: () => this.rest() });
    this.hand = h("div", { class: "hand" }, this.thumb);
    this.rug = h("canvas", { class: "rug", "aria-hidden": "true" });
    this.mark = h("button", { class: "recorded", type: "button", onclick: () => this.set(this.dial.recorded, true) });
    this.groove = h("div", { class: "groove" });
    this.lane = h("div", { class: "lane" }, this.groove, this.hand);
    this.track = h("div", {
      class: "track",
      onpointerdown: (e) => this.press(e),
      onpointermove: (e) => this.drag(e),
      onpointerup: (e) => this.release(e),
      onpointercancel: (e) => this.release(e),
      ondblclick: () => this.set(this.dial.default, true),
    }, this.lane);
    this.left = h("span", { class: "end" });
    this.right = h("span", { class: "end" });
    this.name = h("span", { class: "name" });
    this.symbol = h("span", { class: "symbol" });
    this.input = h("input", {
      type: "number",
      oninput: () => this.typed(false),
      onchange: () => this.typed(true),
    });
    this.button = h("button", { class: "decode", type: "button", onclick: () => decode(this.value) });
    this.element = h("div", { class: "control" },
      h("div", { class: "dial" }, h("div", { class: "marks" }, this.mark), this.track, this.rug,
        h("div", { class: "ends" }, this.left, this.name, this.right)),
      h("div", { class: "beside" }, h("label", { class: "box" }, this.symbol, this.input), this.button));
    this.absent = h("p", { class: "nodial" });
    this.resized = new ResizeObserver(() => this.paintRug());
    this.resized.observe(this.rug);
  }

  /** Take on a run's dial; null hides the slider behind a line that says why. */
  show(run) {
    const dial = (this.dial = run.dial);
    this.element.hidden = !dial;
    this.absent.hidden = Boolean(dial);
    say(this.absent, `${run.rule.title} has no dial. ${run.rule.summary}`);
    if (!dial) return;
    const [left, right] = dial.strict_is_high ? ["looser", "strict"] : ["strict", "looser"];
    say(this.left, left);
    say(this.right, right);
    say(this.name, `${dial.symbol}, ${dial.name}`);
    say(this.symbol, `${dial.symbol} =`);
    this.decimals = Math.max(2, (String(dial.step).split(".")[1] ?? "").length);
    for (const [name, value] of Object.entries({ min: dial.low, max: dial.high, step: dial.step })) this.input.setAttribute(name, value);
    this.input.setAttribute("aria-label", `${dial.symbol}, ${dial.name}`);
    for (const [name, value] of Object.entries({ "aria-valuemin": dial.low, "aria-valuemax": dial.high, "aria-label": dial.name })) {
      this.thumb.setAttribute(name, value);
    }
    const share = this.share(dial.recorded);
    this.mark.style.left = `${100 * share}%`;
    this.mark.style.transform = `translateX(${-100 * share}%)`;
    this.mark.dataset.tip = "The run was decoded at this value. Click to go back to it.";
    say(this.mark, `recorded ${dialText(dial.recorded)}`);
    this.lane.style.setProperty("--recorded", share);
    this.breakpoints = run.nodes.breakpoint.filter((b) => b >= dial.low && b <= dial.high);
    this.paintRug();
  }

  share(value) {
    return (value - this.dial.low) / (this.dial.high - this.dial.low);
  }

  /** One thin line per breakpoint: where the dial, passing, changes a verdict. */
  paintRug() {
    const { clientWidth: width, clientHeight: height } = this.rug;
    if (!width || !this.dial) return;
    const scale = window.devicePixelRatio || 1;
    Object.assign(this.rug, { width: width * scale, height: height * scale });
    const pen = this.rug.getContext("2d");
    pen.fillStyle = getComputedStyle(this.rug).color;
    pen.globalAlpha = clamp(12 / Math.sqrt(this.breakpoints.length + 1), 0.12, 0.75);
    for (const b of this.breakpoints) pen.fillRect(Math.round(this.share(b) * (width - 1) * scale), 0, scale, height * scale);
  }

  /** Show a value without telling anyone. */
  place(value) {
    this.value = value;
    if (!this.dial) return;
    const { recorded, symbol } = this.dial;
    this.hand.style.left = `${100 * this.share(value)}%`;
    this.groove.style.setProperty("--at", this.share(value));
    if (this.input.getRootNode().activeElement !== this.input) this.input.value = dialText(value);
    this.thumb.setAttribute("aria-valuenow", value);
    this.thumb.setAttribute("aria-valuetext", `${symbol} ${dialText(value)}${value === recorded ? ", as recorded" : ""}`);
    this.button.classList.toggle("away", value === recorded);
    this.button.tabIndex = value === recorded ? -1 : 0;
    if (value !== recorded) say(this.button, `Decode at ${symbol} = ${dialText(value)}`);
  }

  /** To the grid of steps, or to the recorded value where that is nearer. */
  snapped(value) {
    const { low, high, step, recorded } = this.dial;
    const grid = Number((low + Math.round((value - low) / step) * step).toFixed(10));
    const near = Math.abs(value - recorded) <= Math.abs(value - grid) ? recorded : grid;
    return clamp(near, low, high);
  }

  set(value, resting) {
    if (value !== this.value) this.moved(value);
    if (resting) this.rested();
  }

  press(event) {
    if (event.button !== 0) return;
    const box = this.lane.getBoundingClientRect();
    const hand = box.left + this.share(this.value) * box.width;
    const held = Math.abs(event.clientX - hand) <= 12; // on the thumb: it stays where it is under the hand
    this.grip = { left: box.left, width: box.width, offset: held ? event.clientX - hand : 0 };
    this.track.setPointerCapture(event.pointerId);
    this.track.classList.add("held");
    this.thumb.focus({ preventScroll: true });
    event.preventDefault();
    if (!held) this.drag(event);
  }

  drag(event) {
    if (!this.grip) return;
    const share = (event.clientX - this.grip.offset - this.grip.left) / this.grip.width;
    this.set(this.snapped(this.dial.low + share * (this.dial.high - this.dial.low)), false);
  }

  release(event) {
    if (!this.grip) return;
    this.grip = null;
    this.track.classList.remove("held");
    this.track.releasePointerCapture(event.pointerId);
    this.rested();
  }

  key(event) {
    const { low, high, step } = this.dial;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    const target = { Home: low, End: high }[event.key];
    if (steps === undefined && target === undefined) return;
    event.preventDefault();
    this.keyed = true;
    const moved = this.value + steps * step * (event.shiftKey ? 10 : 1);
    this.set(target ?? clamp(Number((low + Math.round((moved - low) / step) * step).toFixed(10)), low, high), false);
  }

  rest() {
    if (this.keyed) this.rested();
    this.keyed = false;
  }

  typed(finished) {
    const value = this.input.valueAsNumber;
    const known = value >= this.dial.low && value <= this.dial.high;
    if (known) this.set(value, finished);
    if (finished) this.input.value = dialText(this.value);
  }
}

// ------------------------------------------------------------------------------------------- 6. the token stream

const CHUNK_FROM = 60, CHUNK_TO = 140; // tokens in a block of text that is laid out by itself
const ONE_CHUNK = 320; // a text no longer than this stays in one block

/** Ranges of rounds, cut where a line or a sentence ends if there is such a place. */
export function chunked(run, recorded) {
  const chunks = [];
  if (run.rounds && recorded.totals.tokens <= ONE_CHUNK) return [{ first: 0, last: run.rounds - 1 }];
  for (let first = 0; first < run.rounds; first = chunks.at(-1).last + 1) {
    let tokens = 0, last = run.rounds - 1, merit = -1;
    for (let r = first; r < run.rounds && merit < 2; r++) {
      tokens += recorded.length[r];
      if (tokens > CHUNK_TO) break;
      const worth = tokens < CHUNK_FROM ? -1 : endingOf(run, recorded, r);
      if (worth >= Math.max(merit, 0)) [last, merit] = [r, worth];
      if (r === run.rounds - 1) last = r; // the rest fits
    }
    chunks.push({ first, last: tokens > CHUNK_TO && merit < 0 ? first : last });
  }
  return chunks;
}

/** 2 where a round ends a line, 1 where it ends a sentence, else 0. */
function endingOf(run, recorded, r) {
  if (!recorded.length[r]) return 0;
  const text = run.pieces.text[recorded.tokens[run.slotAt[r] + recorded.length[r] - 1]];
  return /\n\s*$/.test(text) ? 2 : /[.!?;}"”]$/.test(text) ? 1 : 0;
}

/** The tokens in rounds. Chunks are built when they come near, and touched only while they are near. */
class Stream {
  constructor({ pick }) {
    this.pick = pick;
    this.element = h("div", {
      class: "stream", role: "listbox", tabindex: "0", "aria-label": "Tokens of the run; arrow keys move, up and down by rounds",
      onclick: (e) => this.click(e),
      onkeydown: (e) => this.key(e),
      onscroll: () => this.state?.parted && this.point(),
    });
    this.divider = h("span", { class: "divider", role: "presentation" }, "block-local from here: at this setting the text would go on otherwise");
    this.jump = h("button", { class: "jump", type: "button", hidden: true, onclick: () => this.showParting() });
    this.frame = h("div", { class: "frame" }, this.element, this.jump);
    this.chunks = [];
    this.observer = null;
  }

  show(run, state) {
    Object.assign(this, { run, state, shown: new Int32Array(2 * run.rounds).fill(-1), words: new Map(), selected: null });
    this.element.classList.toggle("tall", state.recorded.totals.tokens > 4 * ONE_CHUNK);
    this.element.classList.toggle("code", looksLikeCode(run, state.recorded));
    this.roundElements = new Array(run.rounds);
    this.slotElements = new Array(run.slots);
    this.observer?.disconnect();
    this.observer = new IntersectionObserver((entries) => this.seen(entries), { root: this.element, rootMargin: "120px 0px" });
    this.chunks = chunked(run, state.recorded).map((range) => this.emptyChunk(range));
    const prompt = run.about.prompt;
    this.prompt = prompt ? h("span", { class: "prompt", role: "presentation" }, prompt.length > 1200 ? `…${prompt.slice(-1200)}` : prompt) : null;
    this.element.replaceChildren(...this.chunks.map((chunk) => chunk.element));
    if (!run.rounds) this.element.replaceChildren(h("p", { class: "empty" }, "This run has no tokens. Choose another, or decode a prompt."));
    this.element.scrollTop = 0;
    this.chunks.slice(0, 4).forEach((chunk) => this.bring(chunk));
    this.chunks.forEach((chunk) => this.observer.observe(chunk.element));
  }

  emptyChunk({ first, last }) {
    const slots = this.run.slotAt[last + 1] - this.run.slotAt[first];
    const element = h("div", { class: "chunk", role: "presentation" });
    element.style.setProperty("--tall", `${Math.ceil(slots / 16) * 34 + 20}px`);
    const chunk = { first, last, element, built: false, near: false, parted: undefined };
    element.chunk = chunk;
    return chunk;
  }

  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      target.chunk.near = isIntersecting;
      if (isIntersecting) this.bring(target.chunk);
    }
    this.name();
  }

  /** Make a chunk show the present state. */
  bring(chunk) {
    if (!chunk.built) this.build(chunk);
    chunk.near = true;
    this.refresh(chunk);
  }

  build(chunk) {
    chunk.built = true;
    chunk.element.classList.add("built");
    const built = document.createDocumentFragment();
    if (chunk.first === 0 && this.prompt) built.append(this.prompt);
    for (let r = chunk.first; r <= chunk.last; r++) {
      const round = (this.roundElements[r] = h("span", { class: "r", role: "presentation", "data-round": `round ${r + 1}` }));
      for (let slot = this.run.slotAt[r]; slot < this.run.slotAt[r + 1]; slot++) {
        const token = (this.slotElements[slot] = h("span", { class: "t", role: "option", id: `slot-${slot}` }));
        token.slot = slot;
        if (slot < this.run.slotAt[r + 1] - 1) fill(token, this.run.pieces.text[this.run.nodes.token[slot - r]]);
        round.append(token);
      }
      built.append(round);
    }
    chunk.element.append(built);
    if (this.selected !== null) this.outline(this.selected, true);
  }

  /** After the dial moved: only what is near, and of that only rounds that are decided otherwise. */
  update() {
    for (const chunk of this.chunks) if (chunk.near && chunk.built) this.refresh(chunk);
    if (!this.state.parted) this.divider.remove();
  }

  /** Where the shown text leaves the recorded one, into view. */
  showParting() {
    const { round } = this.state.parted;
    this.bring(this.chunks.find(({ last }) => last >= round));
    const at = this.divider.getBoundingClientRect().top - this.element.getBoundingClientRect().top;
    this.element.scrollTop += at - this.element.clientHeight / 2;
  }

  /** Offer the way to the parting while it is out of view. */
  point() {
    const { parted } = this.state;
    if (parted) say(this.jump, `parts from the recorded text at token ${whole(parted.index + 1)}`);
    const box = this.element.getBoundingClientRect();
    const at = this.divider.getBoundingClientRect();
    const seen = this.divider.isConnected && at.top >= box.top && at.bottom <= box.bottom;
    this.jump.hidden = !parted || seen;
  }

  refresh(chunk) {
    const { run, shown, state } = this;
    for (let r = chunk.first; r <= chunk.last; r++) {
      if (shown[2 * r] === state.now.stop[r] && shown[2 * r + 1] === state.now.emitted[r]) continue;
      shown[2 * r] = state.now.stop[r];
      shown[2 * r + 1] = state.now.emitted[r];
      this.dress(r);
    }
    const parted = state.parted ? state.parted.round : run.rounds;
    if (chunk.parted !== parted) this.fade(chunk, parted);
  }

  /** Everything after the round that parted is faded; the divider stands right after that round. */
  fade(chunk, parted) {
    chunk.element.classList.toggle("faded", chunk.first > parted);
    const before = chunk.parted ?? this.run.rounds;
    const inside = (r) => r >= chunk.first && r <= chunk.last;
    if (inside(parted) || inside(before)) {
      for (let r = chunk.first; r <= chunk.last; r++) {
        this.roundElements[r].classList.toggle("faded", r > parted && inside(parted));
      }
    }
    if (inside(parted)) {
      this.roundElements[parted].after(this.divider);
    } else if (this.divider.parentNode === chunk.element) this.divider.remove();
    chunk.parted = parted;
  }

  /** Give the tokens of a round the looks of their outcomes, in reading order. */
  dress(r) {
    const { run, state, slotElements } = this;
    const last = run.slotAt[r + 1] - 1;
    for (let slot = run.slotAt[r]; slot < last; slot++) {
      this.look(slotElements[slot], slot, state.now.outcome[slot - r]);
    }
    const token = slotElements[last];
    if (token.piece !== state.now.emitted[r]) {
      token.piece = state.now.emitted[r];
      fill(token, run.pieces.text[token.piece]);
    }
    this.look(token, last, state.now.emission[r]);
    if (run.branched?.[r]) this.roundElements[r].append(...readingOrder(run, state.now, r).map((slot) => slotElements[slot]));
  }

  look(token, slot, outcome) {
    const special = this.run.pieces.special[tokenOf(this.run, this.state.now, slot)] ? " special" : "";
    const shade = this.state.shade(slot);
    const name = `t ${NAMES[outcome]}${token.kind}${special}${shade}${slot === this.selected ? " selected" : ""}`;
    if (token.className !== name) token.className = name;
    token.hidden = outcome === NOTHING;
  }

  /** Another overlay: every built token looks otherwise. */
  repaint() {
    this.shown.fill(-1);
    for (const chunk of this.chunks) if (chunk.near && chunk.built) this.refresh(chunk);
  }

  /** Accessible names, when the hand rests: they count tokens, so one change renames all that follow. */
  name() {
    for (const chunk of this.chunks) {
      if (!chunk.near || !chunk.built) continue;
      for (let r = chunk.first; r <= chunk.last; r++) {
        for (let slot = this.run.slotAt[r]; slot < this.run.slotAt[r + 1]; slot++) {
          const label = this.state.label(slot);
          if (this.words.get(slot) === label) continue;
          this.words.set(slot, label);
          this.slotElements[slot].setAttribute("aria-label", label);
        }
      }
    }
  }

  select(slot, reveal) {
    if (this.selected !== null) this.outline(this.selected, false);
    this.selected = slot;
    if (slot === null) return;
    const chunk = this.chunks.find(({ last }) => slot < this.run.slotAt[last + 1]);
    if (!chunk) return;
    if (reveal) this.bring(chunk);
    this.outline(slot, true);
    if (reveal) this.reveal(this.slotElements[slot]);
  }

  outline(slot, on) {
    const token = this.slotElements[slot];
    if (!token) return;
    token.classList.toggle("selected", on);
    token.setAttribute("aria-selected", on);
    if (on) this.element.setAttribute("aria-activedescendant", token.id);
  }

  /** Scroll the stream, never the page, as little as needed. */
  reveal(token) {
    const box = this.element.getBoundingClientRect();
    const at = token.getBoundingClientRect();
    if (at.top < box.top + 8) this.element.scrollTop += at.top - box.top - 40;
    else if (at.bottom > box.bottom - 8) this.element.scrollTop += at.bottom - box.bottom + 40;
  }

  click(event) {
    const token = event.target.closest(".t");
    if (token && this.element.getRootNode().getSelection?.()?.type !== "Range") this.pick(token.slot, false);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = this.neighbour(event.key);
    if (next === undefined) return;
    event.preventDefault();
    this.pick(next, true);
  }

  neighbour(key) {
    const { run, state, selected } = this;
    if (!run.rounds) return undefined;
    const order = (r) => readingOrder(run, state.now, r);
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

function tokenOf(run, decisions, slot) {
  const node = nodeOf(run, slot);
  return node < 0 ? decisions.emitted[roundOf(run, slot)] : run.nodes.token[node];
}

/** The slots of a round as they are read: the kept path, what was rejected and discarded, then what the target wrote. */
export function readingOrder(run, decisions, r) {
  const slots = Array.from({ length: run.count[r] }, (_, i) => run.slotAt[r] + i);
  const kept = (slot) => decisions.outcome[slot - r] === MATCHED || decisions.outcome[slot - r] === RELAXED;
  const rejected = (slot) => decisions.outcome[slot - r] === REJECTED;
  const rest = slots.filter((slot) => !kept(slot) && !rejected(slot));
  const emission = decisions.emission[r] === NOTHING ? [] : [run.slotAt[r + 1] - 1];
  return [...slots.filter(kept), ...slots.filter(rejected), ...rest, ...emission];
}

function looksLikeCode(run, recorded) {
  let text = "";
  for (let r = 0; r < run.rounds && text.length < 20000; r++) {
    for (let i = 0; i < recorded.length[r]; i++) text += run.pieces.text[recorded.tokens[run.slotAt[r] + i]];
  }
  return /\n(\t| {2,})\S/.test(text);
}

// ------------------------------------------------------------------------------------------------ 7. the inspector

/** What target and drafter thought of the selected token, and what every rule makes of it. */
class Inspector {
  constructor() {
    this.element = h("aside", { class: "inspector", "aria-label": "The selected token", tabindex: "0" });
  }

  /** After the dial moved: everything anew only where the selected token's own round is decided otherwise. */
  follow(run, state, slot) {
    if (slot === null || this.shown !== decisionKey(run, state, slot)) this.show(run, state, slot);
    else if (this.node >= 0) this.judge(state, this.node);
  }

  show(run, state, slot) {
    this.shown = slot === null ? null : decisionKey(run, state, slot);
    this.node = -1;
    if (slot === null) {
      this.element.replaceChildren(h("p", { class: "empty" }, "Click a token, or walk through the text with the arrow keys, to see what target and drafter thought of it."));
      return;
    }
    const r = roundOf(run, slot);
    const own = nodeOf(run, slot);
    const emission = state.now.emission[r];
    const row = own < 0 ? state.now.stop[r] : run.judge[own];
    const node = own < 0 && emission === CORRECTED ? run.child[run.childAt[row]] : own;
    const piece = tokenOf(run, state.now, slot);
    const outcome = own < 0 ? emission : state.now.outcome[own];
    this.node = node;
    this.element.replaceChildren(
      this.title(run, state, slot, piece, outcome, r, own),
      own < 0 && node >= 0 ? h("p", { class: "aside" }, "in place of the rejected ", quoted(run, run.nodes.token[node]), ", of which the numbers below speak") : "",
      this.facts(run, row, node, piece, state),
      this.laws(run, row, node, piece, own < 0 ? piece : -1),
      node >= 0 ? this.rules(run, state, node) : h("p", { class: "aside" }, "Nothing was drafted here, so there is nothing to judge: the whole block was kept."),
    );
  }

  title(run, state, slot, piece, outcome, r, own) {
    const index = state.textIndex(slot);
    const where = [index === null ? "not in the text" : `token ${whole(index + 1)}`, `round ${whole(r + 1)}`];
    if (own >= 0) where.push(`draft ${run.nodes.depth[own]} of ${run.count[r]}`);
    return h("header", {},
      h("div", { class: "headline" }, h("span", { class: "what" }, quoted(run, piece)), h("span", { class: `pill t ${NAMES[outcome]}` }, NAMES[outcome])),
      h("p", { class: "where" }, `${where.join(" · ")} · id ${run.pieces.ids[piece]}`));
  }

  facts(run, row, node, piece, state) {
    const { rows, nodes } = run;
    const width = rows.top;
    const z = (i) => (i < width ? rows.top_logit[row * width + i] : NaN);
    const list = [
      ["z1", short(z(0)), "The target's largest raw logit."],
      ["z2", short(z(1)), "Its second largest."],
      ["ratio", short(rows.ratio[row]), "z2 / z1"],
      ["margin", short(rows.margin[row]), "z1 − z2"],
      ["entropy", `${short(rows.entropy[row])} nats`, "Of the target's law: 0 is certain."],
    ];
    if (node < 0) list.push(["p(x)", short(state.chance(row)), "The target's probability of the emitted token, processed as the run samples."]);
    else {
      list.push(
        ["rank", whole(nodes.rank[node]), "The target's rank of the drafted token; 1 is its best."],
        ["p(x)", short(nodes.p[node]), "The target's probability of the drafted token, processed as the run samples."],
        ["q(x)", short(nodes.q[node]), "The drafter's probability of it, likewise."],
        ["coin", short(nodes.coin[node]), "The acceptance coin u in [0, 1); rejection sampling keeps the token if u ≤ p/q."],
      );
    }
    const grid = h("dl", { class: "facts" }, ...list.map(([name, value, tip]) => fact(name, value, tip)));
    return node < 0 ? grid : h("div", {}, grid, h("p", { class: "flip" }, flipping(run, node)));
  }

  laws(run, row, node, piece, written) {
    const target = table("Target", run, run.rows, row, node >= 0 ? run.nodes.token[node] : piece, node, written);
    const drafter = node < 0 ? h("div", { class: "law" }, h("h4", {}, "Drafter"), h("p", { class: "aside" }, "no draft here"))
      : table("Drafter", run, run.nodes, node, run.nodes.token[node], -1, -1);
    return h("div", { class: "laws" }, target, drafter);
  }

  rules(run, state, node) {
    this.lines = run.rules.map((rule) => ({ rule, at: h("td", { class: "at" }), verdict: h("td") }));
    this.judge(state, node);
    const rows = this.lines.map(({ rule, at, verdict }) => h("tr", { class: rule.name === run.rule.name ? "own" : null },
      h("th", { scope: "row", "data-tip": rule.formula, tabindex: "0" }, rule.title), at, verdict));
    return h("div", { class: "verdicts" }, h("h4", {}, "Every rule on ", quoted(run, run.nodes.token[node])), h("table", {}, h("tbody", {}, ...rows)));
  }

  /** What every rule says: those that share the run's dial where the hand holds it, the others at their defaults. */
  judge(state, node) {
    for (const { rule, at, verdict } of this.lines) {
      const dial = rule.follows ? state.dial : rule.default ?? NaN;
      const keeps = dial < rule.breakpoint[node] ? rule.keep[node] & 1 : rule.keep[node] & 2;
      say(at, rule.symbol === null ? "" : `${rule.symbol} ${dialText(dial)}${rule.follows ? "" : " (default)"}`);
      say(verdict, keeps ? "✓ keeps" : "× rejects");
      verdict.className = keeps ? "keeps" : "rejects";
    }
  }
}

function decisionKey(run, state, slot) {
  const r = roundOf(run, slot);
  return [run.id, slot, state.now.stop[r], state.now.emitted[r], state.now.length[r]].join();
}

function fact(name, value, tip) {
  return h("div", { "data-tip": tip, tabindex: "0" }, h("dt", {}, name), h("dd", {}, value));
}

/** A token in quotation marks, isolated from what stands around it; `bare` leaves out blanks around a word. */
function quoted(run, piece, bare = false) {
  const text = clipped(run.pieces.text[piece]);
  const token = fill(h("bdi"), bare ? text.trim() || text : text);
  token.className = `quoted${token.kind}`;
  return h("span", { class: "quote" }, "“", token, "”");
}

function clipped(text) {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function flipping(run, node) {
  const at = run.nodes.breakpoint[node];
  const keep = run.nodes.keep[node];
  if (!run.dial || Number.isNaN(at)) return `No breakpoint: ${keep & 2 ? "kept" : "rejected"} ${run.dial ? `at every ${run.dial.symbol}` : "by this rule"}.`;
  const [below, above] = keep & 1 ? ["kept", "rejected"] : ["rejected", "kept"];
  return `Breakpoint ${run.dial.symbol} = ${short(at)}: ${below} below it, ${above} from it on.`;
}

/** A law's best tokens with raw logits and plain softmax. The drafted token stands out, below the line if need be. */
function table(title, run, law, at, marked, node, written) {
  const width = law.top;
  const line = (piece, logit, chosen, rank) => {
    const p = Math.exp(logit - law.logsumexp[at]);
    const bar = h("span", { class: "bar" });
    bar.style.setProperty("--p", p);
    return h("tr", { class: chosen ? "chosen" : piece === written ? "written" : null, "data-rank": rank }, h("td", { class: "token" }, quoted(run, piece)),
      h("td", {}, short(logit)), h("td", { class: "share" }, bar, percent(p)));
  };
  const rows = [];
  let found = false;
  for (let i = 0; i < width; i++) {
    const piece = law.top_token[at * width + i];
    found ||= piece === marked;
    rows.push(line(piece, law.top_logit[at * width + i], piece === marked, i + 1));
  }
  if (!found && node >= 0) rows.push(line(marked, run.nodes.z[node], true, run.nodes.rank[node]));
  return h("div", { class: "law" },
    h("h4", { "data-tip": "Its best tokens at this place: raw logit, and probability by a plain softmax of the raw logits.", tabindex: "0" }, title),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "token"), h("th", {}, "logit"), h("th", {}, "prob."))), h("tbody", {}, ...rows)));
}

// ---------------------------------------------------------------------------------------------- 8. the whole view

const TILES = [
  { group: "run", name: "tokens", label: "tokens", tip: "Tokens that the blocks emit: kept drafts, corrections and bonuses, cut at the end of text or the length limit.", read: (n) => whole(n.tokens) },
  { group: "run", name: "rounds", label: "rounds", tip: "Draft-verify cycles: one target pass each; the pass over the prompt is not counted.", read: (n) => whole(n.rounds) },
  { group: "run", name: "tau", label: "τ", tip: "Acceptance length: τ = tokens / rounds.", read: (n) => short(n.tau) },
  { group: "run", name: "acceptance", label: "acceptance", tip: "Acceptance rate: kept drafted tokens / drafted tokens.", read: (n) => percent(n.acceptance) },
  { group: "run", name: "rolled_back", label: "rolled back", tip: "Drafted tokens that did not reach the text: drafted − kept.", read: (n) => whole(n.rolledBack) },
  { group: "run", name: "saved_autoregressive", label: "passes saved vs autoregressive", tip: "Target passes saved against decoding one token a pass: tokens − rounds.", read: (n) => whole(n.savedAutoregressive) },
  { group: "strict", name: "saved_strict", label: "passes saved vs strict", tip: "Target passes saved against the rule's strict end: tokens / τ(strict) − rounds, with τ(strict) on the same blocks.", read: (n) => Math.abs(n.savedStrict) < 0.05 ? "0.0" : n.savedStrict.toFixed(1).replace("-", "−") },
  { group: "clock", name: "speed", label: "tokens / s", tip: "Tokens of the recorded text / seconds of its decoding, prefill excluded." },
  { group: "clock", name: "device", label: "device", tip: "Where the run was decoded." },
];

const lives = new Map(); // where each revision was left, for the case that the page builds the element anew
const read = new Map(); // runs by id, the last few

function runOf(payload) {
  if (!read.has(payload.id)) {
    if (read.size >= 3) read.delete(read.keys().next().value);
    read.set(payload.id, readRun(payload));
  }
  return read.get(payload.id);
}

class Explorer {
  constructor(parent) {
    this.dialView = new Dial({ moved: (v) => this.move(v), rested: () => this.rest(), decode: (v) => this.decode(v) });
    this.stream = new Stream({ pick: (slot, reveal) => this.pick(slot, reveal) });
    this.inspector = new Inspector();
    this.words = h("span", { class: "words" });
    this.basis = h("span", { class: "tag", tabindex: "0" });
    this.tip = h("div", { class: "tip", role: "tooltip", hidden: true, id: "tip" });
    this.legend = h("div", { class: "legend" });
    this.root = h("div", { class: "explorer" }, shadeSheet(),
      h("p", { class: "sentence" }, this.words, " ", this.basis),
      this.dialView.element, this.dialView.absent, this.tiles(),
      h("div", { class: "reading" }, this.overlays(), this.legend),
      h("div", { class: "body" }, this.stream.frame, h("div", { class: "side" }, this.inspector.element)), this.tip);
    for (const [enter, leave] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
      this.root.addEventListener(enter, (e) => this.explain(e.target.closest?.("[data-tip]"), e.type));
      this.root.addEventListener(leave, () => this.explain(null));
    }
    this.root.addEventListener("keydown", (e) => e.key === "Escape" && this.explain(null));
    parent.append(this.root);
  }

  // ---- what comes from Python

  receive({ payload, position, revision, key }) {
    this.theme();
    const fresh = payload.id !== this.run?.id;
    if (fresh) this.open(runOf(payload));
    if (!fresh && (revision === this.revision || this.dialView.grip)) return;
    this.key = key;
    this.revision = revision;
    const left = lives.get(key);
    this.adopt(left?.revision === revision ? left : position, fresh);
  }

  open(run) {
    const at = (dial) => decide(run, dial, emptyDecisions(run));
    this.run = run;
    run.branched = Uint8Array.from({ length: run.rounds }, (_, r) => {
      for (let i = 0; i < run.count[r]; i++) if (run.nodes.parent[run.nodeAt[r] + i] !== i - 1) return 1;
      return 0;
    });
    this.recorded = at(run.dial ? run.dial.recorded : null);
    this.strict = at(run.dial ? run.dial.strict : null);
    this.now = emptyDecisions(run);
    this.ranges = overlayRanges(run);
    this.starts = new Int32Array(run.rounds + 1);
    this.selected = null;
    this.overlay = "outcome";
  }

  adopt({ dial, overlay, selected }, fresh) {
    const { run } = this;
    this.dial = run.dial ? clamp(dial ?? run.dial.recorded, run.dial.low, run.dial.high) : null;
    this.overlay = overlay in OVERLAYS ? overlay : "outcome";
    decide(run, this.dial, this.now);
    this.weigh();
    if (fresh) {
      this.dialView.show(run);
      this.stream.show(run, this);
      this.clock();
    } else this.stream.repaint();
    this.pressOverlay();
    this.selected = selected !== null && selected >= 0 && selected < run.slots ? selected : this.remarkable();
    this.stream.select(this.selected, selected !== null);
    this.render();
    this.settle();
  }

  /** The first token that a newcomer should look at: one that is only there because the rule is relaxed. */
  remarkable() {
    const { run, now } = this;
    const first = (outcome) => now.outcome.indexOf(outcome);
    const node = first(RELAXED) >= 0 ? first(RELAXED) : first(REJECTED);
    if (node < 0) return run.rounds ? 0 : null;
    let r = 0;
    while (run.nodeAt[r + 1] <= node) r++;
    return node + r;
  }

  // ---- what the hand does

  move(value) {
    this.dial = value;
    this.stream.jump.hidden = true;
    decide(this.run, value, this.now);
    this.weigh();
    this.stream.update();
    this.render();
  }

  rest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.settle();
      this.report();
    }, this.dialView.keyed ? 250 : 0);
  }

  pick(slot, reveal) {
    this.selected = slot;
    this.stream.select(slot, reveal);
    this.inspector.show(this.run, this, slot);
    clearTimeout(this.picking);
    this.picking = setTimeout(() => this.report(), 300);
  }

  choose(overlay) {
    this.overlay = overlay;
    this.pressOverlay();
    this.stream.repaint();
    this.drawLegend();
    this.report();
  }

  decode(dial) {
    this.report();
    this.trigger("decode", { revision: this.revision, dial });
  }

  position() {
    return { revision: this.revision, dial: this.dial, overlay: this.overlay, selected: this.selected };
  }

  report() {
    const position = this.position();
    lives.set(this.key, position);
    if (JSON.stringify(position) === this.told) return;
    this.told = JSON.stringify(position);
    this.state("position", position);
  }

  // ---- what follows from the dial

  weigh() {
    const { run, now } = this;
    this.parted = run.dial ? parting(run, now, this.recorded) : null;
    this.local = run.dial ? decidedOtherwise(run, now, this.recorded) : false;
    this.fromStrict = run.dial ? parting(run, now, this.strict) : null;
    this.values = numbers(run, now, this.strict);
    this.counted = false;
  }

  /** All that changes in the frame in which the dial moves, besides the stream. */
  render() {
    const { run, values } = this;
    this.dialView.place(this.dial);
    const parts = sentence(run, this.dial, values, this.fromStrict, this.parted);
    this.words.replaceChildren(...parts.map((part) => (typeof part === "string" ? part : quoted(run, part.token, true))));
    const basis = this.local ? "block-local" : "exact";
    this.tag(this.basis, this.fromStrict ? "block-local" : basis); // strict stands on the recorded prefixes
    this.tag(this.groups.run, basis);
    this.tag(this.groups.strict, "block-local");
    this.tag(this.groups.clock, "measured");
    for (const { name, read: text } of TILES) if (text) say(this.cells[name], text(values));
    this.drawLegend();
    this.inspector.follow(run, this, this.selected);
  }

  /** What may wait until the hand rests. */
  settle() {
    this.stream.name();
    this.stream.point();
    this.inspector.show(this.run, this, this.selected);
  }

  clock() {
    const { seconds, device, dtype, target, drafter } = this.run.about;
    say(this.cells.speed, seconds > 0 ? short(this.recorded.totals.tokens / seconds) : "–");
    say(this.cells.device, device || "unknown");
    const models = target && drafter ? `: target ${target}, drafter ${drafter}` : "";
    this.cells.device.parentElement.dataset.tip = `Decoded on ${[device || "an unknown device", dtype].filter(Boolean).join(", ")}${models}.`;
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

  label(slot) {
    const { run, now } = this;
    const node = nodeOf(run, slot);
    const r = roundOf(run, slot);
    const index = this.textIndex(slot);
    const row = node < 0 ? now.stop[r] : run.judge[node];
    const outcome = NAMES[node < 0 ? now.emission[r] : now.outcome[node]];
    const name = index === null ? "draft" : `token ${index + 1}`;
    return `${name}, “${spoken(run.pieces.text[tokenOf(run, now, slot)])}”, ${outcome}, ratio ${short(run.rows.ratio[row])}`;
  }

  // ---- overlays

  /** The target's probability of what a row emits. */
  chance(row) {
    const { rows } = this.run;
    return this.dial !== null && this.dial < rows.breakpoint[row] ? rows.p_below[row] : rows.p_above[row];
  }

  /** The class of a token's shade, with a leading blank; none for the outcome overlay. */
  shade(slot) {
    if (this.overlay === "outcome") return "";
    const { run, now } = this;
    const r = roundOf(run, slot);
    const node = slot === run.slotAt[r + 1] - 1 ? -1 : slot - r;
    const row = node < 0 ? now.stop[r] : run.judge[node];
    const value = this.overlay !== "p" ? run.rows[this.overlay][row] : node < 0 ? this.chance(row) : run.nodes.p[node];
    const [low, high] = this.ranges[this.overlay];
    return Number.isNaN(value) ? "" : ` c${Math.round(clamp((value - low) / (high - low), 0, 1) * (SHADES - 1))}`;
  }

  overlays() {
    this.radios = Object.entries(OVERLAYS).map(([name, { label, tip }]) =>
      h("button", { type: "button", role: "radio", "data-overlay": name, "data-tip": tip, onclick: () => this.choose(name) }, label));
    return h("div", { class: "overlays", role: "radiogroup", "aria-label": "Colour the tokens by", onkeydown: (e) => this.turn(e) }, ...this.radios);
  }

  turn(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = this.radios.findIndex((radio) => radio.dataset.overlay === this.overlay);
    const next = this.radios[(at + step + this.radios.length) % this.radios.length];
    next.focus();
    this.choose(next.dataset.overlay);
  }

  pressOverlay() {
    this.root.dataset.overlay = this.overlay;
    this.legendOf = null;
    for (const radio of this.radios) {
      const on = radio.dataset.overlay === this.overlay;
      radio.setAttribute("aria-checked", on);
      radio.tabIndex = on ? 0 : -1;
    }
  }

  drawLegend() {
    if (this.legendOf !== this.overlay) {
      this.legendOf = this.overlay;
      this.legend.replaceChildren(...(this.overlay === "outcome" ? this.outcomeLegend() : this.scaleLegend()));
    }
    if (this.overlay === "outcome") this.tallies.forEach((tally, outcome) => say(tally, whole(this.now.totals.counts[outcome])));
    else if (this.line) this.line.style.left = `${100 * clamp((this.dial - this.ranges.ratio[0]) / (this.ranges.ratio[1] - this.ranges.ratio[0]), 0, 1)}%`;
  }

  outcomeLegend() {
    this.tallies = LEGEND.map(() => h("span", { class: "tally" }));
    return LEGEND.map(([outcome, tip], i) => h("span", { class: "key", "data-tip": tip, tabindex: "0" },
      h("span", { class: `t ${NAMES[outcome]}` }, NAMES[outcome]), this.tallies[i]));
  }

  scaleLegend() {
    const [low, high] = this.ranges[this.overlay];
    const stops = Array.from({ length: 9 }, (_, i) => `rgb(${cividis(i / 8)})`).join(",");
    const ramp = h("span", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${stops})`;
    this.line = this.overlay === "ratio" && this.run.dial?.of_ratio ? h("span", { class: "line", "data-tip": "where the dial stands" }) : null;
    if (this.line) ramp.append(this.line);
    const edge = (value, sign) => `${sign}${THIN}${short(value)}`;
    const lowText = this.overlay === "ratio" ? edge(low, "≤") : short(low);
    const highText = this.overlay === "margin" || this.overlay === "entropy" ? edge(high, "≥") : short(high);
    return [h("span", { class: "unit" }, OVERLAYS[this.overlay].low), h("span", {}, lowText), ramp, h("span", {}, highText)];
  }

  // ---- tiles, tags, tooltips, theme

  tiles() {
    this.cells = {};
    this.groups = {};
    const groups = ["run", "strict", "clock"].map((group) => {
      this.groups[group] = h("span", { class: "tag", tabindex: "0" });
      const tiles = TILES.filter((tile) => tile.group === group).map(({ name, label, tip }) => {
        this.cells[name] = h("dd", { "data-number": name });
        return h("div", { class: `tile ${name}`, "data-tip": tip, tabindex: "0" }, h("dt", {}, label), this.cells[name]);
      });
      return h("div", { class: "group" }, this.groups[group], h("dl", {}, ...tiles));
    });
    return h("div", { class: "numbers" }, ...groups);
  }

  tag(element, name) {
    if (element.dataset.tag === name) return;
    element.dataset.tag = name;
    element.dataset.tip = TAGS[name];
    say(element, name);
  }

  explain(target, type) {
    if (!target || (type === "focusin" && !target.matches(":focus-visible"))) {
      this.tip.hidden = true;
      this.explained?.removeAttribute("aria-describedby");
      return;
    }
    this.explained = target;
    say(this.tip, target.dataset.tip);
    target.setAttribute("aria-describedby", "tip");
    this.tip.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const box = target.getBoundingClientRect();
    const left = clamp(box.left - frame.left + box.width / 2 - this.tip.offsetWidth / 2, 0, frame.width - this.tip.offsetWidth);
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(box.bottom - frame.top + 6)}px)`;
  }

  theme() {
    const color = getComputedStyle(this.root).getPropertyValue("--st-background-color").trim();
    const probe = h("span");
    probe.style.color = color || "#fff";
    this.root.append(probe);
    const rgb = getComputedStyle(probe).color.match(/\d+(\.\d+)?/g).slice(0, 3).map(Number);
    probe.remove();
    const name = luminance(rgb) < 0.2 ? "dark" : "light";
    if (this.root.dataset.theme === name) return;
    this.root.dataset.theme = name;
    this.dialView.paintRug();
  }

  close() {
    clearTimeout(this.resting);
    clearTimeout(this.picking);
    this.stream.observer?.disconnect();
    this.dialView.resized.disconnect();
    this.root.remove();
  }
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

const views = new WeakMap();

export default function explorer({ data, parentElement, setStateValue, setTriggerValue }) {
  const view = views.get(parentElement) ?? new Explorer(parentElement);
  views.set(parentElement, view);
  view.state = setStateValue;
  view.trigger = setTriggerValue;
  view.receive(data);
  return () => {
    view.close();
    views.delete(parentElement);
  };
}
