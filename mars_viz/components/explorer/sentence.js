// The sentence above the numbers: its words, and its place.

/**
 * The sentence above the numbers, in parts: strings, and `{ token }` for a token's text. `fromRecorded` is where the
 * blocks shown part from the recorded ones; null where they do not.
 */
export function sentence(run, dial, values, fromStrict, fromRecorded) {
  const other = besideWhat(run.dial);
  if (!run.rounds) return ["This run has no rounds: nothing was decoded."];
  const passes = `${plural(values.rounds, "target pass", "es")} for ${plural(values.tokens, "token")}`;
  const lost = `${plural(values.rolledBack, "drafted token")} rolled back`;
  const short = run.about.cut ? `, ${run.about.cut}` : "";
  if (!run.dial) return [`${run.rule.title} has no dial${short}: ${passes}; ${lost}.`];
  const gamma = short + (run.about.gamma === run.about.recorded_gamma ? "" : `, ${lengthName(run.about.tree)} = ${run.about.gamma}`);
  const judged = fromRecorded ? `, judged on the text recorded at ${dialText(run.dial.recorded)}` : "";
  const by = run.dial.cuts ? ` of ${run.dial.cuts}` : "";
  const cut = run.dial.cuts ? `, ${plural(values.drafted, "token")} drafted` : "";
  const ours = `At ${run.dial.symbol} = ${dialText(dial)}${by}${gamma}${judged}: ${passes}${cut}`;
  if (!fromStrict) {
    const needs = whole(values.strictRounds) === whole(values.rounds) ? other.as : `the text of ${other.name}, which ${other.needs} ${strictPasses(values)}`;
    return [`${ours}, ${needs}; ${lost}.`];
  }
  const about = values.strictExact ? "" : "about ";
  const first = [`. First difference from ${other.name}: token ${whole(fromStrict.index + 1)}`];
  if (fromStrict.left >= 0 && fromStrict.right >= 0) {
    first.push(" (", { token: fromStrict.left }, " instead of ", { token: fromStrict.right }, ")");
  }
  return [`${ours}; ${other.name} ${other.needs} ${strictPasses(values)}. ${lost}, ${about}${whole(values.strictRolledBack)} by ${other.name}`, ...first, "."];
}

/** What a setting is compared with: the rule's strict end, or where the dial is a controller's threshold drafts that nothing cuts. */
function besideWhat(dial) {
  return dial?.cuts ? { name: "full drafts", needs: "need", as: "as full drafts" } : { name: "strict", needs: "needs", as: "as strict" };
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
