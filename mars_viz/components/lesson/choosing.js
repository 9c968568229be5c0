// How to choose θ: what every setting of the map yields and writes. Which segment holds a value is all that is found here.

/** The segment that holds this value: they are half-open, and the last one holds its high end too. */
export function segmentAt(segments, value) {
  return segments[Math.max(0, segments.findLastIndex(({ low }) => value >= low))];
}

class Choosing {
  constructor({ put }) {
    this.strip = new Strip({ chosen: put });
    this.chart = new Chart();
    this.said = h("p", { class: "lesson-finding", role: "status" });
    this.prompt = h("bdi", { class: "lesson-prompt" });
    this.same = h("span");
    this.other = h("mark");
    this.text = h("p", { class: "lesson-text", role: "group", tabindex: "0", "aria-label": "The text at the dial" }, this.prompt, this.same, this.other);
    this.element = h("div", { class: "choosing" }, h("div", { class: "lesson-strip" }, this.strip.element), this.chart.element, this.said, this.text);
  }

  /** The strip of the map, which is as long as the dial. */
  lay({ symbol, segments }) {
    if (segments === this.laid) return;
    this.laid = segments;
    const dial = { low: segments[0].low, high: segments.at(-1).high, symbol };
    this.strip.show(dial, segments.map((segment) => ({ ...segment, tau: segment.tau ?? NaN, complete: segment.tau !== null })));
  }

  show({ symbol, strictTau, graded, prompt, segments }, { dial }) {
    this.lay({ symbol, segments });
    this.strip.place(dial);
    const here = segmentAt(segments, dial);
    const taus = segments.map(({ tau }) => tau);
    const low = segments[0].low, high = segments.at(-1).high;
    const strict = strictTau === null ? "" : `; strict: ${short(strictTau)}`; // null: the strict text was cut short
    const steps = segments.flatMap((segment) => [[segment.low, segment.tau ?? NaN], [segment.high, segment.tau ?? NaN]]);
    this.chart.show({
      title: here.tau === null ? "The map was cut short here" : `${symbol} = ${dialText(dial)}: τ = ${short(here.tau)} tokens per pass${strict} (exact)`,
      key: [["━", INK.relaxed, "tokens per pass, τ"], ...(graded ? [["■", INK.rejected, "wrong answer"]] : [])],
      x: { low, high: high + 0.003 * (high - low), name: symbol },
      y: { low: 0, high: 1.15 * Math.max(1, ...taus.filter((tau) => tau !== null)), name: "tokens per pass, τ" },
      marks: [
        ...segments.filter(({ right }) => right === false).map((segment) => ({ kind: "band", low: segment.low, high: segment.high, colour: INK.rejected })),
        { kind: "line", points: steps, colour: INK.relaxed },
        { kind: "down", x: dial, colour: INK.dial },
      ],
    });
    const longest = Math.max(...segments.map(({ same, other }) => same.length + other.length)) + prompt.length;
    this.text.classList.toggle("brief", longest < 300);
    say(this.said, here.words);
    say(this.prompt, prompt);
    say(this.same, here.same);
    say(this.other, here.other);
    this.other.hidden = !here.other;
  }
}
