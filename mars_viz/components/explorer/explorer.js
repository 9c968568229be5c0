// The explorer: one run's sentence, dial, numbers, text and inspector, and the traffic with Python.

const read = new Map(); // runs by id, the last few
const proofs = new Map(); // their evidence

function latest(map, id, make) {
  if (!map.has(id)) {
    if (map.size >= 3) map.delete(map.keys().next().value);
    map.set(id, make());
  }
  return map.get(id);
}

function evidenceOf(id) {
  return latest(proofs, id, () => new Evidence());
}

/** A run as it was sent: in a report with its arrays, from Streamlit with their bytes in a table of one column. */
function runOf({ payload, columns }) {
  return readRun(columns ? withArrays(payload, columns.getChildAt(0).toArray()) : payload);
}

class Explorer {
  /** `decodes` is false where nobody can decode anew. */
  constructor(parent, decodes) {
    const decode = decodes ? (v) => this.decode(v) : null;
    this.lengths = new Lengths({ chosen: () => { this.lengthen(); tellPage(this, true); } });
    this.pins = new Pins(this);
    this.dial = new Dial({ moved: (v) => { this.move(v); tellPage(this, true); }, rested: () => this.rest(), decode, lengths: this.lengths, pin: this.pins.setter });
    this.overlays = new Overlays({ chosen: (name) => this.choose(name) });
    this.stream = new Stream({ pick: (slot, reveal) => this.pick(slot, reveal), shade: (reading, slot) => this.overlays.shade(reading, slot), shares: (r) => this.shares(r) });
    this.search = new Search({ stream: this.stream, pick: (slot) => this.pick(slot, true) });
    this.inspector = new Inspector({ act: this.pins.taker });
    this.tiles = new Tiles();
    this.basis = tag();
    this.words = new Words(this.basis);
    this.root = h("div", { class: "explorer" }, colourSheet(), this.words.element, this.dial.element, this.dial.absent, this.pins.lost, this.pins.line, this.tiles.element,
      h("div", { class: "reading" }, h("div", { class: "choices" }, this.overlays.choice, this.search.opener), this.overlays.legend),
      h("div", { class: "body" }, this.stream.frame, h("div", { class: "side" }, this.inspector.element), this.pins.side));
    this.heard = h("p", { class: "heard", role: "status" });
    this.root.append(this.heard);
    this.root.addEventListener("keydown", (event) => this.search.heard(event));
    this.stream.frame.prepend(this.search.bar);
    this.tip = new Tip(this.root);
    parent.append(this.root);
    this.leavePage = sentByPage(this);
  }

  // ---- what comes from Python

  receive(data) {
    const { payload, position, revision, key, look, lengths = [] } = data;
    this.root.className = ["explorer", look, this.pins.token && "paired"].filter(Boolean).join(" ");
    this.theme();
    const fresh = payload.id !== this.reading?.run.id;
    if (!fresh && (revision === this.revision || this.dial.grip)) return;
    this.key = key;
    this.revision = revision;
    const { gamma } = payload.run;
    const stands = positionIn(key, revision, position), { selected } = stands;
    const moving = fresh && this.awaited === gamma; // the hand goes on while another length comes
    const { dial, overlay, pins } = moving ? this.position() : stands;
    this.awaited = null;
    this.lengths.show(lengths, gamma, payload.run);
    this.overlays.press(overlay);
    if (fresh) this.open(latest(read, payload.id, () => new Trajectories(runOf(data))), dial);
    else {
      this.turn(dial);
      this.stream.repaint();
    }
    const { pool } = this.trajectories;
    const known = selected !== null && selected >= 0 && selected < pool.slots ? carried(selected, pool, this.reading.run) : null;
    this.selected = known ?? this.reading.remarkable();
    this.stream.select(this.selected, known !== null);
    this.pins.adopt(pins, [pool, ...this.poolsOf(data)]);
    this.render();
    this.settle();
    if (moving && !this.dial.grip && (dial !== position.dial || overlay !== position.overlay)) this.report();
  }

  /** Pools of rounds at other draft lengths, which something is pinned in. */
  poolsOf(data) {
    const sent = (data.pools ?? []).map((payload) => ({ payload, columns: data[`columns_${payload.run.gamma}`] }));
    return sent.map((each) => latest(read, each.payload.id, () => new Trajectories(runOf(each))).pool);
  }

