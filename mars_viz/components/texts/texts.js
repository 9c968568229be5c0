// Two texts side by side, as they were written: no rounds and no drafts, only what either says and where they part.

class Texts {
  constructor(parent) {
    this.panes = ["left", "right"].map((name) => new TextPane(name));
    this.jump = h("button", { type: "button", class: "pin", onclick: () => this.panes.forEach((pane) => pane.showParting()) }, "Show the first difference");
    this.root = h("div", { class: "explorer compare texts", "data-by": "difference" },
      h("div", { class: "reading" }, h("div", { class: "legend" }, ...legendOf(KINDS_OF_DIFFERENCE)), this.jump),
      h("div", { class: "pair" }, ...this.panes.map(({ element }) => element)));
    parent.append(this.root);
  }

  receive(data) {
    themed(this.root);
    if (data.id === this.id) return;
    this.id = data.id;
    this.panes[0].show(data.left, data.prompt);
    this.panes[1].show(data.right, data.prompt);
    this.jump.hidden = data.left.parts === null && data.right.parts === null;
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
    const kinds = spread(common);
    const built = tokens.map((piece, index) => {
      const { text, special } = pieces[piece];
      const token = fill(h("span"), text);
      token.className = `t${differenceOf(kinds, parts, index)}${token.kind}${special ? " special" : ""}`;
      return token;
    });
    this.parting = parts === null ? null : built[parts];
    this.stream.replaceChildren(h("div", { class: "chunk built" }, ...(prompt ? [promptBefore(prompt)] : []), ...built));
    this.stream.scrollTop = 0;
  }

  /** The first difference into view; the page stays where it is. */
  showParting() {
    if (!this.parting) return;
    const at = this.parting.getBoundingClientRect().top - this.stream.getBoundingClientRect().top;
    this.stream.scrollTop += at - this.stream.clientHeight / 3;
  }
}

const shown = new WeakMap();

export default function texts({ data, parentElement }) {
  const view = shown.get(parentElement) ?? new Texts(parentElement);
  shown.set(parentElement, view);
  view.receive(data);
  return () => {
    view.root.remove();
    shown.delete(parentElement);
  };
}
