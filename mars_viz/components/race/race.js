// The way in: a race that is replayed by its recorded clock, or one lane that grows while it is decoded.

class RaceView {
  constructor(parent) {
    this.clock = new Clock({ moved: (at) => this.show(at), turned: (playing) => this.controls.turned(playing) });
    this.controls = new Controls(this.clock);
    this.lanes = h("div", { class: "race-lanes" });
    this.marks = legend();
    this.after = h("div");
    this.root = h("div", { class: "explorer race", onkeydown: (event) => this.live || this.controls.key(event) });
    parent.append(this.root);
    this.tracks = [];
  }

  receive({ id, live, close, lanes, pieces, looks, prompt, board: end }) {
    themed(this.root);
    this.root.classList.toggle("close", close === true);
    if (id !== this.id) this.open(id, live, lanes, prompt, end);
    lanes.forEach((lane, i) => this.tracks[i].grow(lane.rounds, pieces, looks));
    if (live) this.tracks.forEach((track) => track.showAll());
    else if (!this.clock.end) {
      this.clock.end = Math.max(...lanes.map((lane) => lane.rounds.at(-1)?.settled ?? 0));
      this.controls.open(this.clock.end);
      this.clock.seek(this.clock.end); // how it ended; Play begins it again
    }
  }

  open(id, live, lanes, prompt, end) {
    this.clock.pause();
    Object.assign(this, { id, live });
    this.clock.end = 0;
    this.tracks = lanes.map((lane) => new Track(lane));
    this.tracks.forEach((track) => track.prompt(prompt));
    this.lanes.replaceChildren(...this.tracks.map((track) => track.element));
    this.lanes.classList.toggle("single", lanes.length === 1);
    this.after.replaceChildren(...(end ? [board(end)] : []));
    this.root.replaceChildren(...(live ? [this.lanes, this.marks] : [this.controls.element, this.lanes, this.marks, this.after]));
  }

  show(at) {
    this.controls.show(at);
    this.tracks.forEach((track) => track.show(at));
    this.after.style.visibility = at >= this.clock.end ? "visible" : "hidden";
  }

  close() {
    this.clock.pause();
    this.root.remove();
  }
}

const views = new WeakMap();

export default function race({ data: [payload], parentElement }) {
  const view = views.get(parentElement) ?? new RaceView(parentElement);
  views.set(parentElement, view);
  view.receive(payload);
  return () => {
    view.close();
    views.delete(parentElement);
  };
}
