// The strip: every text to leaf through as a bar of its tokens, the reference first.

const KINDS = ["matched", "relaxed", "corrected", "bonus"]; // as Python numbers them

/** Tells of a text that was chosen by `chosen`. */
class Lanes {
  constructor({ chosen }) {
    this.chosen = chosen;
    const keys = KINDS.slice(1).map((kind) => h("span", { class: `mark ${kind}` }, kind));
    this.head = h("div", { class: "text head", "aria-hidden": "true" },
      h("span"), h("span", { class: "marks" }, ...keys, h("span", { class: "mark other" }, "differs")), h("span", {}, "τ"), h("span", {}, "tokens"), h("span", { class: "answer" }, "answer"));
    this.list = h("div", { class: "list", role: "listbox", tabindex: "0", "aria-label": "Texts beside the reference; arrow keys switch between them" });
    this.element = h("div", { class: "lanes" }, this.head, this.list);
  }

  show({ lanes, reference, shown }) {
    const longest = Math.max(1, ...lanes.map(({ tokens }) => tokens));
    this.rows = new Map(lanes.map((lane, place) => [lane.key, this.row(lane, place, longest, lane.key === reference)]));
    this.list.replaceChildren(...this.rows.values());
    this.element.classList.toggle("graded", lanes.some(({ right }) => right !== null));
    this.press(shown);
  }

  /** Show a text as the chosen one. */
  press(key) {
    for (const [each, row] of this.rows) row.setAttribute("aria-selected", each === key);
    const row = this.rows.get(key);
    if (row) this.list.setAttribute("aria-activedescendant", row.id);
    else this.list.removeAttribute("aria-activedescendant");
  }

  row({ key, name, tau, tokens, right, outcomes, common, parts }, place, longest, pinned) {
    const bar = h("span", { class: "whole" });
    const inner = h("span", { class: "inner" }, h("i", { class: "outcomes" }), h("i", { class: "shared" }));
    inner.style.width = `${(100 * tokens) / longest}%`;
    inner.children[0].style.background = striped(outcomes, tokens, (kind) => `var(--bar-${KINDS[kind]})`);
    inner.children[1].style.background = striped(common, tokens, (kind) => (kind ? "var(--bar-matched)" : "var(--bar-other)"));
    if (parts !== null && !pinned) {
      const mark = h("i", { class: "parting" });
      mark.style.left = `${(100 * parts) / tokens}%`;
      inner.append(mark);
    }
    bar.append(inner);
    const answer = right === null ? "" : right ? "answer right" : "answer wrong";
    const differs = pinned ? "the reference" : parts === null ? "differs nowhere" : `differs from token ${whole(parts + 1)}`;
    return h("div", {
      class: `text${pinned ? " pinned" : ""}`, role: "option", id: `lane-${place}`,
      "aria-label": [spoken(name), differs, `τ ${short(tau ?? NaN)}`, plural(tokens, "token"), answer].filter(Boolean).join(", "),
      "aria-disabled": pinned, onclick: () => !pinned && this.chosen(key),
    },
    h("span", { class: "name" }, h("bdi", { title: name }, name), pinned ? h("span", { class: "tag" }, "reference") : null),
    bar, h("span", { class: "number tau" }, short(tau ?? NaN)),
    h("span", { class: "number tokens", "data-unit": tokens === 1 ? " token" : " tokens" }, whole(tokens)),
    h("span", { class: right === null ? "answer" : right ? "answer keeps" : "answer rejects", title: answer || null }, right === null ? "" : right ? "✓" : "✗"));
  }
}

/** A bar of tokens as stripes: [[kind, length], …] in the colours of their kinds. */
function striped(rows, total, colour) {
  let at = 0;
  const stops = rows.map(([kind, length]) => `${colour(kind)} ${(100 * at) / total}% ${(100 * (at += length)) / total}%`);
  return stops.length ? `linear-gradient(to right, ${stops.join(", ")})` : "none";
}
