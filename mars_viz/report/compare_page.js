// The page that compares two runs: which two, what Python found of the pair, and the runs themselves as their own pages
// load them. Stands behind the element's script and `address.js`, in one scope with them.

const MOST_LANES = 24; // texts of the strip at once

class ComparePage {
  constructor(element) {
    const lengths = element.dataset.lengths.split(" ");
    this.names = element.dataset.names.split(" ");
    this.gammas = new Map(this.names.map((name, i) => [name, lengths[i]]));
    this.element = element;
    this.place = shadowPlace(element, elementStyle);
    this.selects = Object.fromEntries(["reference", "shown"].map((id) => [id, document.getElementById(id)]));
    for (const [id, select] of Object.entries(this.selects)) select.addEventListener("change", () => this.ask(id, select.value));
  }

  async open() {
    await this.arrive();
    await marsViz.reveal(this.element);
    addEventListener("hashchange", () => marsViz.open(() => this.arrive()));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
  }

  arrive() {
    const said = asked();
    const known = (name, but) => (this.names.includes(name) && name !== but ? name : this.names.find((each) => each !== but));
    const reference = known(said.reference), shown = known(said.shown, reference);
    return this.turn({ reference, shown, colour: said.colour === "outcome" ? "outcome" : "difference", token: /^(left|right)-[0-9]{1,7}$/.test(said.token ?? "") ? said.token : "" });
  }

  /** Another pair from one of the lists: what stands there already changes its place. */
  ask(id, name) {
    const { reference, shown } = this.view;
    const next = id === "reference" ? { reference: name, shown: name === shown ? reference : shown } : { reference: name === reference ? shown : reference, shown: name };
    return marsViz.open(() => this.turn({ ...this.view, ...next, token: "" }));
  }

  async turn(view) {
    this.view = view;
    const { reference, shown } = view;
    const named = [`${reference}.pairs`, ...[reference, shown].map((name) => `${name}.g${this.gammas.get(name)}`)];
    const [known, left, right] = await Promise.all(named.map(async (name) => valueOf(await marsViz.text(name))));
    if (view !== this.view) return; // another was asked for meanwhile
    this.known = known;
    this.runs = { left, right };
    this.show();
    this.describe();
    this.write();
  }

  show() {
    const { reference, shown, colour, token } = this.view;
    const found = this.known.pairs[shown];
    const pair = { ...found, left: { ...found.left, run: this.runs.left }, right: { ...found.right, run: this.runs.right } };
    const order = this.names.filter((name) => name !== reference);
    const first = Math.max(0, Math.min(order.indexOf(shown) - MOST_LANES / 2, order.length - MOST_LANES));
    const inView = new Set([reference, ...order.slice(first, first + MOST_LANES)]);
    const lanes = this.known.lanes.filter(({ key }) => inView.has(key)).map((lane) => (lane.key === reference ? { ...lane, name: found.left.name } : lane));
    const data = { id: [reference, shown, colour].join(" "), pair, lanes, order, reference, shown, colour, token };
    compare({ data: [data], parentElement: this.place, setStateValue: () => {}, setTriggerValue: (_, wish) => this.heard(wish) });
  }

  /** The finding, and both in numbers. */
  describe() {
    const { sentence, rows, footnote, left, right, beside } = this.known.pairs[this.view.shown];
    say(document.getElementById("finding"), sentence);
    say(document.getElementById("footnote"), footnote);
    const head = ["number", left.name, right.name, "difference", "basis"].map((name) => h("th", { scope: "col" }, h("bdi", {}, name)));
    const lines = rows.map(({ name, meaning, stands, means, ...row }) =>
      h("tr", {}, h("th", { scope: "row", title: meaning }, name),
        h("td", { "data-name": beside[0] }, row.left), h("td", { "data-name": beside[1] }, row.right), h("td", { class: "change", "data-name": "difference" }, row.change),
        h("td", { class: "basis", title: means }, stands)));
    document.getElementById("numbers").replaceChildren(h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...lines));
    for (const [id, select] of Object.entries(this.selects)) select.value = this.view[id];
  }

  heard({ what, value }) {
    const { reference, shown } = this.view;
    if (what === "show") return marsViz.open(() => this.turn({ ...this.view, shown: value, token: "" }));
    if (what === "pin") return marsViz.open(() => this.turn({ ...this.view, reference: shown, shown: reference, token: "" }));
    this.view = { ...this.view, [what]: value }; // a token or a colour, which the element shows already
    return this.write();
  }

  write() {
    const { colour, ...rest } = this.view;
    writeAddress({ ...rest, colour: colour === "difference" ? "" : colour });
  }
}

{
  const element = document.getElementById("compare");
  if (element) marsViz.open(() => new ComparePage(element).open());
}
