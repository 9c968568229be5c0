// The guide: cards about the explorer beside it. A card outlines what it is about, and is complete once its action is done.

const GUIDE = "mars-viz-guide"; // in the tab's memory: the card that is shown, those that are complete, whether it is closed
const GOES_ON = 1600; // ms from the completion of a card to the next
const OUTLINE = "#b5558c"; // more than 3 : 1 on both themes' grounds

class Guide {
  constructor(parent) {
    this.outlines = new CSSStyleSheet();
    this.progress = h("span", { class: "progress" });
    this.dots = h("span", { class: "dots", "aria-hidden": "true" });
    this.skip = this.button("Skip", () => this.turn({ closed: true }), "Skip the guide");
    this.title = h("h2");
    this.text = h("p");
    this.words = h("span");
    this.done = h("p", { class: "done" });
    this.back = this.button("Back", () => this.step(-1), "Back to the card before");
    this.next = this.button("Next", () => this.step(1), "Next card");
    this.show = this.button("Show me", () => this.reveal(), "Show me where");
    this.lesson = h("a", { onclick: (event) => this.teach(event) });
    this.open = h("section", { class: "guide", tabindex: "0", role: "group", "aria-label": "Guide; arrow keys move between cards", onkeydown: (event) => this.key(event) },
      h("header", {}, h("strong", {}, "Guide"), this.progress, this.dots, this.skip),
      h("div", { class: "card", "aria-live": "polite" }, this.title, this.text, h("p", { class: "try" }, h("b", {}, "Try it: "), this.words), this.done),
      h("footer", {}, this.back, this.next, this.show, this.lesson));
    this.reopen = this.button("Open the guide", () => this.turn({ closed: false }));
    this.root = h("div", {}, this.open, this.reopen);
    parent.append(this.root);
    this.place = this.root.getRootNode().host.closest(".st-key-first-minute");
    this.heard = new AbortController();
    const { signal } = this.heard;
    window.addEventListener("mars-viz-stands", ({ detail }) => this.turned(detail), { signal });
    window.addEventListener("click", (event) => this.clicked(event.composedPath()), { signal });
    window.addEventListener("keyup", (event) => this.clicked(event.composedPath(), true), { signal });
  }

  button(words, onclick, label = words) {
    return h("button", { type: "button", "aria-label": label, onclick }, words);
  }

  receive({ explorer, play, cards }) {
    themed(this.root);
    this.explorer = explorer;
    this.cards = cards;
    this.stop ??= playDial(this.place, explorer, play);
    const known = recall(GUIDE) ?? {};
    const at = cards.findIndex(({ id }) => id === known.at);
    this.completed = new Set(cards.map(({ id }) => id).filter((id) => known.done?.includes?.(id)));
    this.turn({ at: Math.max(at, 0), closed: known.closed === true });
  }

  get card() {
    return this.cards[this.at];
  }

  /** Show another card, or open or close the guide. */
  turn({ at = this.at, closed = this.closed }) {
    clearTimeout(this.going);
    const moves = this.closed !== undefined && closed !== this.closed;
    Object.assign(this, { at, closed });
    remember(GUIDE, { at: this.card.id, done: [...this.completed], closed });
    this.render();
    if (moves) (closed ? this.reopen : this.open).focus({ preventScroll: true });
  }

  step(by) {
    this.turn({ at: clamp(this.at + by, 0, this.cards.length - 1) });
  }

  render() {
    const { card, cards, completed, at, closed } = this;
    this.open.hidden = closed;
    this.reopen.hidden = !closed;
    this.place.dataset.guide = closed ? "closed" : "open";
    say(this.progress, `${at + 1} of ${cards.length}`);
    this.dots.replaceChildren(...cards.map(({ id }, i) => h("i", { class: [completed.has(id) && "complete", i === at && "here"].filter(Boolean).join(" ") })));
    say(this.title, card.title);
    say(this.text, card.text);
    say(this.words, card.action.words);
    say(this.done, completed.has(card.id) ? "✓ Done" : "");
    this.back.disabled = at === 0;
    this.next.disabled = at === cards.length - 1;
    this.lesson.hidden = !card.lesson;
    this.lesson.href = `learn?lesson=${card.lesson}`;
    say(this.lesson, `Lesson ${card.lesson}`);
    this.outline();
  }

  /** Outline what the card is about, in the explorer and on the page. */
  outline() {
    clearTimeout(this.looking);
    const root = explorerIn(this.place);
    for (const each of [document, root]) {
      if (each && !each.adoptedStyleSheets.includes(this.outlines)) each.adoptedStyleSheets = [...each.adoptedStyleSheets, this.outlines];
    }
    const about = `:is(${this.card.highlight})`;
    this.outlines.replaceSync(this.closed ? "" : `${about} { outline: 2px solid ${OUTLINE}; outline-offset: 1px; border-radius: 4px; }
      ${about}.r { --line: ${OUTLINE}; outline: none; border-radius: 0; box-shadow: 0 2px 0 -1px ${OUTLINE}; }`);
    if (!root) this.looking = setTimeout(() => this.outline(), LOOKS);
  }

  /** Scroll to what the card is about, and give it the focus if it takes one. */
  reveal() {
    const [part] = [explorerIn(this.place), document].map((root) => root?.querySelector(this.card.highlight)).filter(Boolean);
    if (!part) return;
    part.scrollIntoView({ block: "center" });
    (part.querySelector("[tabindex='0']") ?? part.closest("[tabindex='0'], button"))?.focus({ preventScroll: true });
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.step(by);
  }

  /** The explorer's dial has been turned. */
  turned({ key, turned, dial }) {
    const { turn, shows } = this.card.action;
    if (!turned || key !== this.explorer || !turn || dial < turn[0] || dial > turn[1]) return;
    if (!shows || explorerIn(this.place)?.querySelector(shows)) this.complete();
  }

  /** A click somewhere on the page, or a key, which may have selected a token. */
  clicked(path, key = false) {
    const { select, press } = this.card.action;
    const within = (selector) => path.some((each) => each.matches?.(selector));
    if (press && !key && within(press)) this.complete();
    if (select && within(key ? ".stream" : ".stream .t") && explorerIn(this.place)?.querySelector(`:is(${select}).selected`)) this.complete();
  }

  complete() {
    if (this.closed || this.completed.has(this.card.id)) return;
    this.completed.add(this.card.id);
    this.turn({});
    this.going = setTimeout(() => this.step(1), GOES_ON);
  }

  teach(event) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // into another tab
    event.preventDefault();
    this.trigger("lesson", this.card.lesson);
  }

  close() {
    this.stop?.();
    this.heard.abort();
    clearTimeout(this.going);
    clearTimeout(this.looking);
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== this.outlines);
    this.root.remove();
  }
}

export default function guide(page) {
  return mounted(page, (place) => new Guide(place));
}
