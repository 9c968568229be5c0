// Why drafts branch: speed-ups of the best tree and of a chain of 1, 2, … nodes. What a pass yields comes from Python.

/** Where a line over 1, 2, … nodes is highest: [nodes, speed-up]. */
export function best(paces) {
  return paces.reduce((best, each) => (each[1] > best[1] + 1e-9 ? each : best));
}

class Branching {
  constructor() {
    this.chart = new Chart();
    this.words = h("p", { class: "lesson-finding", role: "status" });
    this.element = h("div", {}, this.chart.element, this.words);
  }

  show({ alphas, seconds, chains, trees, costs, widest, own }, { alpha, second, wider }) {
    const at = alphas.indexOf(alpha);
    const [chain, tree] = [chains[at], trees[at][seconds.indexOf(second)]];
    const paces = (tokens) => tokens.map((each, i) => [i + 1, each / interpolated(costs[i], wider / widest)]);
    const lines = [paces(tree), paces(chain)];
    const [[nodes, pace], [length, chained]] = lines.map(best);
    const highest = Math.max(1, pace, chained);
    this.chart.show({
      title: `With α = ${alpha.toFixed(2)} and b = ${second.toFixed(1)} a tree of ${plural(nodes, "node")} is ${short(pace)} times as fast as no draft, the best chain, of ${whole(length)}, ${short(chained)} times`,
      key: [["━", INK.dial, "best tree (modelled)"], ["━", INK.quiet, "chain (modelled)"], ["●", INK.text, "where each is fastest"], ["┅", INK.quiet, "no draft"]],
      x: { low: 0, high: tree.length + 0.5, name: "nodes of a draft" },
      y: { low: 0, high: 1.12 * highest, name: "speed-up" },
      marks: [
        { kind: "across", y: 1, colour: INK.quiet },
        { kind: "line", points: lines[1], colour: INK.quiet },
        { kind: "line", points: lines[0], colour: INK.dial },
        { kind: "dot", x: length, y: chained, colour: INK.quiet, size: 7, tip: `chain of ${length}: ${short(chain[length - 1])} tokens per pass` },
        { kind: "dot", x: nodes, y: pace, colour: INK.dial, size: 8, tip: `tree of ${plural(nodes, "node")}: ${short(tree[nodes - 1])} tokens per pass` },
      ],
    });
    say(this.words, `A pass over that tree yields ${short(tree[nodes - 1])} tokens on average, over that chain ${short(chain[length - 1])} (modelled). ${own}`);
  }
}
