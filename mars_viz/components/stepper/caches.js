// The two caches as bars: what is certain in one piece, and a cell for every position beyond it.

/** One model's cache. */
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
