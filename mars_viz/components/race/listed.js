// A text whose tokens are the options of a list, so that each has its name: the arrow keys lead from one to the next.

let listed = 0; // chosen so far, which makes their ids

class Listed {
  constructor(label, attributes) {
    this.element = h("div", { ...attributes, role: "group", tabindex: "0", "aria-label": `${label}; left and right move between tokens`, onkeydown: (event) => this.key(event) });
    this.chosen = null;
  }

  /** A list is one only while it has something to choose from. */
  holds(something) {
    const role = something ? "listbox" : "group";
    if (this.element.getAttribute("role") !== role) this.element.setAttribute("role", role);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // around the text they mean something else
    const tokens = [...this.element.querySelectorAll("[role=option]")].filter((token) => token.getClientRects().length);
    const at = tokens.indexOf(this.chosen);
    const last = tokens.length - 1;
    const to = { Home: 0, End: last, ArrowRight: Math.min(at + 1, last), ArrowLeft: at < 0 ? last : Math.max(at - 1, 0) }[event.key];
    if (tokens.length) this.choose(tokens[to]);
  }

  choose(token) {
    this.leave();
    this.chosen = token;
    token.id ||= `listed-${(listed += 1)}`;
    token.classList.add("selected");
    token.setAttribute("aria-selected", "true");
    this.element.setAttribute("aria-activedescendant", token.id);
    const box = this.element.getBoundingClientRect();
    const at = token.getBoundingClientRect();
    if (at.top < box.top || at.bottom > box.bottom) this.element.scrollTop += at.top - box.top - this.element.clientHeight / 2;
  }

  /** No token is chosen any more, such as when it is not there any more. */
  leave() {
    this.chosen?.classList.remove("selected");
    this.chosen?.removeAttribute("aria-selected");
    this.element.removeAttribute("aria-activedescendant");
    this.chosen = null;
  }
}
