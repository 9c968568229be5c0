// Play, pause, the recorded time and how much slower than it happened.

const SLOWER = [1, 2, 5, 10, 20, 50];

class Controls {
  constructor(clock) {
    this.clock = clock;
    this.button = h("button", { class: "decode", type: "button", onclick: () => clock.toggle() }, "Play");
    this.time = h("input", { type: "range", min: "0", step: "any", value: "0", "aria-label": "Recorded time",
      oninput: () => { clock.pause(); clock.seek(Number(this.time.value)); } });
    this.read = h("span", { class: "race-time" });
    this.speeds = h("div", { class: "overlays", role: "radiogroup", "aria-label": "Speed" }, ...SLOWER.map((slow) =>
      h("button", { type: "button", role: "radio", "data-slow": slow, onclick: () => this.speed(slow) }, slow === 1 ? "true speed" : `${slow} × slower`)));
    this.element = h("div", { class: "race-controls" }, this.button, this.time, this.read, this.speeds);
  }

  /** For another race; the speed makes it last about a quarter of a minute. */
  open(end) {
    this.time.max = String(end);
    this.speed(SLOWER.find((slow) => end * slow >= 12) ?? SLOWER.at(-1));
  }

  speed(slow) {
    this.clock.slow = slow;
    for (const button of this.speeds.children) {
      const on = Number(button.dataset.slow) === slow;
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
  }

  turned(playing) {
    say(this.button, playing ? "Pause" : "Play");
  }

  show(seconds) {
    this.time.value = String(seconds);
    const words = `${seconds.toFixed(2)} s of ${this.clock.end.toFixed(2)} s`;
    say(this.read, words);
    this.time.setAttribute("aria-valuetext", words);
  }

  /** Space plays and pauses, arrows move by a fiftieth, Home and End go to the ends, digits and brackets change nothing. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { clock } = this;
    const radio = event.target.closest?.("[role=radio]");
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (radio && step) {
      const at = clamp(SLOWER.indexOf(clock.slow) + step, 0, SLOWER.length - 1);
      this.speed(SLOWER[at]);
      this.speeds.children[at].focus();
    } else if (event.key === " " && event.target !== this.button && !radio) clock.toggle();
    else if (step) { clock.pause(); clock.seek(clock.at + (step * clock.end) / 50); }
    else if (event.key === "Home" || event.key === "End") { clock.pause(); clock.seek(event.key === "Home" ? 0 : clock.end); }
    else return;
    event.preventDefault();
  }
}
