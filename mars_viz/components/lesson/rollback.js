// What a rollback costs: the whole strict text at every block length. The counts come from Python.

class Rollback {
  constructor() {
    this.chart = new Chart();
    this.words = h("p", { class: "lesson-finding", role: "status" });
    this.element = h("div", {}, this.chart.element, this.words);
  }

  show({ prices }, { drafted: gamma }) {
    const top = 1.15 * Math.max(1, ...prices.map(({ kept, lost }) => kept + lost));
    const gammas = prices.map((price) => price.gamma);
    const here = prices.find((price) => price.gamma === gamma);
    this.chart.show({
      title: here.title,
      key: [["■", INK.quiet, "kept"], ["■", INK.rejected, "rolled back (exact)"], ["above:", INK.text, "target passes"]],
      x: { low: -0.6, high: gammas.length - 0.4, name: "γ, draft length", names: gammas.map(String) },
      y: { low: 0, high: top, name: "drafted tokens" },
      marks: prices.flatMap((price, place) => [
        { kind: "bar", x: place, low: 0, high: price.kept, colour: INK.quiet, faint: price !== here, tip: `γ = ${price.gamma}: ${plural(price.kept, "draft")} kept` },
        { kind: "bar", x: place, low: price.kept, high: price.kept + price.lost, colour: INK.rejected, faint: price !== here, tip: `γ = ${price.gamma}: ${plural(price.lost, "draft")} rolled back` },
        { kind: "label", x: place, y: price.kept + price.lost, words: `${whole(price.passes)} passes`, brief: whole(price.passes), colour: price === here ? INK.text : "var(--quiet)", strong: price === here },
      ]),
    });
    say(this.words, here.words);
  }
}
