// The text so far and the block that is worked on: drafted tokens fly in, are judged, struck out or join the text; and
// beside them what the caches hold.

const MARKS = ["drafted", "read", "matched", "relaxed", "rejected", "discarded"];
const STEPS = ["draft", "verify", "judge", "roll back", "commit"];

class Stage {
  constructor() {
    this.steps = new Map(STEPS.map((name) => [name, h("li", {}, name)]));
    this.round = h("span", { class: "round" });
    this.listed = new Listed("The text so far", { class: "text", onclick: (event) => this.free(event) });
    this.text = this.listed.element;
    this.block = h("div", { class: "block", role: "group", "aria-label": "The drafted block" });
    this.title = h("div", { class: "lane-name" });
    this.element = h("div", { class: "stage" },
      h("div", { class: "rail" }, h("ol", { class: "steps", "aria-label": "What happens in a round" }, ...this.steps.values()), this.round),
      this.text, h("div", { class: "drafts" }, this.title, this.block));
  }

  open(play) {
    this.play = play;
    this.drawn = null;
    const prompt = h("span", { class: "prompt", role: "presentation" }, play.prompt);
    this.listed.leave();
    this.spans = []; // of the text, in order, with where each begins
    play.rounds.forEach(({ text, outcomes, ratios }, round) => text.forEach((piece, i) => {
      const span = fill(h("span", { role: "option" }), play.pieces[piece]);
      span.setAttribute("aria-label", tokenLabel(this.spans.length, play.pieces[piece], outcomes[i], ratios[i]));
      span.className = `t ${outcomes[i]}${span.kind}`;
      this.spans.push({ span, round });
    }));
    this.text.replaceChildren(prompt, ...this.spans.map(({ span }) => span));
  }

  show(index) {
    const { play } = this;
    const frame = play.frames[index];
    for (const [name, step] of this.steps) {
      step.classList.toggle("now", name === frame.stage);
      if (name === frame.stage) step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    }
    say(this.round, play.rounds.length ? `round ${whole(frame.round + 1)} of ${whole(play.rounds.length)}` : "no rounds");
    this.write(frame);
    this.draft(frame);
  }

  /** A click in the text leaves the arrow keys to the steps: who moves between tokens comes by the keyboard. */
  free(event) {
    if (event.detail) this.element.closest(".stepper")?.focus({ preventScroll: true });
  }

  /** The text as far as it is certain; what this round added stands out. */
  write(frame) {
    this.listed.holds(frame.written > 0);
    this.spans.forEach(({ span, round }, i) => {
      span.hidden = i >= frame.written;
      if (span.hidden && span === this.listed.chosen) this.listed.leave();
      span.classList.toggle("fresh", round === frame.round && frame.stage === "commit");
      span.classList.toggle("old", round !== frame.round || frame.stage === "end");
    });
    this.text.scrollTop = this.text.scrollHeight;
  }

  draft(frame) {
    const { drafted } = this.play.rounds[frame.round] ?? { drafted: [] };
    const shown = frame.marks.length ? frame.round : -1;
    if (shown !== this.drawn) {
      this.drawn = shown;
      this.chips = (shown < 0 ? [] : drafted).map((piece, i) => this.chip(this.play.pieces[piece], i));
      this.own = this.chip("", drafted.length);
      const { parents } = this.play.rounds[frame.round] ?? { parents: null };
      const tree = shown >= 0 && parents !== null;
      this.block.classList.toggle("branching", tree);
      this.block.replaceChildren(...(tree ? [h("div", { class: "twigs" }, ...branches(this.chips, parents, -1))] : this.chips), this.own);
    }
    say(this.title, shown < 0 ? "No block is drafted yet." : NAMED[frame.stage] ?? "");
    this.chips.forEach((chip, i) => this.dress(chip, MARKS[frame.marks[i]], frame.judged === i));
    this.own.hidden = frame.emission === null;
    if (frame.emission !== null) {
      const piece = this.play.rounds[frame.round].text.at(-1);
      fill(this.own.token, this.play.pieces[piece]);
      this.dress(this.own, frame.emission, false);
    }
    this.block.classList.toggle("flying", frame.stage === "draft");
    this.block.classList.toggle("reading", frame.stage === "verify");
    this.block.classList.toggle("falling", frame.stage === "roll back");
  }

  chip(text, i) {
    const token = fill(h("bdi"), text);
    const element = h("span", { class: "chip" }, token);
    element.token = token;
    element.style.setProperty("--i", i);
    return element;
  }

  dress(chip, mark, judged) {
    chip.className = `chip t ${mark}${chip.token.kind ?? ""}${judged ? " judged" : ""}`;
    chip.setAttribute("aria-label", `“${spoken(chip.token.textContent)}”, ${mark}`);
    chip.setAttribute("role", "img");
  }
}

const NAMED = {
  draft: "The drafter proposes",
  verify: "The target scores all of them in one pass",
  judge: "The rule decides, from left to right",
  "roll back": "Rejected and discarded tokens are rolled back",
  commit: "Appended to the text",
};

/** What was drafted after a node, each with what was drafted after it. */
function branches(chips, parents, above) {
  return chips.filter((_, i) => parents[i] === above).map((chip) => {
    const after = branches(chips, parents, chips.indexOf(chip));
    return h("div", { class: "twig" }, chip, after.length ? h("div", { class: "twigs" }, ...after) : null);
  });
}

/** One model's cache as a bar: what is certain in one piece, and a cell for every position beyond it. */
class Cache {
  constructor(name, explained) {
    this.certain = h("div", { class: "certain" });
    this.cells = h("div", { class: "cells" });
    this.count = h("span", { class: "length" });
    this.bar = h("div", { class: "bar-of-cache", role: "img" }, this.certain, this.cells);
    this.name = name;
    this.element = h("div", { class: "cache" }, h("div", { class: "cache-name", title: explained }, name), this.bar, this.count);
  }

  /** Room for the longest text, and for a block of `block` tokens beside what is certain. */
  open(longest, block) {
    this.longest = longest;
    this.cells.replaceChildren(...Array.from({ length: block + 1 }, () => h("i", { class: "cell" })));
  }

  /** `held` positions after `before`, of which `sure` were held when the round began; `lost` says that some go now. */
  show(held, before, sure, lost) {
    const base = Math.min(sure, held);
    this.certain.style.setProperty("--share", base / this.longest);
    [...this.cells.children].forEach((cell, i) => {
      const place = base + i;
      cell.className = place < held ? (place >= before ? "cell held new" : "cell held") : lost && place < before ? "cell lost" : "cell";
    });
    say(this.count, whole(held));
    const change = held - before;
    const moved = change > 0 ? `, ${whole(change)} more` : change < 0 ? `, ${whole(-change)} fewer` : "";
    this.bar.setAttribute("aria-label", `${this.name}: ${whole(held)} positions held${moved}`);
  }
}
