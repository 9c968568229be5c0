// One lane: its rounds as tokens in the explorer's looks, shown as far as a clock has come. Token text is data.

const FRESH = 2; // the last rounds whose rolled-back tokens stay in sight

/** Grows with what it is given; `show(seconds)` or `showAll()` say how much of it is seen. */
class Track {
  constructor({ title, note }) {
    this.text = h("div", { class: "track-text", tabindex: "0", role: "log", "aria-label": `Text of ${title}`, "aria-live": "off" });
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
    if (text) this.text.append(h("span", { class: "prompt" }, text.length > 600 ? `…${text.slice(-600)}` : text));
  }

  /** Take on the rounds beyond those that it has. */
  grow(rounds, pieces, looks) {
    for (const { drafted, settled, tokens, emission } of rounds.slice(this.rounds.length)) {
      const spans = tokens.map(([piece, look]) => token(pieces[piece], looks[look]));
      if (emission) spans.push(token(pieces[emission[0]], looks[emission[1]], " emission"));
      const round = h("span", { class: "r", "data-round": `round ${this.rounds.length + 1}`, "data-state": "ahead" }, ...spans);
      this.text.append(round);
      this.rounds.push(round);
      this.drafted.push(drafted);
      this.settled.push(settled);
      const { tokens: written, lost } = this.sums.at(-1);
      const gone = tokens.filter(([, look]) => looks[look] === "rejected" || looks[look] === "discarded").length;
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

  stand(settled, drafted, fresh) {
    const follows = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 60;
    const moved = settled !== this.settledShown || drafted !== this.draftedShown;
    const first = Math.max(0, Math.min(settled, this.settledShown) - fresh);
    const last = Math.min(this.rounds.length, Math.max(settled, drafted, this.settledShown, this.draftedShown));
    for (let r = first; r < last; r++) {
      const state = r < settled ? (r >= settled - fresh ? "settled" : "past") : r < drafted ? "drafted" : "ahead";
      if (this.rounds[r].dataset.state !== state) this.rounds[r].dataset.state = state;
    }
    this.settledShown = settled;
    this.draftedShown = drafted;
    if (moved && follows) this.text.scrollTop = this.text.scrollHeight;
  }
}

function token(text, look, more = "") {
  const element = fill(h("span"), text);
  element.className = `t ${look}${element.kind}${more}`;
  element.title = look;
  return element;
}
