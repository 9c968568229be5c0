// A run's page: the explorer, its figures, and the address that says how both stand. Stands behind the explorer's script
// and `address.js`, in one scope with them.

const EMBEDDED = document.documentElement.classList.contains("embedded");

class RunPage {
  constructor(element) {
    const { run, gamma, lengths, stem, look, overlay } = element.dataset;
    Object.assign(this, { run, stem, look: EMBEDDED ? "lean" : look, overlay: overlay || "outcome", own: Number(gamma), lengths: lengths.split(" ").map(Number) });
    Object.assign(this, { revision: 0, turns: 0, dark: matchMedia("(prefers-color-scheme: dark)"), drawn: EMBEDDED ? null : document.getElementById("drawn") });
    this.element = element;
    this.dials = [...document.querySelectorAll(".dials button")]; // where there are two to turn
    for (const button of this.dials) button.addEventListener("click", () => marsViz.open(() => this.turnTo(Boolean(button.dataset.cuts))));
    this.seen = new Promise((see) => Object.assign(this, { see })); // the text; what weighs more is loaded after it
    this.place = explorerPlace(element, (dial) => {
      this.dial = dial;
      if (this.isDrawn) this.figures?.show(dial);
    });
  }

  async open() {
    await this.arrive();
    await marsViz.reveal(this.element);
    this.see();
    addEventListener("hashchange", () => marsViz.open(() => this.arrive()));
    this.dark.addEventListener("change", () => {
      this.show();
      this.figures?.repaint();
    });
  }

  /** Show what the address asks for; a part that cannot be shown is named in a sentence. */
  async arrive() {
    const said = asked(), wrong = [];
    const known = (name, value, good, instead) => {
      if (said[name] === undefined || good) return value;
      wrong.push(`The link’s ${name} cannot be shown, so ${instead}.`);
      return null;
    };
    const wanted = wholeIn(said.gamma);
    const gamma = known("gamma", wanted, this.lengths.includes(wanted), "the run’s own is shown") ?? this.own;
    const overlay = known("overlay", said.overlay, Object.hasOwn(OVERLAYS, said.overlay ?? ""), "tokens are coloured as usual") ?? this.overlay;
    const selected = known("selected", wholeIn(said.selected), wholeIn(said.selected) !== null, "no token is selected") ?? null;
    const cuts = known("cuts", said.cuts === "1", this.dials.length > 0, "the dial is the rule’s") ?? false;
    if (!await this.take(gamma, cuts)) return;
    const { dial: range } = this.payload, at = numberIn(said.dial);
    const inside = at !== null && range !== null && at >= range.low && at <= range.high;
    const dial = known("dial", at, inside, "the dial stands where the run was made") ?? range?.recorded ?? null;
    this.complain(wrong);
    this.stand({ dial, overlay, selected, gamma });
  }

  complain(sentences) {
    const place = document.getElementById("complaint");
    if (!place) return;
    place.hidden = !sentences.length;
    say(place, sentences.join(" "));
  }

  /** Load the rounds of a draft length, or where it `cuts` those of a controller's threshold; false where others were
   *  asked for meanwhile. */
  async take(gamma, cuts) {
    const turn = (this.turns += 1), part = cuts ? `${this.run}.cuts` : `${this.run}.g${gamma}`;
    const payload = await this.sent(part);
    if (turn !== this.turns) return false;
    Object.assign(this, { payload, cuts, gamma: cuts ? this.own : gamma });
    return true;
  }

  async sent(part) {
    return valueOf(await marsViz.text(part));
  }

  /** Let the other dial be turned, from where the run was made. */
  async turnTo(cuts) {
    if (cuts === this.cuts || !await this.take(this.own, cuts)) return;
    this.stand({ ...this.position, dial: this.payload.dial?.recorded ?? null, selected: null, gamma: this.own });
  }

  /** True where the figures are of what is shown. */
  get isDrawn() {
    return this.gamma === this.own && !this.cuts;
  }

  /** Let the explorer stand so. */
  stand(position) {
    this.position = position;
    this.revision += 1;
    this.show();
    this.write(position);
  }

  show() {
    const { run: key, position, payload, look } = this;
    const data = { key, revision: String(this.revision), position, payload, look, lengths: look || this.cuts ? [] : this.lengths };
    explorer({ data, parentElement: this.place, setStateValue: (_, told) => marsViz.open(() => this.heard(told)) });
    for (const button of this.dials) button.setAttribute("aria-pressed", Boolean(button.dataset.cuts) === this.cuts);
    const own = this.isDrawn;
    if (!this.drawn) return;
    this.drawn.hidden = !own;
    document.getElementById("undrawn").hidden = own;
    if (own) marsViz.open(() => (this.drawing ??= this.draw())); // not before, for what is hidden has no size
  }

  /** The hand rests, or asks for the rounds of another draft length. */
  async heard(position) {
    if (position.gamma === this.gamma || !this.lengths.includes(position.gamma)) return this.write(position);
    if (await this.take(position.gamma, false)) this.stand({ ...position, selected: null }); // slots are those of one draft length
  }

  write({ dial, overlay, selected, gamma }) {
    const { recorded } = this.payload.dial ?? {};
    writeAddress({
      dial: dial === recorded ? "" : dial,
      overlay: overlay === this.overlay ? "" : overlay,
      selected,
      gamma: gamma === this.own ? "" : gamma,
      cuts: this.cuts ? "1" : "",
    });
    this.offer();
  }

  /** What to put into another page so that it shows this view, and where the whole page is. */
  offer() {
    const [page] = location.href.split(/[?#]/);
    const hash = new URLSearchParams(location.hash.slice(1));
    hash.delete("embed");
    const view = hash.size ? `#${hash}` : "";
    const snippet = document.getElementById("snippet"), whole = document.getElementById("whole");
    if (snippet) say(snippet, `<iframe src="${page}?embed=true${view.replaceAll("&", "&amp;")}" title="A run of speculative decoding" width="100%" height="640" style="border: 0"></iframe>`);
    if (whole) whole.href = page + view;
  }

  /** The figures; they were drawn for the run's own draft length. */
  async draw() {
    await this.seen;
    const described = await valueOf(await marsViz.text(`${this.run}.figures`));
    const payload = await this.sent(`${this.run}.g${this.own}`);
    await marsViz.script("assets/plotly.js");
    const name = { stem: this.stem, gamma: "" };
    this.figures = figuresOnPage(described, { plotly: globalThis.Plotly, file: () => fileName(name, this.dial), payload, dark: this.dark });
    this.figures.show(this.dial);
  }
}

{
  const element = document.getElementById("explorer");
  if (element) marsViz.open(() => new RunPage(element).open());
}
