// The stepper of a page, which is loaded when it is unfolded, or when the address names a step. Stands behind the element's
// script and `address.js`, in one scope with them.

class StepperPage {
  constructor(element) {
    this.name = element.dataset.name;
    this.revision = 0;
    this.element = element;
    this.place = shadowPlace(element, elementStyle);
  }

  async open() {
    this.payload = await valueOf(await marsViz.text(`${this.name}.steps`));
    this.arrive();
    await marsViz.reveal(this.element);
    addEventListener("hashchange", () => this.arrive());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
  }

  arrive() {
    this.frame = wholeIn(asked().frame) ?? 0;
    this.revision += 1;
    this.show();
  }

  show() {
    const { name: key, payload, frame, revision } = this;
    const sent = { key, large: false, payload, frame, revision: String(revision) };
    stepper({ data: [sent], parentElement: this.place, setStateValue: (_, told) => writeAddress({ frame: told.frame || "" }) });
  }
}

{
  const fold = document.getElementById("steps"), element = document.getElementById("stepper");
  let page = null;
  const unfold = () => {
    if (fold.open) page ??= marsViz.open(() => new StepperPage(element).open());
  };
  if (fold) {
    fold.open ||= wholeIn(asked().frame) !== null;
    fold.addEventListener("toggle", unfold);
    unfold();
  }
}
