// Two texts side by side, as they were written: no rounds and no drafts, only what either says and where they part.

class Texts {
  constructor(parent) {
    this.panes = ["left", "right"].map((name) => new TextPane(name));
    this.jump = h("button", { type: "button", class: "pin", onclick: () => this.leap(), title: "In both texts, and from the last to the first again" }, "Next difference");
    this.count = h("span", { class: "count", "aria-live": "polite" });
    this.root = h("div", { class: "explorer compare texts", "data-by": "difference" },
      h("div", { class: "reading" }, h("div", { class: "legend" }, ...legendOf(KINDS_OF_DIFFERENCE)), this.jump, this.count),
      h("div", { class: "pair" }, ...this.panes.map(({ element }) => element)));
    parent.append(this.root);
  }

  receive(data) {
    themed(this.root);
    if (data.id === this.id) return;
    this.id = data.id;
    this.panes[0].show(data.left, data.prompt);
    this.panes[1].show(data.right, data.prompt);
    this.found = differencesOf(...this.panes.map(({ common }) => common), data.positions);
    Object.assign(this, { positions: data.positions, at: -1 });
    this.jump.hidden = !this.found.length;
    say(this.count, "");
  }

  /** On to the next difference; after the last one to the first. Of two vocabularies the other text follows in proportion. */
  leap() {
    this.at = (this.at + 1) % this.found.length;
    const { side, index, before } = this.found[this.at];
    const led = this.panes[side];
    for (const pane of this.panes) {
      pane.reveal(pane === led ? index : this.positions ? pane.behind(before) : Math.round((index / led.built.length) * pane.built.length), pane === led);
    }
    say(this.count, `${this.at + 1} of ${this.found.length}`);
  }

  close() {
    this.root.remove();
  }
}

class TextPane {
  constructor(name) {
    this.name = h("bdi", { class: "name" });
    this.detail = h("span", { class: "detail" });
    this.stream = h("div", { class: "stream", role: "region", tabindex: "0" });
    const tag = name === "left" ? h("span", { class: "tag" }, "reference") : null;
    this.element = h("section", { class: `pane ${name}` }, h("header", {}, this.name, tag, this.detail), this.stream);
  }

  show({ name, detail, pieces, tokens, common, parts }, prompt) {
    say(this.name, name);
    say(this.detail, detail);
    this.stream.setAttribute("aria-label", `Text of ${spoken(name)}`);
    this.common = spread(common);
    this.built = tokens.map((piece, index) => {
      const { text, special } = pieces[piece];
      const token = fill(h("span"), text);
      token.className = `t${differenceOf(this.common, parts, index)}${token.kind}${special ? " special" : ""}`;
      return token;
    });
    this.stream.replaceChildren(h("div", { class: "chunk built" }, ...(prompt ? [promptBefore(prompt)] : []), ...this.built));
    this.stream.scrollTop = 0;
    this.marked = null;
  }

  /** The index behind so many tokens in common. */
  behind(before) {
    let index = 0;
    for (let left = before; left > 0 && index < this.common.length; index++) left -= this.common[index];
    return index;
  }

  /** A token into view, or the last one where the text is over before it; the page stays where it is. */
  reveal(index, mark) {
    this.marked?.classList.remove("selected");
    const token = this.built[Math.min(index, this.built.length - 1)];
    this.marked = mark ? token : null;
    this.marked?.classList.add("selected");
    if (!token) return;
    const at = token.getBoundingClientRect().top - this.stream.getBoundingClientRect().top;
    this.stream.scrollTop += at - this.stream.clientHeight / 3;
  }
}

export default function texts(page) {
  return mounted(page, (place) => new Texts(place));
}
