// The dial: what the hand turns. It tells of every value, and knows nothing of what that changes.
// Without `decode` there is no button to decode anew.

/**
 * The slider, its number box, its marks and what stands beside it: `lengths`, the button, and `pin`, another one. Tells of every value by
 * `moved`, of a rest by `rested`.
 */
class Dial {
  constructor({ moved, rested, decode, lengths, pin }) {
    Object.assign(this, { moved, rested, lengths, value: null, dial: null, grip: null });
    this.thumb = h("div", { class: "thumb", role: "slider", tabindex: "0", "aria-keyshortcuts": "PageUp PageDown", onkeydown: (e) => this.key(e), onkeyup: () => this.rest() });
    this.hand = h("div", { class: "hand" }, this.thumb);
    this.rug = h("canvas", { class: "rug", "aria-hidden": "true" });
    this.ticks = h("div", { class: "ticks" }, this.rug);
    this.mark = h("button", { class: "recorded", type: "button", onclick: () => this.set(this.dial.recorded, true) });
    this.passed = h("div", { class: "passed" });
    this.lane = h("div", { class: "lane" }, h("div", { class: "groove" }, this.passed), this.hand);
    this.track = h("div", {
      class: "track",
      onpointerdown: (e) => this.press(e),
      onpointermove: (e) => this.drag(e),
      onpointerup: (e) => this.release(e),
      onpointercancel: (e) => this.release(e),
      ondblclick: () => this.set(this.dial.default, true),
    }, this.lane);
    this.pinned = h("div", { class: "pinned-at", hidden: true });
    this.strip = new Strip({ chosen: (value) => this.set(value, true) });
    this.left = h("span", { class: "end" });
    this.right = h("span", { class: "end" });
    this.legend = h("span", { class: "name" });
    this.symbol = h("span", { class: "symbol" });
    this.input = h("input", {
      type: "number",
      oninput: () => this.typed(false),
      onchange: () => this.typed(true),
      onblur: () => this.refuse(""),
    });
    this.refused = h("p", { class: "refused", role: "alert", hidden: true });
    this.act = h("div");
    this.button = h("button", { class: "decode", type: "button", "data-tip": "Decodes this run's prompt again at the setting shown.", onclick: () => decode(this.value) }, this.act);
    this.element = h("div", { class: "control" },
      h("div", { class: "dial" }, h("div", { class: "marks" }, this.mark), this.track, this.strip.element, this.ticks,
        h("div", { class: "ends" }, this.left, this.legend, this.right), this.pinned),
      h("div", { class: "beside" }, h("div", { class: "box" }, h("label", {}, this.symbol, h("span", { class: "field" }, this.input)), this.refused),
        pin, lengths.element, decode ? this.button : null));
    this.absent = h("p", { class: "nodial" });
    this.resized = new ResizeObserver(() => this.paintRug());
    this.resized.observe(this.rug);
  }

  /** Take on a run's dial and the segments of its map; null hides the slider behind a line that says why. */
  show(run, segments) {
    const dial = (this.dial = run.dial);
    this.element.hidden = !dial;
    this.absent.hidden = Boolean(dial);
    say(this.absent, `${run.rule.title} has no dial. ${run.rule.summary}`);
    if (!dial) return;
    const ends = dial.cuts ? ["shorter drafts", "full drafts"] : ["looser", "strict"];
    const [left, right] = dial.strict_is_high ? ends : [...ends].reverse();
    say(this.left, left);
    say(this.right, right);
    say(this.legend, dial.cuts ? `ticks: ${dial.symbol} of ${dial.cuts} at which a draft's length changes` : `ticks: ${dial.symbol} at which a verdict flips`);
    this.ticks.dataset.tip = dial.cuts ? `Where the ${dial.name} ${dial.symbol} passes one, some round of the decode drafts more, or less.` : `Breakpoints: where the ${dial.name} ${dial.symbol} passes one, a drafted token is kept that was rejected, or the other way round.`;
    say(this.symbol, `${dial.symbol} =`);
    this.decimals = Math.max(2, (String(dial.step).split(".")[1] ?? "").length);
    for (const [name, value] of Object.entries({ min: dial.low, max: dial.high, step: dial.step })) this.input.setAttribute(name, value);
    this.input.setAttribute("aria-label", `${dial.symbol}, ${dial.name}`);
    for (const [name, value] of Object.entries({ "aria-valuemin": dial.low, "aria-valuemax": dial.high, "aria-label": dial.name })) {
      this.thumb.setAttribute(name, value);
    }
    const share = this.share(dial.recorded);
    this.mark.style.left = `${100 * share}%`;
    this.mark.style.transform = `translateX(${-100 * share}%)`;
    this.mark.dataset.tip = dial.cuts ? "The run was drafted to full length, as at this value. Click to go back to it." : "The run was decoded at this value. Click to go back to it.";
    say(this.mark, `recorded ${dialText(dial.recorded)}`);
    this.lane.style.setProperty("--recorded", share);
    this.strip.show(dial, segments);
    const shown = (b) => b >= dial.low && b <= dial.high;
    this.breakpoints = dial.cuts ? segments.slice(1).map(({ low }) => low) : run.nodes.breakpoint.filter(shown);
    if (run.nodes.gapped) this.breakpoints = [this.breakpoints, run.nodes.gap.filter(shown)].flatMap((flips) => [...flips]);
    this.paintRug();
  }

