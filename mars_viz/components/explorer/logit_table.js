// The best tokens of one distribution with their logits, as the inspector shows them.

/** A law's best tokens with raw logits and plain softmax. The drafted token stands out, below the line if need be. */
class LogitTable {
  constructor(title, width) {
    this.lines = Array.from({ length: width + 1 }, () => ({ token: quote(), logit: h("td"), bar: h("span", { class: "bar" }), p: h("span") }));
    this.rows = this.lines.map(({ token, logit, bar, p }) =>
      h("tr", {}, h("td", { class: "token" }, token.element), logit, h("td", { class: "share" }, bar, p)));
    this.table = h("table", { "aria-label": `Best tokens of the ${title.toLowerCase()}` }, h("thead", {}, h("tr", {}, h("th", {}, "token"), h("th", {}, "logit"), h("th", {}, "prob."))), h("tbody", {}, ...this.rows));
    this.none = h("p", { class: "aside" }, "no draft here");
    this.element = h("div", { class: "law" },
      h("h2", { "data-tip": "Its best tokens at this place: raw logit, and probability by a plain softmax of the raw logits.", tabindex: "0" }, title),
      this.table, this.none);
  }

  blank() {
    say(this.none, "no draft here");
    this.shown = null;
    this.table.hidden = true;
    this.none.hidden = false;
  }

  /** Row `at` of a law; `node` is the drafted token's where its logit is known though it is none of the best. */
  show(run, law, at, marked, node, written) {
    const asked = [at, marked, node, written].join();
    if (asked === this.shown && law === this.law) return; // as in most frames of a drag
    this.shown = asked;
    this.law = law;
    const width = law.top;
    const known = (i) => !Number.isNaN(law.top_logit[at * width + i]); // a report may leave candidates out
    this.table.hidden = !known(0);
    this.none.hidden = known(0);
    say(this.none, "not in this report");
    let found = false;
    for (let i = 0; i < width; i++) {
      this.rows[i].hidden = !known(i);
      if (!known(i)) continue;
      const piece = law.top_token[at * width + i];
      found ||= piece === marked;
      this.line(i, run, piece, law.top_logit[at * width + i], law.logsumexp[at], piece === marked ? "chosen" : piece === written ? "written" : "");
    }
    this.rows[width].hidden = found || node < 0;
    if (!this.rows[width].hidden) this.line(width, run, marked, run.nodes.z[node], law.logsumexp[at], "chosen");
  }

  line(i, run, piece, z, logsumexp, name) {
    const { token, logit, bar, p } = this.lines[i];
    const chance = Math.exp(z - logsumexp);
    token.show(run, piece);
    say(logit, short(z));
    bar.style.setProperty("--p", chance);
    say(p, percent(chance));
    if (this.rows[i].className !== name) this.rows[i].className = name;
  }
}
