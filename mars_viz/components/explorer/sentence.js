// The sentence above the numbers: its words, and its place.

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
  const exact = values.strictExact;
  const asOften = whole(values.strictRounds) === whole(values.rounds);
  if (!fromStrict) {
    const tokens = plural(values.tokens, "token");
    const often = asOften ? ` for ${tokens}, as the strict rule does` : ` instead of ${whole(values.strictRounds)} for the same ${tokens}`;
    return [`${ran}${often}, and ${away}.`];
  }
  const differs = [`, and the text first differs from strict at token ${whole(fromStrict.index + 1)}`];
  if (fromStrict.left >= 0 && fromStrict.right >= 0) {
    differs.push(" (", { token: fromStrict.left }, " instead of ", { token: fromStrict.right }, ")");
  }
  if (exact && values.strictTokens !== values.tokens) return [`${ran} ${otherLength(values)}`, ...differs, "."];
  const about = exact ? "" : "about ";
  const spared = Math.round(values.sparedDrafts);
  const drafts = spared ? `${about}${plural(Math.abs(spared), `${spared < 0 ? "more" : "fewer"} drafted token`)}` : `${about}as many drafted tokens`;
  const thrown = `${drafts} ${be(Math.abs(spared))} thrown away`;
  const often = asOften ? `, ${about}as often as the strict rule` : ` instead of ${about}${whole(values.strictRounds)}`;
  return [`${ran}${often}, ${thrown}`, ...differs, "."];
}

/** Beside a strict text of another length, counts alone would tell of a saving or a loss that is not there. */
function otherLength({ tokens, tau, rolledBack, strictTokens, strictRounds, strictTau, strictRolledBack }) {
  return `for ${plural(tokens, "token")}, strict ${times(strictRounds)} for the ${whole(strictTokens)} of its own text: ` +
    `${short(tau)} tokens a time instead of ${short(strictTau)}; ${plural(rolledBack, "drafted token")} ${rolledBack === 1 ? "was" : "were"} thrown away, ` +
    `by strict ${whole(strictRolledBack)}`;
}

/** The sentence as it is heard, with what its numbers stand on; a token is spelled out as in its name. */
export function heardSentence(run, parts, basis) {
  const told = parts.map((part) => (typeof part === "string" ? part : `“${spoken(run.pieces.text[part.token].trim() || run.pieces.text[part.token])}”`));
  return `${told.join("")} These numbers are ${basis}.`;
}

/**
 * A sentence of strings and tokens. Its elements stay as long as strings and tokens alternate in the same way, and its
 * place only ever grows, so that nothing around it is laid out anew when its words change.
 */
class Words {
  /** `behind` stands behind the sentence. */
  constructor(behind) {
    this.form = null;
    this.words = h("span", { class: "words" });
    const text = h("div", {}, this.words, " ", behind);
    this.element = h("div", { class: "sentence" }, text);
    this.lines = new ResizeObserver(([{ contentRect }]) => this.fit(contentRect));
    this.lines.observe(text);
  }

  fit({ width, height }) {
    const room = width === this.width ? Math.max(height, this.room) : height;
    if (width === this.width && room === this.room) return;
    [this.width, this.room] = [width, room];
    this.element.style.setProperty("--room", `max(2.9em, ${room}px)`);
  }

  show(run, parts) {
    const form = parts.map((part) => (typeof part === "string" ? "s" : "t")).join("");
    if (form !== this.form) {
      this.form = form;
      this.parts = parts.map((part) => (typeof part === "string" ? document.createTextNode("") : quote()));
      this.words.replaceChildren(...this.parts.map((part) => part.element ?? part));
    }
    parts.forEach((part, i) => {
      if (typeof part !== "string") this.parts[i].show(run, part.token, true);
      else if (this.parts[i].data !== part) this.parts[i].data = part;
    });
  }
}
