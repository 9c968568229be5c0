// A round's draft tree, unfolded below the text's round: levels from left to right, a node's height its share of q among
// its siblings, the path taken thick. It shows nodes; which one is selected is the stream's to know.

/** The slots of what stands below a row: its drafted nodes, and where the round stopped there what the target wrote. */
export function below(run, decisions, r, row) {
  const slots = Array.from(run.child.subarray(run.childAt[row], run.childAt[row + 1]), (node) => node + r);
  return row === decisions.stop[r] && decisions.emission[r] !== NOTHING ? [...slots, run.slotAt[r + 1] - 1] : slots;
}

/** The row that a slot stands below, and the row behind it; -1 for what the target wrote, which has none. */
const above = (run, decisions, r, slot) => (slot === run.slotAt[r + 1] - 1 ? decisions.stop[r] : run.judge[slot - r]);
const behind = (run, r, slot) => (slot === run.slotAt[r + 1] - 1 ? -1 : slot + 1);

/** The slot to which an arrow key leads in a tree: left to the parent, right to a child, on the path if there is one, up and
 * down to siblings; the same slot where there is none; undefined for other keys. */
export function relative(run, decisions, slot, key) {
  const r = roundOf(run, slot);
  const row = above(run, decisions, r, slot);
  if (key === "ArrowLeft") return row === run.slotAt[r] ? slot : row - 1;
  if (key === "ArrowRight") {
    const children = behind(run, r, slot) < 0 ? [] : below(run, decisions, r, behind(run, r, slot));
    return children.find((child) => taken(run, decisions, r, child)) ?? children[0] ?? slot;
  }
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const siblings = below(run, decisions, r, row);
  return siblings[siblings.indexOf(slot) + (key === "ArrowUp" ? -1 : 1)] ?? slot;
}

/** True of what the text got. */
function taken(run, decisions, r, slot) {
  if (slot === run.slotAt[r + 1] - 1) return true;
  return decisions.outcome[slot - r] === MATCHED || decisions.outcome[slot - r] === RELAXED;
}

/** What a tree is, in a line. */
export function treeWords(run, decisions, r) {
  const { count, nodeAt, nodes, rule } = run;
  let deepest = 0, kept = 0;
  for (let i = nodeAt[r]; i < nodeAt[r + 1]; i++) {
    deepest = Math.max(deepest, nodes.depth[i]);
    kept += taken(run, decisions, r, i + r);
  }
  return `Round ${whole(r + 1)}: a tree of ${plural(count[r], "drafted token")}, ${whole(deepest)} deep; ${whole(kept)} kept; ${rule.among}.`;
}

/** `name` gives a token its class. */
class Tree {
  constructor({ name, id, closed }) {
    Object.assign(this, { name, id, boxes: new Map() });
    this.said = h("span", { class: "tree-words" });
    this.levels = h("div", { class: "levels", role: "presentation" });
    this.shut = h("span", { class: "shut", "data-tip": "Fold the tree (t or Escape)", onclick: closed }, "×");
    this.element = h("div", { class: "tree", role: "group" }, h("div", { class: "tree-head", role: "presentation" }, this.said, this.shut), this.levels);
  }

  /** Draw a round's tree; `shares` (a number for each of its nodes) are its drafter's q, or null where they are not known. */
  show(reading, r, shares) {
    const { run, now } = reading;
    const words = treeWords(run, now, r);
    Object.assign(this, { run, reading, round: r, shares, boxes: new Map() });
    say(this.said, words);
    this.element.setAttribute("aria-label", words);
    const built = this.branch(run.slotAt[r], 1);
    this.levels.style.setProperty("--levels", this.deepest);
    this.levels.replaceChildren(...built);
  }

  /** Let a node be seen where the levels are wider than there is room. */
  reveal(slot) {
    const { offsetLeft: left, offsetWidth: width } = this.boxes.get(slot) ?? this.levels;
    const { scrollLeft, clientWidth } = this.levels;
    if (width < clientWidth) this.levels.scrollLeft = clamp(scrollLeft, left + width + 4 - clientWidth, left - 4);
  }

  /** What stands below a row, each with what stands below it. */
  branch(row, depth) {
    const { run, reading: { now }, round: r } = this;
    if (depth === 1) this.deepest = 1;
    this.deepest = Math.max(this.deepest, depth);
    return below(run, now, r, row).map((slot) => {
      const box = this.box(slot);
      const after = behind(run, r, slot);
      const children = after < 0 ? [] : below(run, now, r, after);
      const part = h("div", { class: taken(run, now, r, slot) ? "twig on" : "twig", role: "presentation" }, box,
        children.length ? h("div", { class: "twigs", role: "presentation" }, ...this.branch(after, depth + 1)) : null);
      part.style.flexGrow = this.share(slot) ?? 1;
      return part;
    });
  }

  share(slot) {
    const node = slot - this.run.slotAt[this.round];
    return slot === this.run.slotAt[this.round + 1] - 1 || !this.shares ? null : this.shares[node];
  }

  box(slot) {
    const { run, reading, round: r } = this;
    const token = fill(h("span", { class: "word" }), run.pieces.text[tokenOf(run, reading.now, slot)]);
    const q = this.share(slot);
    const label = reading.label(slot);
    const tip = q === null ? label : `${label}; q(x) = ${short(q)}, the drafter's probability of it`;
    const box = h("div", { role: "option", id: `${this.id}-${slot}`, "aria-label": label, "data-tip": tip }, token,
      q === null ? null : h("span", { class: "q" }, short(q)));
    token.classList.add(...token.kind.split(" ").filter(Boolean));
    box.className = `node ${this.name(slot, slot === run.slotAt[r + 1] - 1 ? reading.now.emission[r] : reading.now.outcome[slot - r])}`;
    box.mine = slot;
    this.boxes.set(slot, box);
    return box;
  }
}
