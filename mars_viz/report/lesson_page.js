// A lesson's page: its figure with knobs, and the figure beside it. Stands behind the element's script and `address.js`,
// in one scope with them.

class LessonPage {
  constructor(element) {
    this.name = element.dataset.name;
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.revision = 0;
    this.element = element;
    this.place = shadowPlace(element, elementStyle);
  }

  async open() {
    this.data = await valueOf(await marsViz.text(this.name));
    this.arrive();
    await marsViz.reveal(this.element);
    addEventListener("hashchange", () => this.arrive());
    this.dark.addEventListener("change", () => {
      this.show();
      this.beside?.();
    });
    if (this.data.aside && document.getElementById("aside")) await this.drawBeside();
  }

  /** Let the knobs stand where the address asks for, those that can. */
  arrive() {
    const said = asked();
    const stands = ({ name, stops, low, high }, value) => value !== null && (stops ? stops.includes(value) : value >= low && value <= high);
    this.position = Object.fromEntries(this.data.knobs.map((knob) => {
      const value = numberIn(said[knob.name]);
      return [knob.name, stands(knob, value) ? value : knob.start];
    }));
    this.revision += 1;
    this.show();
  }

  show() {
    const { name, position, revision, data } = this;
    const sent = { ...data, id: name, key: name, revision: String(revision), position, large: false };
    lesson({ data: [sent], parentElement: this.place, setStateValue: (_, told) => this.write(told) });
  }

  write(told) {
    writeAddress(Object.fromEntries(this.data.knobs.map(({ name, start }) => [name, told[name] === start ? "" : told[name]])));
  }

  async drawBeside() {
    await marsViz.script("assets/plotly.js");
    const figure = new Figure(document.getElementById("aside"), "aside", globalThis.Plotly, () => this.name);
    this.beside = () => figure.draw(new Drawn({ ...this.data.aside, settings: [] }, this.dark).spec(0));
    this.beside();
  }
}

{
  const element = document.getElementById("lesson");
  if (element) marsViz.open(() => new LessonPage(element).open());
}
