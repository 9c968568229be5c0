// What an element's `data-tip` says, shown beside it while it is pointed at or has the focus.

/** The tooltip of all that lies in a root. */
class Tip {
  constructor(root) {
    this.root = root;
    this.element = h("div", { class: "tip", role: "tooltip", hidden: true, id: "tip" });
    for (const [enter, leave] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
      root.addEventListener(enter, (e) => this.explain(e.target.closest?.("[data-tip]"), e.type));
      root.addEventListener(leave, () => this.explain(null));
    }
    root.addEventListener("keydown", (e) => e.key === "Escape" && this.explain(null));
    root.addEventListener("click", (e) => e.target.closest?.(".fold, .unfold, .shut") && this.explain(null)); // a tree opens where it stood, or closes
    root.append(this.element);
  }

  explain(target, type) {
    if (!target || (type === "focusin" && !target.matches(":focus-visible"))) {
      this.element.hidden = true;
      this.explained?.removeAttribute("aria-describedby");
      return;
    }
    this.explained = target;
    say(this.element, target.dataset.tip);
    target.setAttribute("aria-describedby", "tip");
    this.element.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const box = target.getBoundingClientRect();
    const left = clamp(box.left - frame.left + box.width / 2 - this.element.offsetWidth / 2, 0, frame.width - this.element.offsetWidth);
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(box.bottom - frame.top + 6)}px)`;
  }
}
