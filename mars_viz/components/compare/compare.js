// Two texts side by side, the way through the others, and the traffic with Python.

const COLOURS = {
  difference: { label: "Difference", keys: KINDS_OF_DIFFERENCE },
  outcome: { label: "Outcome", keys: NAMES.slice(0, 6).map((name) => [name, name]) },
};

const HELP = "Choose a token to see its outcome in both texts. In a text, arrow keys move between tokens and Page Up and Page Down switch texts; elsewhere left and right switch.";
const OF_TREES = " t unfolds the draft tree of the chosen token's round.";

class Compare {
  constructor(parent) {
    this.sides = ["left", "right"].map((name) => new Side({ name, picked: (side, slot) => this.picked(side, slot) }));
    this.heads = this.sides.map(() => ({ name: h("bdi", { class: "name" }), detail: h("span", { class: "detail" }) }));
    this.linked = new Linked(...this.sides);
    this.lanes = new Lanes({ chosen: (key) => this.show(key) });
    this.count = h("span", { class: "count", "aria-live": "polite" });
    this.arrows = [[-1, "‹", "Previous text"], [1, "›", "Next text"]].map(([step, sign, words]) =>
      h("button", { type: "button", class: "arrow", "aria-label": words, title: `${words} (${step < 0 ? "left" : "right"} arrow key, in a text Page ${step < 0 ? "Up" : "Down"})`, onclick: () => this.leaf(step) }, sign));
    this.pin = h("button", { type: "button", class: "pin", onclick: () => this.pinned(), title: "Compare the others with this text" }, "Pin as reference");
    this.jump = h("button", { type: "button", class: "pin", onclick: () => this.leap(), title: "From the chosen token on, and from the end to the first again" }, "Next difference");
    this.radios = Object.entries(COLOURS).map(([name, { label }]) =>
      h("button", { type: "button", role: "radio", "data-colour": name, onclick: () => this.colour(name) }, label));
    this.choice = h("div", { class: "overlays", role: "radiogroup", "aria-label": "Colour the tokens by", onkeydown: (e) => this.turn(e) }, ...this.radios);
    this.legend = h("div", { class: "legend" });
    this.said = h("p", { class: "said" });
    this.root = h("div", { class: "explorer compare" },
      h("div", { class: "reading" }, this.choice, this.legend, this.jump),
      h("div", { class: "pair" },
        this.pane(0, h("span", { class: "tag" }, "reference")),
        this.pane(1, h("span", { class: "leafing" }, this.arrows[0], this.count, this.arrows[1]), this.pin)),
      this.said, this.lanes.element);
    this.root.addEventListener("keydown", (event) => this.key(event), { capture: true });
    this.anywhere = (event) => event.target === document.body && this.key(event);
    document.addEventListener("keydown", this.anywhere);
    this.tip = new Tip(this.root);
    parent.append(this.root);
  }

  pane(index, ...beside) {
    const { name, detail } = this.heads[index];
    return h("section", { class: `pane ${index ? "right" : "left"}` }, h("header", {}, name, ...beside, detail), this.sides[index].frame);
  }

  // ---- what comes from Python

  receive(data) {
    themed(this.root);
    if (data.id === this.id) return;
    const { id, pair, order, reference, shown, colour } = data;
    if (shown !== this.drawn || reference !== this.reference) this.drop();
    Object.assign(this, { id, order, reference, shown, drawn: shown, positions: pair.positions });
    this.paint(colour);
    [pair.left, pair.right].forEach((pane, index) => {
      say(this.heads[index].name, pane.name);
      say(this.heads[index].detail, pane.detail);
      this.sides[index].open(pane);
    });
    this.linked.measure();
    this.linked.led = null;
    this.linked.follow(this.sides[0]); // the reference stays where it was read
    for (const side of this.sides) side.name();
    this.jump.hidden = pair.left.parts === null && pair.right.parts === null;
    this.lanes.show(data);
    this.tally();
    say(this.said, this.sides.some(({ trees }) => trees) ? HELP + OF_TREES : HELP);
    this.choose(this.held ?? data.token);
    this.root.classList.remove("turning");
  }

  // ---- what the hand does

  show(key) {
    if (key === this.shown) return;
    this.drop();
    this.shown = key;
    this.lanes.press(key);
    this.tally();
    this.root.classList.add("turning");
    this.ask("show", key);
  }

  pinned() {
    this.drop();
    this.drawn = null;
    this.ask("pin", this.shown);
  }