  /** Show another run. */
  open(trajectories, dial) {
    const { pool, own } = trajectories;
    this.trajectories = trajectories;
    this.reading = trajectories.at(own.within(dial));
    this.reading.turn(own.within(dial));
    this.selected = null;
    say(this.heard, "");
    this.dial.show(pool, trajectories.strip());
    this.overlays.open(pool);
    this.tiles.open(pool);
    const evidence = evidenceOf(pool.id);
    evidence.heard = () => {
      this.inspector.show(this.reading, this.selected);
      this.pins.prove();
      this.stream.unfolding.weigh();
    };
    this.inspector.open(this.reading.run, pool, evidence);
    this.stream.show(this.reading);
  }

  /** Let the dial stand at a value; where that leads to another text, show that. */
  turn(dial) {
    const at = this.reading.within(dial);
    const reading = this.trajectories.at(at);
    reading.turn(at);
    if (reading !== this.reading) this.swap(reading);
  }

  swap(reading) {
    this.selected = carried(this.selected, this.reading.run, reading.run) ?? reading.remarkable();
    this.reading = reading;
    this.inspector.adopt(reading.run);
    this.stream.swap(reading, this.selected);
  }

  // ---- what the hand does

  move(value) {
    const seen = this.stream.inView();
    this.turn(value);
    this.stream.parting.jump.hidden = true;
    this.stream.update(seen);
    this.render();
  }

  rest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.settle();
      this.announce();
      this.report();
    }, this.dial.keyed ? 250 : 0);
  }

  pick(slot, reveal) {
    this.selected = slot;
    this.stream.select(slot, reveal);
    this.inspector.show(this.reading, slot);
    this.pins.pair();
    clearTimeout(this.picking);
    this.picking = setTimeout(() => this.report(), 300);
  }

  /** The drafter's q of a round's nodes; null while they are on their way. */
  shares(r) {
    const { pool } = this.trajectories;
    const found = evidenceOf(pool.id).of(pool, this.reading.run, r);
    return found && found.run.nodes.q.subarray(found.run.nodeAt[found.round], found.run.nodeAt[found.round + 1]);
  }

  choose(overlay) {
    this.overlays.press(overlay);
    this.stream.repaint();
    this.overlays.draw(this.reading);
    this.report();
  }

  /** Another draft length was chosen: its rounds are sent anew. */
  lengthen() {
    this.awaited = this.lengths.value;
    this.report();
  }

  decode(dial) {
    this.report();
    this.trigger("decode", { dial, gamma: this.lengths.value });
  }

  position() {
    const selected = carried(this.selected, this.reading.run, this.trajectories.pool);
    return { revision: this.revision, dial: this.reading.dial, overlay: this.overlays.name, selected, gamma: this.lengths.value, pins: this.pins.where };
  }

  report() {
    tellPosition(this, this.key, this.position());
    tellPage(this, false);
  }

  // ---- what follows from the dial

  /** All that changes in the frame in which the dial moves, besides the text. */
  render() {
    const { run, dial, values, fromStrict, parted, local } = this.reading;
    this.dial.place(dial);
    this.sentence = sentence(run, dial, values, fromStrict, parted, this.reading.ending());
    this.words.show(run, this.sentence);
    mark(this.basis, local || (fromStrict && !values.strictExact) ? "block-local" : "exact");
    this.tiles.show(this.reading);
    this.overlays.draw(this.reading);
    this.inspector.show(this.reading, this.selected);
    this.pins.follow();
    this.search.follow();
  }

  /** What may wait until the hand rests. */
  settle() {
    this.stream.name();
    this.stream.parting.point();
    this.tiles.explain(this.reading);
  }

  /** Let a screen reader say what the dial has changed, once and not at every step of the hand. */
  announce() {
    const told = [heardSentence(this.reading.run, this.sentence, this.basis.dataset.tag), this.pins.told, this.search.told];
    say(this.heard, told.filter(Boolean).join(" "));
  }

  theme() {
    if (!themed(this.root)) return;
    this.dial.paintRug();
  }

  close() {
    this.leavePage();
    clearTimeout(this.resting);
    clearTimeout(this.picking);
    this.stream.places.close();
    this.dial.resized.disconnect();
    this.words.lines.disconnect();
    this.pins.words.lines.disconnect();
    this.root.remove();
  }
}

/** What the empty element does that stands beside the explorer of a long run: it asks for evidence, and hands it over. */
function deliver(data, setStateValue) {
  const evidence = evidenceOf(data.evidence);
  const send = (wanted) => setStateValue("wanted", { id: data.evidence, ...wanted });
  evidence.connect(send, Boolean(data.wanted));
  if (data.wanted) evidence.take(data.wanted.window, runOf(data));
  return () => evidence.leave(send);
}

export default function explorer(page) {
  const { data, setStateValue, setTriggerValue } = page;
  if (data.evidence) return deliver(data, setStateValue);
  return mounted(page, (place) => new Explorer(place, Boolean(setTriggerValue) && !data.look)); // a lean one has nobody who would decode
}
