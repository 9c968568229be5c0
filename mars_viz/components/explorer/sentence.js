// The sentence above the numbers: its words, and its place.

const FEW = 2; // target passes of a text of which the passes saved are no news

/**
 * The sentence above the numbers, in parts: strings, and `{ token }` for a token's text. `fromRecorded` is where the
 * blocks shown part from the recorded ones; null where they do not. `ending` is `Reading.ending`.
 */
export function sentence(run, dial, values, fromStrict, fromRecorded, ending) {
  const other = besideWhat(run.dial);
  if (!run.rounds) return ["This run has no rounds: nothing was decoded."];
  if (values.rounds <= FEW) return briefly(run, dial, values, fromStrict, fromRecorded, ending, other);
  const passes = `${plural(values.rounds, "target pass", "es")} for ${plural(values.tokens, "token")}`;
  const lost = `${plural(values.rolledBack, "drafted token")} rolled back`;
  const short = run.about.cut ? `, ${run.about.cut}` : "";
  if (!run.dial) return [`${run.rule.title} has no dial${short}: ${passes}; ${lost}.`];
  const gamma = short + (run.about.gamma === run.about.recorded_gamma ? "" : `, ${lengthName(run.about.tree)} = ${run.about.gamma}`);
  const cut = run.dial.cuts ? `, ${plural(values.drafted, "token")} drafted` : "";
  const ours = `${atSetting(run, dial, gamma, fromRecorded)}: ${passes}${cut}`;
  if (!fromStrict) {
    const needs = whole(values.strictRounds) === whole(values.rounds) ? other.as : `the text of ${other.name}, which ${other.needs} ${strictPasses(values)}`;
    return [`${ours}, ${needs}; ${lost}.`];
  }
  const about = values.strictExact ? "" : "about ";
  return [`${ours}; ${other.name} ${other.needs} ${strictPasses(values)}. ${lost}, ${about}${whole(values.strictRolledBack)} by ${other.name}. First`, ...difference(other, fromStrict)];
}

/** 'At θ = 0.90', and the other settings of the text shown. */
function atSetting(run, dial, gamma, fromRecorded) {
  const judged = fromRecorded ? `, judged on the text recorded at ${dialText(run.dial.recorded)}` : "";
  return `At ${run.dial.symbol} = ${dialText(dial)}${run.dial.cuts ? ` of ${run.dial.cuts}` : ""}${gamma}${judged}`;
}

/** Where a text and strict's first differ, as the end of a sentence. */
function difference(other, { index, left, right }) {
  const tokens = left >= 0 && right >= 0 ? [" (", { token: left }, " instead of ", { token: right }, ")"] : [];
  return [` difference from ${other.name}: token ${whole(index + 1)}`, ...tokens, "."];
}

/** The sentence of a text of few target passes: what was written, how it ended, and whether strict writes the same. */
function briefly(run, dial, values, fromStrict, fromRecorded, ending, other) {
  const { tokens, rounds, drafted, rolledBack, strictExact, strictTokens, strictRounds } = values;
  const at = run.dial ? atSetting(run, dial, "", fromRecorded) : `${run.rule.title} has no dial`;
  const atOnce = tokens === 1 && ending?.[1];
  const words = `${at}: ${plural(tokens, "token")} in ${plural(rounds, "target pass", "es")}`;
  const wrote = atOnce ? [`${at}: the target ended the text at once, with `, ending[1]] : [ending ? `${words}, ${ending[0]}` : words, ...(ending?.[1] ? [ending[1]] : [])];
  const lost = drafted ? `. ${whole(rolledBack)} of ${plural(drafted, "drafted token")} rolled back.` : ". Nothing was drafted.";
  if (!run.dial) return [...wrote, lost];
  const passes = whole(strictRounds) === whole(rounds) ? "" : ` in ${plural(strictRounds, "pass", "es")}`;
  if (!fromStrict) return [...wrote, `${lost} ${other.begin} the same${strictExact ? passes : ""}.`];
  const theirs = strictExact ? ` ${other.begin} ${plural(strictTokens, "token")} in ${plural(strictRounds, "pass", "es")}. First` : " First";
  return [...wrote, `${lost}${theirs}`, ...difference(other, fromStrict)];
}

/** What a setting is compared with: the rule's strict end, or where the dial is a controller's threshold drafts that nothing cuts. */
function besideWhat(dial) {
  if (dial?.cuts) return { name: "full drafts", needs: "need", as: "as full drafts", begin: "Full drafts write" };
  return { name: "strict", needs: "needs", as: "as strict", begin: "Strict writes" };
}

/** What strict takes: for its own text where that is known, else for as many tokens as there are here. */
function strictPasses({ strictExact, strictRounds, strictTokens }) {
  return strictExact ? `${whole(strictRounds)} for ${whole(strictTokens)}` : `about ${whole(strictRounds)}`;
}

/** The sentence as it is heard, with what its numbers stand on. */
export function heardSentence(run, parts, basis) {
  return `${heardWords(run, parts)} These numbers are ${basis}.`;
}

/** Parts of a sentence as they are heard; a token is spelled out as in its name. */
function heardWords(run, parts) {
  return parts.map((part) => (typeof part === "string" ? part : `“${spoken(tokenText(run, part).trim() || tokenText(run, part))}”`)).join("");
}

/** The text of a part that is a token, of this run where it does not name its own. */
function tokenText(run, part) {
  return (part.run ?? run).pieces.text[part.token];
}

/**
 * A sentence of strings and tokens. Its elements stay as long as strings and tokens alternate in the same way, and its
 * place only ever grows, so that nothing around it is laid out anew when its words change.
 */
class Words {
  /** `behind` stands behind the sentence, `name` is its class. */
  constructor(behind, name = "sentence") {
    this.form = null;
    this.words = h("span", { class: "words" });
    const text = h("div", {}, this.words, " ", behind);
    this.element = h("div", { class: name }, text);
    this.lines = new ResizeObserver(([{ contentRect }]) => this.fit(contentRect));
    this.lines.observe(text);
  }

  fit({ width, height }) {
    const room = width === this.width ? Math.max(height, this.room) : height;
    if (width === this.width && room === this.room) return;
    [this.width, this.room] = [width, room];
    this.element.style.setProperty("--room", this.element.className === "sentence" ? `max(2.9em, ${room}px)` : `${room}px`);
  }

  show(run, parts) {
    const form = parts.map((part) => (typeof part === "string" ? "s" : "t")).join("");
    if (form !== this.form) {
      this.form = form;
      this.parts = parts.map((part) => (typeof part === "string" ? document.createTextNode("") : quote()));
      this.words.replaceChildren(...this.parts.map((part) => part.element ?? part));
    }
    parts.forEach((part, i) => {
      if (typeof part !== "string") this.parts[i].show(part.run ?? run, part.token, true);
      else if (this.parts[i].data !== part) this.parts[i].data = part;
    });
  }
}