  leaf(step) {
    const { order } = this;
    if (!order.length) return;
    const at = order.indexOf(this.shown);
    this.show(order[at < 0 ? (step > 0 ? 0 : order.length - 1) : (at + step + order.length) % order.length]);
  }

  tally() {
    const at = this.order.indexOf(this.shown);
    say(this.count, at < 0 ? `– of ${whole(this.order.length)}` : `${whole(at + 1)} of ${whole(this.order.length)}`);
    for (const arrow of this.arrows) arrow.disabled = this.order.length < (at < 0 ? 1 : 2);
    this.pin.disabled = at < 0;
  }

  /** Page Up and Page Down leaf; so do left and right, but for a text, where they move between tokens; in the strip, whose texts stand
   * below one another, up and down as well. */
  key(event) {
    const inText = event.target.closest(".stream");
    const inStrip = event.target.closest(".list");
    const step = { PageUp: -1, PageDown: 1, ...(!inText && { ArrowLeft: -1, ArrowRight: 1 }), ...(inStrip && { ArrowUp: -1, ArrowDown: 1 }) }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.target.closest("[role=radiogroup]")) return;
    if (event.key.startsWith("Page") && event.target === document.body) return; // there they scroll the page
    event.preventDefault();
    event.stopPropagation();
    this.leaf(step);
  }

  turn(event) {
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    const other = this.radios.find((radio) => radio.getAttribute("aria-checked") !== "true");
    other.focus();
    this.colour(other.dataset.colour);
  }

  colour(name) {
    if (name === this.root.dataset.by) return;
    this.paint(name);
    this.linked.measure(); // drafts come or go
    this.ask("colour", name);
  }

  paint(name) {
    this.root.dataset.by = name;
    for (const radio of this.radios) {
      const on = radio.dataset.colour === name;
      radio.setAttribute("aria-checked", on);
      radio.tabIndex = on ? 0 : -1;
    }
    this.legend.replaceChildren(...legendOf(COLOURS[name].keys));
  }

  /** Select the token of a link, such as 'left-12', where there is one. */
  choose(token) {
    const [name, slot] = token.split("-");
    const side = this.sides.find(({ prefix }) => prefix === `${name}-`);
    if (side && Number(slot) < side.run.slots) this.pick(side, Number(slot));
  }

  /** A token was chosen by hand: Python hears of it once the hand rests, and until then knows an earlier one. */
  picked(side, slot) {
    this.pick(side, slot);
    if (this.shown !== this.drawn) return; // of a text that is about to make room, and slots of the next one are others
    this.held = `${side.prefix}${slot}`;
    clearTimeout(this.resting); // a key that is held passes many
    this.resting = setTimeout(() => this.ask("token", this.held), 250);
  }

  /** Forget the chosen token, for it is one of texts that are left. */
  drop() {
    clearTimeout(this.resting);
    this.held = null;
  }

  /** A token, and what stands at the same place of the other text. */
  pick(side, slot) {
    this.on = side;
    const index = side.reading.textIndex(slot);
    const words = this.sides.map((each) => {
      const at = each === side ? slot : this.positions ? each.slotAt(index) : null;
      each.select(at, each === side);
      return at === null ? null : `${each.pane.name}: ${each.reading.label(at)}`;
    });
    say(this.said, words.filter(Boolean).join(" · "));
  }

  /** On to the next difference behind the chosen token; after the last one to the first. */
  leap() {
    const found = differencesOf(...this.sides.map(({ common }) => common), this.positions);
    if (!found.length) return;
    const here = this.reached(this.sides[found[0].side]);
    const to = found.find(({ before }) => before > here) ?? found[0];
    const side = this.sides[to.side];
    const slot = side.slotAt(to.index);
    this.picked(side, slot);
    this.linked.show(side, slot);
  }

  /** How many tokens in common lie before the chosen one. In texts that do not share theirs in pairs only those of one are counted: a
   * token of the other stands for the round that starts where its own does. */
  reached(counted) {
    if (!this.on) return -1;
    if (this.positions || this.on === counted) return this.on.inCommon();
    const round = this.on.partner();
    return round === null ? -1 : counted.inCommonAt(round);
  }

  ask(what, value) {
    this.trigger("asked", { what, value });
  }

  close() {
    this.drop();
    document.removeEventListener("keydown", this.anywhere);
    this.linked.close();
    for (const side of this.sides) side.places.close();
    this.root.remove();
  }
}

export default function compare(page) {
  return mounted(page, (place) => new Compare(place));
}
