// The search in the text: its field, which a small button or the key / opens, and the tokens that it marks.

const MANY = 20000; // matches: to mark more takes longer than a frame, so those wait until the hand rests
const REST = 150; // ms
const KEPT_IN = ["keydown", "keyup", "keypress"]; // the page's own shortcuts, Streamlit's among them, are none of a field's

/** Of a stream; tells by `pick` of the slot to which somebody went. */
class Search {
  constructor({ stream, pick }) {
    Object.assign(this, { stream, pick, text: null, matches: [], at: 0, anchor: 0 });
    const button = (words, label, tip, onclick, name = "") => h("button", { type: "button", class: name, "aria-label": label, "data-tip": tip, onclick }, words);
    this.opener = h("button", { type: "button", class: "find", "aria-expanded": "false", "aria-label": "Find in the text", "aria-keyshortcuts": "/", "data-tip": "Find words in the text (/)", onclick: () => this.toggle() },
      h("span", { class: "lens", "aria-hidden": "true" }), h("span", { class: "find-word" }, "Find"));
    this.field = h("input", { type: "text", "aria-label": "Find in the text", placeholder: "Find in the text", autocomplete: "off", spellcheck: "false", oninput: () => this.typed() });
    this.count = h("span", { class: "found-count", role: "status" });
    this.steps = [[-1, "‹", "Previous match", "To the match before (Shift+Enter)"], [1, "›", "Next match", "To the next match (Enter)"]].map(([step, sign, label, tip]) => button(sign, label, tip, () => this.step(step)));
    this.cased = button("Aa", "Match case", "Tell upper from lower case", () => this.turnCase(), "cased");
    this.cased.setAttribute("aria-pressed", "false");
    this.bar = h("div", { class: "search", role: "search", hidden: true, onkeydown: (e) => this.key(e) },
      this.field, this.count, ...this.steps, this.cased, button("×", "Close the search", "Close the search (Escape)", () => this.close()));
    for (const name of KEPT_IN) this.bar.addEventListener(name, (event) => event.stopPropagation());
  }

  /** The key / opens the field, wherever the focus is but in a field. */
  heard(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    event.preventDefault();
    this.open();
  }

  toggle() {
    if (this.bar.hidden) this.open();
    else this.close();
  }

  open() {
    this.bar.hidden = false;
    this.opener.setAttribute("aria-expanded", "true");
    this.field.focus();
    this.field.select();
    this.anchor = this.inView();
    this.follow();
  }

  close() {
    this.bar.hidden = true;
    this.opener.setAttribute("aria-expanded", "false");
    this.text = null;
    this.mark([]);
    this.stream.element.focus({ preventScroll: true });
  }

  /** The index in the text of what is first in view. */
  inView() {
    const { stream } = this, [chunk] = stream.inView();
    stream.reading.count();
    return chunk ? stream.reading.starts[Math.min(chunk.first, stream.run.rounds)] : 0;
  }

  key(event) {
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && event.target === this.field) this.step(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
  }

  turnCase() {
    this.cased.setAttribute("aria-pressed", this.cased.getAttribute("aria-pressed") !== "true");
    this.typed();
  }

  /** Something else is searched for. */
  typed() {
    this.count.setAttribute("aria-live", "polite");
    this.find();
    if (this.matches.length) this.stream.reveal(this.slotsOf(this.matches[this.at])[0]);
  }

  /** The dial moved, or another run is shown: another text. */
  follow() {
    const { reading } = this.stream;
    if (this.bar.hidden || (this.text && reading.exact && reading === this.reading)) return;
    Object.assign(this, { reading, text: null });
    this.count.setAttribute("aria-live", "off"); // a hand that turns the dial would have every number read out
    clearTimeout(this.later);
    if (this.matches.length > MANY) this.later = setTimeout(() => this.bar.hidden || this.find(), REST);
    else this.find();
  }

  find() {
    if (!this.text) {
      const { slots, pieces } = writtenTokens(this.stream.reading);
      this.text = { slots, ...joinedText(this.stream.run, pieces) };
    }
    const { text, starts } = this.text;
    this.matches = occurrences(text, this.field.value, this.cased.getAttribute("aria-pressed") === "true");
    const from = starts[Math.min(this.anchor, starts.length - 1)];
    this.at = Math.max(0, this.matches.findIndex(([begin]) => begin >= from));
    this.mark(this.matches);
  }

  step(by) {
    if (!this.text) this.find();
    const { length } = this.matches;
    if (!length) return;
    this.count.setAttribute("aria-live", "polite");
    this.at = (this.at + by + length) % length;
    this.anchor = tokenAt(this.text.starts, this.matches[this.at][0]);
    this.mark(this.matches);
    this.pick(this.text.slots[this.anchor]);
  }

  /** The slots that a match lies in. */
  slotsOf([begin, end]) {
    const { slots, starts } = this.text;
    return slots.subarray(tokenAt(starts, begin), tokenAt(starts, end - 1) + 1);
  }

  mark(matches) {
    const found = new Set();
    for (const match of matches) for (const slot of this.slotsOf(match)) found.add(slot);
    this.stream.marks.show("found", found);
    this.stream.marks.show("here", matches.length ? new Set(this.slotsOf(matches[this.at])) : NO_SLOTS);
    say(this.count, this.words);
    for (const step of this.steps) step.disabled = !matches.length;
  }

  /** The same once the hand rests, for who hears it. */
  get told() {
    return this.words && `“${this.field.value.trim()}”: ${this.words}.`;
  }

  /** How many there are, and which is the one that is gone to. */
  get words() {
    if (this.bar.hidden || !this.field.value.trim()) return "";
    return this.matches.length ? `${whole(this.at + 1)} of ${whole(this.matches.length)}` : "not in this text";
  }
}
