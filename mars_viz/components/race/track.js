// One lane: its rounds as tokens in the explorer's looks, shown as far as a clock has come. Token text is data.

const GONE = ["rejected", "discarded"];
const FRESH = 2; // the last rounds whose rolled-back tokens stay in sight

/** Grows with what it is given; `show(seconds)` or `showAll()` say how much of it is seen. */
class Track {
  constructor({ title, note, judged }) {
    this.judged = judged; // else nobody decided anything, and the tokens have no outcome
    this.listed = new Listed(`Text of ${title}`, { class: "track-text" });
    this.text = this.listed.element;
    this.count = h("span", { class: "track-count" });
    this.element = h("section", { class: "track-lane", "aria-label": title },
      h("header", { class: "track-head" }, h("strong", {}, title), this.count), note ? h("p", { class: "track-note" }, note) : null, this.text);
    this.rounds = [];
    this.drafted = [];
    this.settled = [];
    this.sums = [{ tokens: 0, lost: 0 }];
    this.settledShown = 0;
    this.draftedShown = 0;
  }

  prompt(text) {
    if (text) this.text.append(h("span", { class: "prompt", role: "presentation" }, text.length > 600 ? `…${text.slice(-600)}` : text));
  }

  /** Take on the rounds beyond those that it has. */
  grow(rounds, pieces, looks) {
    for (const { drafted, settled, tokens, emission } of rounds.slice(this.rounds.length)) {
      const { tokens: written, lost } = this.sums.at(-1);
      let index = written;
      const made = (text, look, ratio, more) => {
        const own = GONE.includes(look) ? null : index++;
        return token(text, look, tokenLabel(own, text, this.judged && look, ratio), more);
      };
      const spans = tokens.map(([piece, look, ratio]) => made(pieces[piece], looks[look], ratio));
      if (emission) spans.push(made(pieces[emission[0]], looks[emission[1]], emission[2], " emission"));
      const round = h("span", { class: "r", role: "presentation", "data-round": `round ${this.rounds.length + 1}`, "data-state": "ahead" }, ...spans);
      this.text.append(round);
      this.rounds.push(round);
      this.drafted.push(drafted);
      this.settled.push(settled);
      const gone = tokens.filter(([, look]) => GONE.includes(looks[look])).length;
      this.sums.push({ tokens: written + tokens.length - gone + (emission ? 1 : 0), lost: lost + gone });
    }
  }

  /** As it stood at this moment of the recorded clock. */
  show(seconds) {
    this.stand(passed(this.settled, seconds), passed(this.drafted, seconds), FRESH);
    const { tokens, lost } = this.sums[this.settledShown];
    const over = this.settledShown === this.rounds.length;
    const pace = this.settledShown ? tokens / this.settled[this.settledShown - 1] : 0;
    say(this.count, `${over ? "done · " : ""}${tokens} tokens · ${Math.round(pace)} tokens/s · ${lost} rolled back`);
  }

  /** Everything that there is. */
  showAll() {
    this.stand(this.rounds.length, this.rounds.length, this.rounds.length);
  }

  /** What is settled says what became of it; before that nobody knew. */
  enter(round, state) {
    round.dataset.state = state;
    for (const token of round.children) {
      const words = state === "settled" || state === "past" ? token.names.settled : token.names.drafted;
      if (token.title === words) continue;
      token.title = words;
      token.setAttribute("aria-label", words);
    }
  }

  stand(settled, drafted, fresh) {
    const follows = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 60;
    const moved = settled !== this.settledShown || drafted !== this.draftedShown;
    const first = Math.max(0, Math.min(settled, this.settledShown) - fresh);
    const last = Math.min(this.rounds.length, Math.max(settled, drafted, this.settledShown, this.draftedShown));
    for (let r = first; r < last; r++) {
      const state = r < settled ? (r >= settled - fresh ? "settled" : "past") : r < drafted ? "drafted" : "ahead";
      if (this.rounds[r].dataset.state !== state) this.enter(this.rounds[r], state);
    }
    this.listed.holds(settled || drafted);
    this.settledShown = settled;
    this.draftedShown = drafted;
    if (this.listed.chosen && !this.listed.chosen.getClientRects().length) this.listed.leave();
    if (moved && follows) this.text.scrollTop = this.text.scrollHeight;
  }
}

/** `words` name the token once its round is settled; until then it is a draft. */
function token(text, look, words, more = "") {
  const element = fill(h("span", { role: "option" }), text);
  element.className = `t ${look}${element.kind}${more}`;
  element.names = { settled: words, drafted: tokenLabel(null, text) };
  return element;
}
