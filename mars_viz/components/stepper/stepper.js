// The stepper: a run frame by frame, and the traffic with Python. Every frame comes from Python, sentence included.

const PACE = 1400; // milliseconds of a frame at speed 1

class Stepper {
  constructor(parent) {
    this.stage = new Stage();
    this.target = new Cache("target’s cache", "Positions whose keys and values the target has stored");
    this.drafter = new Cache("drafter’s cache", "The same for the drafter");
    this.controls = new Controls({
      go: (index) => this.go(index),
      step: (by) => this.go(this.index + by),
      jump: (kind, backwards) => this.go(next(this.play.jumps[kind], this.index, backwards) ?? this.index),
      play: () => this.toggle(),
    });
    this.words = h("p", { class: "said", "aria-live": "polite" });
    this.root = h("div", { class: "explorer stepper", role: "region", "aria-label": "A run, step by step", tabindex: "0" },
      this.words, this.controls.element, this.stage.element, h("div", { class: "caches" }, this.target.element, this.drafter.element));
    this.typed = (event) => this.key(event);
    document.addEventListener("keydown", this.typed);
    parent.append(this.root);
  }

  // ---- what comes from Python

  receive({ payload, frame, revision, key, large }) {
    themed(this.root);
    this.root.classList.toggle("large", large);
    if (revision === this.revision) return;
    this.pause();
    if (payload.id !== this.play?.id) this.open(payload);
    this.revision = revision;
    this.name = key;
    this.show(positionIn(key, revision, { frame }).frame);
  }

  open(play) {
    this.play = play;
    const longest = Math.max(1, ...play.frames.map(({ target }) => target));
    const block = Math.max(1, ...play.rounds.map(({ drafted }) => drafted.length));
    for (const cache of [this.target, this.drafter]) cache.open(longest, block);
    this.drafter.element.style.display = play.frames[0].drafter === null ? "none" : ""; // prompt lookup has none
    this.stage.open(play);
    this.controls.open(play);
  }

  // ---- what the hand does

  key(event) {
    const [at] = event.composedPath();
    const ours = event.composedPath().includes(this.root);
    if (!ours && at !== document.body && at !== document.documentElement) return;
    if (ours && (at.tagName === "SELECT" || (at.tagName === "INPUT" && event.key !== " "))) return;
    if (ours && at.tagName === "BUTTON" && event.key === " ") return;
    if (event.defaultPrevented || !this.controls.key(event, ours)) return;
    event.preventDefault();
  }

  /** Show a frame on request: that stops the playback, and Python hears of it. */
  go(index) {
    this.pause();
    this.show(index);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.report(), 400);
  }

  toggle() {
    if (this.timer) {
      this.pause();
      this.report();
      return;
    }
    if (this.index === this.play.frames.length - 1) this.show(0);
    this.beat();
    this.controls.show(this.index, true);
  }

  beat() {
    this.timer = setTimeout(() => {
      this.timer = null;
      this.show(this.index + 1, true);
      if (this.index < this.play.frames.length - 1) this.beat();
      else this.report();
      this.controls.show(this.index, this.timer !== null);
    }, PACE / Number(this.controls.speed.value));
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.play) this.controls.show(this.index, false);
  }

  report() {
    tellPosition(this, this.name, { revision: this.revision, frame: this.index });
  }

  // ---- a frame

  show(index) {
    const { frames } = this.play;
    this.index = clamp(index, 0, frames.length - 1);
    const frame = frames[this.index];
    const before = frames[Math.max(0, this.index - 1)];
    this.words.replaceChildren(...frame.words.map((part) => (typeof part === "string" ? part : this.quoted(part.token))));
    this.stage.show(this.index);
    const lost = frame.stage === "roll back";
    this.target.show(frame.target, before.target, frame.certain - 1, lost);
    if (frame.drafter !== null) this.drafter.show(frame.drafter, before.drafter, frame.certain - 1, lost);
    this.root.dataset.stage = frame.stage;
    this.root.dataset.frame = this.index;
    this.controls.show(this.index, this.timer !== null && this.timer !== undefined);
  }

  quoted(piece) {
    const token = quote();
    token.show({ pieces: { text: this.play.pieces } }, piece, true);
    return token.element;
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.resting);
    document.removeEventListener("keydown", this.typed);
    this.root.remove();
  }
}

export default function stepper(page) {
  return mounted(page, (place) => new Stepper(place));
}