  /** A second line where another value is pinned, broken where it is pinned with another draft length; null for none. */
  pin(value, elsewhere) {
    const at = value === null || !this.dial ? "" : `${100 * this.share(value)}%`;
    this.pinned.hidden = !at;
    if (this.pinned.style.left !== at) this.pinned.style.left = at;
    this.pinned.classList.toggle("elsewhere", elsewhere);
  }

  share(value) {
    return (value - this.dial.low) / (this.dial.high - this.dial.low);
  }

  /** One thin line per breakpoint and per beginning of a gap: where the dial, passing, changes a verdict. */
  paintRug() {
    const { clientWidth: width, clientHeight: height } = this.rug;
    if (!width || !this.dial) return;
    const scale = window.devicePixelRatio || 1;
    Object.assign(this.rug, { width: width * scale, height: height * scale });
    const pen = this.rug.getContext("2d");
    pen.fillStyle = getComputedStyle(this.rug).color;
    const ink = clamp(12 / Math.sqrt(this.breakpoints.length + 1), 0.12, 0.75);
    const lines = new Map(); // how many fall on each place: of very many, each place is painted once
    for (const b of this.breakpoints) {
      const at = Math.round(this.share(b) * (width - 1) * scale);
      lines.set(at, (lines.get(at) ?? 0) + 1);
    }
    for (const [at, count] of lines) {
      pen.globalAlpha = 1 - (1 - ink) ** count;
      pen.fillRect(at, 0, scale, height * scale);
    }
  }

  /** Show a value without telling anyone. */
  place(value) {
    this.value = value;
    if (!this.dial) return;
    this.strip.place(value);
    const { recorded, symbol } = this.dial;
    this.hand.style.marginLeft = this.passed.style.width = `${100 * this.share(value)}%`;
    if (this.input.getRootNode().activeElement !== this.input) this.input.value = dialText(value);
    this.thumb.setAttribute("aria-valuenow", value);
    this.thumb.setAttribute("aria-valuetext", `${symbol} ${dialText(value)}${value === recorded ? ", as recorded" : ""}`);
    this.offer();
  }

  /** The button, where the setting shown is not the recorded one. */
  offer() {
    const { recorded, symbol } = this.dial, { value } = this;
    const away = value !== recorded || this.lengths.moved;
    this.button.classList.toggle("away", !away);
    this.button.tabIndex = away ? 0 : -1;
    if (away) say(this.act, `Decode at ${symbol} = ${dialText(value)}${this.lengths.moved ? `, ${this.lengths.name} = ${this.lengths.value}` : ""}`);
  }

  /** To the grid of steps, or to the recorded value where that is nearer. */
  snapped(value) {
    const { low, high, step, recorded } = this.dial;
    const grid = Number((low + Math.round((value - low) / step) * step).toFixed(10));
    const near = Math.abs(value - recorded) <= Math.abs(value - grid) ? recorded : grid;
    return clamp(near, low, high);
  }

  set(value, resting) {
    if (value !== this.value) this.moved(value);
    if (resting) this.rested();
  }

  press(event) {
    if (event.button !== 0) return;
    const box = this.lane.getBoundingClientRect();
    const hand = box.left + this.share(this.value) * box.width;
    const held = Math.abs(event.clientX - hand) <= 12; // on the thumb: it stays where it is under the hand
    this.grip = { left: box.left, width: box.width, offset: held ? event.clientX - hand : 0 };
    this.track.setPointerCapture(event.pointerId);
    this.track.classList.add("held");
    this.thumb.focus({ preventScroll: true });
    event.preventDefault();
    if (!held) this.drag(event);
  }

  drag(event) {
    if (!this.grip) return;
    const share = (event.clientX - this.grip.offset - this.grip.left) / this.grip.width;
    this.set(this.snapped(this.dial.low + share * (this.dial.high - this.dial.low)), false);
  }

  release(event) {
    if (!this.grip) return;
    this.grip = null;
    this.track.classList.remove("held");
    this.track.releasePointerCapture(event.pointerId);
    this.rested();
  }

  key(event) {
    const { low, high, step } = this.dial;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    const leafs = event.key.startsWith("Page") && this.strip.segments.length > 0;
    const target = leafs ? this.strip.leafed(this.value, event.key === "PageUp") : { Home: low, End: high }[event.key];
    if (steps === undefined && target === undefined) return;
    event.preventDefault();
    this.keyed = true;
    const moved = this.value + steps * step * (event.shiftKey ? 10 : 1);
    this.set(target ?? clamp(Number((low + Math.round((moved - low) / step) * step).toFixed(10)), low, high), false);
  }

  rest() {
    if (this.keyed) this.rested();
    this.keyed = false;
  }

  /** What is typed: a value of the dial is taken, any other is refused in place and stays to be mended. */
  typed(finished) {
    const value = this.input.valueAsNumber;
    const { low, high, symbol } = this.dial;
    const known = value >= low && value <= high;
    if (known) this.set(value, finished);
    if (known && finished) this.input.value = dialText(this.value);
    this.refuse(known || !finished ? "" : `${symbol} goes from ${dialText(low)} to ${dialText(high)}.`);
  }

  refuse(why) {
    say(this.refused, why);
    this.refused.hidden = !why;
    this.input.toggleAttribute("aria-invalid", Boolean(why));
    if (!why && this.input.getRootNode().activeElement !== this.input) this.input.value = dialText(this.value);
  }
}
