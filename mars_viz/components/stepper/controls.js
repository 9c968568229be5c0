// What steers the playback: buttons, a scrubber, a speed, and keys.

const SPEEDS = [0.5, 1, 2, 4];
const JUMPS = [["rejection", "Next rejection", "x"], ["relaxed", "Next relaxed keep", "k"], ["divergence", "Next divergence", "d"]];
const DIVERGENCE = "Next place where strict verification decides otherwise on the same prefix";

/** Tells of a frame by `go`, and of playing by `play`. */
class Controls {
  constructor({ go, step, jump, play }) {
    Object.assign(this, { go, step, jump });
    const button = (words, label, act, attributes = {}) => h("button", { type: "button", "aria-label": label, title: label, onclick: act, ...attributes }, words);
    this.back = button("←", "One step back (left arrow)", () => step(-1));
    this.toggle = button("Play", "Play or pause (space)", play, { class: "play" });
    this.forth = button("→", "One step on (right arrow)", () => step(1));
    this.jumps = new Map(JUMPS.map(([kind, words, key]) => {
      const label = kind === "divergence" ? `${DIVERGENCE} (${key})` : `${words} (${key})`;
      return [kind, button(words, label, () => jump(kind))];
    }));
    this.speed = h("select", { "aria-label": "Speed", title: "Speed" }, ...SPEEDS.map((speed) => h("option", { value: speed, selected: speed === 1 }, `${speed}×`)));
    this.scrubber = h("input", { type: "range", min: "0", step: "1", "aria-label": "Step of the playback", oninput: () => go(this.scrubber.valueAsNumber) });
    this.place = h("span", { class: "place" });
    this.element = h("div", { class: "controls" },
      h("div", { class: "transport" }, this.back, this.toggle, this.forth, this.speed),
      h("div", { class: "scrub" }, this.scrubber, this.place),
      h("div", { class: "jumps", role: "group", "aria-label": "Jump to the next" }, ...this.jumps.values()));
  }

  open(play) {
    this.frames = play.frames.length;
    this.places = play.jumps;
    this.scrubber.max = this.frames - 1;
  }

  show(index, playing) {
    this.scrubber.value = index;
    this.scrubber.setAttribute("aria-valuetext", `step ${whole(index + 1)} of ${whole(this.frames)}`);
    say(this.place, `${whole(index + 1)} / ${whole(this.frames)}`);
    say(this.toggle, playing ? "Pause" : "Play");
    this.scrubber.disabled = this.frames < 2;
    this.back.disabled = index === 0;
    this.forth.disabled = index === this.frames - 1;
    for (const [kind, button] of this.jumps) {
      button.disabled = next(this.places[kind], index) === null;
      button.hidden = !this.places[kind].length;
    }
  }

  /** True if the key meant something. Keys that scroll a page mean something only where the stepper is in focus. */
  key(event, focused) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (!focused && ["ArrowUp", "ArrowDown", "Home", "End", " "].includes(event.key)) return false;
    const kind = JUMPS.find(([, , key]) => key === event.key.toLowerCase())?.[0];
    if (event.key === "ArrowRight") this.step(1);
    else if (event.key === "ArrowLeft") this.step(-1);
    else if (event.key === "ArrowDown") this.jump("round");
    else if (event.key === "ArrowUp") this.jump("round", true);
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End") this.go(this.frames - 1);
    else if (event.key === " ") this.toggle.click();
    else if (kind) this.jump(kind);
    else return false;
    return true;
  }
}

/** The first place after an index, or with `backwards` the last before it; null where there is none. */
function next(places, index, backwards = false) {
  return (backwards ? places.findLast((place) => place < index) : places.find((place) => place > index)) ?? null;
}
