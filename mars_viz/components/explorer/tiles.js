// The numbers under the dial, and the tags that say what kind of number each group is.

const TAGS = {
  exact: "Exact: on the text that this very setting generates, by the models' answers when the map was made. A separate run may differ if two candidates tie within rounding, which depends on the batch.",
  "block-local": "Block-local: each block is judged on the prefix recorded at the run's own setting. From the first changed decision on, this setting would have reached other prefixes.",
  measured: "Measured: wall clock of the recorded decoding, on this device.",
};

const TILES = [
  { group: "run", name: "tau", label: "τ", tip: "Acceptance length: τ = tokens / target passes, the pass over the prompt not counted.", read: (n) => short(n.tau) },
  { group: "run", name: "acceptance", label: "acceptance", tip: "Acceptance rate: kept drafted tokens / drafted tokens.", read: (n) => percent(n.acceptance) },
  { group: "run", name: "rolled_back", label: "rolled back", tip: "Drafted tokens that did not reach the text: drafted − kept.", read: (n) => whole(n.rolledBack) },
  { group: "run", name: "saved_autoregressive", label: "passes saved vs autoregressive", tip: "Target passes saved against decoding one token a pass: tokens − target passes.", read: (n) => whole(n.savedAutoregressive) },
  { group: "strict", name: "saved_strict", label: "passes saved vs strict", read: (n) => (n.strictExact ? whole(n.savedStrict) : Math.abs(n.savedStrict) < 0.05 ? "0.0" : n.savedStrict.toFixed(1).replace("-", "−")) },
  { group: "clock", name: "speed", label: "tokens/s" },
];

/** What the rule does where a ratio means nothing. */
export function forcedWords(count) {
  return `At ${plural(count, "drafted runner-up")} the best logit z1 is at or below 0, where z2/z1 means nothing: there the rule is strict.`;
}

/** What the passes saved against strict stand on, with the numbers of both texts. */
export function besideStrict({ strictExact, tokens, rounds, tau, strictTokens, strictRounds, strictTau }, cuts = false) {
  const what = cuts ? "Target passes saved against drafts of full length" : "Target passes saved against the rule's strict end";
  const strict = `${plural(strictTokens, "token")} in ${plural(strictRounds, "round")} (τ ${short(strictTau)})`;
  if (!strictExact) return `${what}, about: strict yields ${short(strictTau)} tokens a round on the same blocks, so ${plural(tokens, "token")} would take it ${short(strictRounds)} rounds; less ${whole(rounds)}.`;
  const both = `${what}: the rounds of its own text less those of this one. This text: ${plural(tokens, "token")} in ${plural(rounds, "round")} (τ ${short(tau)}); ${cuts ? "full drafts" : "strict"}: ${strict}.`;
  return tokens === strictTokens ? both : `${both} The texts differ in length, so this is no saving or loss by itself: compare τ.`;
}

/** A tag; `mark` gives it its name. */
function tag() {
  return h("span", { class: "tag", tabindex: "0" });
}

function mark(element, name) {
  const tip = TAGS[name];
  if (element.dataset.tip === tip) return;
  element.dataset.tag = name;
  element.dataset.tip = tip;
  say(element, name);
}

class Tiles {
  constructor() {
    this.cells = {};
    this.pinned = {}; // the pinned setting's numbers beside those
    this.groups = {};
    this.at = h("span", { class: "at" }); // the setting at which it was measured, wherever the dials stand now
    const groups = ["run", "strict", "clock"].map((group) => {
      this.groups[group] = tag();
      const tiles = TILES.filter((tile) => tile.group === group).map(({ name, label, tip }) => {
        this.cells[name] = h("dd", { "data-number": name });
        this.pinned[name] = h("dd", { class: "was", hidden: true });
        return h("div", { class: `tile ${name}`, "data-tip": tip ?? "", tabindex: "0" }, h("dt", {}, label), this.cells[name], this.pinned[name]);
      });
      return h("div", { class: "group" }, h("dl", {}, ...tiles), group === "clock" ? this.at : null, this.groups[group]);
    });
    this.forced = h("p", { class: "forced aside" });
    this.element = h("div", { class: "numbers" }, ...groups, this.forced);
  }

  /** What was measured while the run was decoded, and stays whatever the dials say. */
  open(run) {
    this.cuts = Boolean(run.dial?.cuts);
    say(this.cells.saved_strict.previousSibling, `passes saved vs ${this.cuts ? "full drafts" : "strict"}`);
    this.forced.hidden = !run.forced.some(Boolean); // else its room is kept at every dial value
    const { seconds, device, dtype, target, drafter, gamma, recorded_gamma: ownGamma, tree, recorded_tokens: tokens } = run.about;
    say(this.cells.speed, seconds > 0 ? short(tokens / seconds) : "–");
    const settings = [this.cuts ? "full drafts" : run.dial && `${run.dial.symbol} = ${dialText(run.dial.recorded)}`, gamma !== ownGamma && `${lengthName(tree)} = ${ownGamma}`].filter(Boolean);
    say(this.at, settings.length ? `at the recorded ${settings.join(", ")}` : "");
    const models = target && drafter ? ` Target ${target}, drafter ${drafter}.` : "";
    const on = [device.full || device.short || "an unknown device", dtype].filter(Boolean).join(", ");
    this.cells.speed.parentElement.dataset.tip = `Tokens of the recorded text / seconds of its decoding, prefill excluded, on ${on}.${models}`;
  }

  /** Have these numbers, the pinned setting's, beside those of the one shown; null for none. */
  compare(values) {
    for (const { name, read: text } of TILES) {
      this.pinned[name].hidden = !values || !text;
      if (values && text) say(this.pinned[name], `pinned ${text(values)}`);
    }
  }

  /** What waits until the hand rests: nobody can hover while it moves. */
  explain({ values }) {
    this.cells.saved_strict.parentElement.dataset.tip = besideStrict(values, this.cuts);
  }

  /** What follows from the dial. */
  show({ values, local, forced }) {
    say(this.forced, forced ? forcedWords(forced) : "");
    mark(this.groups.run, local ? "block-local" : "exact");
    mark(this.groups.strict, values.strictExact && !local ? "exact" : "block-local");
    mark(this.groups.clock, "measured");
    for (const { name, read: text } of TILES) if (text) say(this.cells[name], text(values));
  }
}
