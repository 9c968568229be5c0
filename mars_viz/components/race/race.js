// The way in: a race that is replayed by its recorded clock, or one lane that grows while it is decoded.

const played = new Set(); // ids of the races that have played by themselves on this page

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

  receive({ id, live, play, chat, lanes, pieces, looks, prompt, board: end }) {
    themed(this.root);
    this.root.classList.toggle("chat", chat);
    if (id !== this.id) this.open(id, live, lanes, prompt, end);
    lanes.forEach((lane, i) => this.tracks[i].grow(lane.rounds, pieces, looks));
    if (live) this.tracks.forEach((track) => track.showAll());
    else if (!this.clock.end) {
      this.clock.end = Math.max(...lanes.map((lane) => lane.rounds.at(-1)?.settled ?? 0));
      this.controls.open(this.clock.end);
      this.clock.seek(this.clock.end); // how it ended; Play begins it again
      if (play && !played.has(id) && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.clock.play();
      played.add(id);
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

/** The end board: what each lane took, as a sentence and a table of words made in Python. It appears when all are done. */
function board({ sentence, columns, rows }) {
  return h("section", { class: "race-board", role: "status" },
    h("p", { class: "race-sentence" }, sentence),
    h("div", { class: "race-table", role: "region", "aria-label": "What each lane took", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, ...columns.map(({ name, help }) => h("th", { scope: "col", title: help }, name)))),
      h("tbody", {}, ...rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((cell, place) => h("td", { "data-name": columns[place + 1].name }, cell))))))));
}

// What the looks and marks of tokens mean, each shown as it is in the text.
const MARKS = {
  relaxed: "kept only because the rule is relaxed",
  rejected: "by the rule",
  discarded: "drafted after a rejection",
  corrected: "the target's token in place of a rejected one",
  bonus: "the target's token after a block kept whole",
};

function legend() {
  return h("div", { class: "legend race-legend" }, ...Object.entries(MARKS).map(([look, words]) =>
    h("span", {}, h("span", { class: `t ${look}` }, look), ` ${words}`)));
}

export default function race(page) {
  return mounted(page, (place) => new RaceView(place));
}
