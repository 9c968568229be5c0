// Pins: a token or a setting that stays where it is, so that what is looked at can be held against it.

/** Of an explorer: its pin buttons, the line about the pinned setting, and the panel of the pinned token. */
class Pins {
  constructor(explorer) {
    Object.assign(this, { explorer, setting: null, token: null, shown: null, paired: false });
    const button = (words, label, onclick, tip) => h("button", { type: "button", class: "pin-it", "aria-label": label, "data-tip": tip, onclick }, words);
    this.setter = button("Pin", "Pin this setting", () => this.pinSetting(), "Pin this setting: others are then held against it");
    this.taker = button("Pin", "Pin this token", () => this.pinToken(), "Pin this token: others are then shown beside it");
    this.back = button("Show it", "Show the pinned setting", () => this.goBack(), "Let the dials stand at the pinned setting");
    this.basis = tag();
    this.words = new Words(this.basis, "pin-words");
    this.line = h("div", { class: "pin-line", hidden: true }, this.words.element,
      h("div", { class: "pin-acts" }, this.back, button("Unpin", "Unpin the setting", () => this.dropSetting(), "Hold nothing against this setting any more")));
    this.lost = h("p", { class: "pin-lost", role: "status", hidden: true });
    this.release = button("Unpin", "Unpin the token", () => this.dropToken(), "Take the pinned token away");
    this.panel = new Inspector({ name: "The pinned token", act: this.release, note: h("p", { class: "pin-note" }) });
    this.side = h("div", { class: "side pin-side", hidden: true }, this.panel.element);
  }

  // ---- what comes from Python, and what it is told

  /** Take on what is to be pinned, of these pools of rounds. */
  adopt(pins = {}, pools = []) {
    this.lose("");
    this.setting = this.known(this.setting, pins.setting, pools, (pool, dial) => new PinnedSetting(pool, dial));
    this.token = this.known(this.token, pins.token, pools, (pool, dial, slot) => new PinnedToken(pool, slot, dial));
    if (this.token && this.token.place === null) {
      this.lose(`The pinned token is not in this run's text at ${this.token.words}, so it is unpinned.`);
      this.token = null;
    }
    this.show();
  }

  /** The pin of a key, "slot~dial~γ" or "dial~γ": the present pin if it is this one, else one made from the pool of its γ. */
  known(pin, key, pools, make) {
    const [gamma, dial, slot] = (key || "").split("~").reverse().map((part) => (part ? Number(part) : null));
    const pool = pools.find(({ about }) => about.gamma === gamma);
    if (key && pin?.gamma === gamma && pin.dial === dial && pin.slot === slot && (!pool || pool.id === pin.pool.id)) return pin;
    if (pool) return make(pool, dial, slot);
    if (key) this.lose("The pin belongs to another run and was removed.");
    return null;
  }

  /** What is pinned, as Python keeps it. */
  get where() {
    const key = (pin) => (pin ? [pin.slot, pin.dial ?? "", pin.gamma].filter((part) => part !== undefined).join("~") : "");
    return { token: key(this.token), setting: key(this.setting) };
  }

  // ---- what the hand does

  pinSetting() {
    const { trajectories: { pool }, reading } = this.explorer;
    if (this.setting?.isShown(reading.run, reading.dial)) return this.dropSetting();
    this.setting = new PinnedSetting(pool, reading.dial);
    this.changed(`${this.setting.words} is pinned.`);
  }

  dropSetting() {
    this.setting = null;
    this.changed("The setting is unpinned.");
    this.setter.focus({ preventScroll: true });
  }

  pinToken() {
    const { trajectories: { pool }, reading, selected } = this.explorer;
    this.token = new PinnedToken(pool, carried(selected, reading.run, pool), reading.dial);
    this.changed("The token is pinned.");
  }

  dropToken() {
    this.token = null;
    this.changed("The token is unpinned.");
    this.taker.focus({ preventScroll: true });
  }

  goBack() {
    const { dial, lengths } = this.explorer, { setting } = this;
    dial.set(setting.dial, true);
    if (setting.gamma !== lengths.value) lengths.choose(setting.gamma);
    this.setter.focus({ preventScroll: true });
  }

  changed(words) {
    this.lose("");
    this.show();
    this.follow();
    say(this.explorer.heard, words);
    this.explorer.report();
  }

  lose(words) {
    say(this.lost, words);
    this.lost.hidden = !words;
  }

  // ---- what follows

  /** What is pinned, where that is not what it was. */
  show() {
    const { explorer: { tiles, root }, setting, token } = this;
    this.line.hidden = !setting;
    tiles.compare(setting && setting.reading.values);
    this.side.hidden = !token;
    root.classList.toggle("paired", Boolean(token));
    if (token) {
      const evidence = evidenceOf(token.pool.id);
      evidence.heard ??= () => this.prove(); // of rounds at a draft length that is not shown
      this.panel.open(token.reading.run, token.pool, evidence);
      say(this.panel.note, `Pinned at ${token.words}`);
      this.prove();
    }
  }

  /** Evidence of the pinned token, which may have been on its way. */
  prove() {
    if (!this.token) return;
    this.panel.show(this.token.reading, this.token.place);
    this.pair();
  }

  /** Hold the selected token against the pinned one. */
  pair() {
    if (!this.token && !this.paired) return;
    this.paired = Boolean(this.token);
    markUnlike(this.explorer.inspector, this.token && this.panel);
  }

  /** What is shown changed: the dial moved, or another run came. */
  follow() {
    const { explorer: { reading, stream, dial, trajectories: { pool } }, setting, token } = this;
    const shown = setting?.isShown(reading.run, reading.dial) ?? false;
    if (shown !== this.shown) this.offer(shown);
    dial.pin(setting && setting.dial, setting && setting.gamma !== reading.run.about.gamma);
    const found = setting?.beside(reading);
    stream.marks.show("unlike", found?.slots ?? NO_SLOTS);
    if (setting) this.tell(reading, found, shown);
    const place = token && token.pool.id === pool.id ? carried(token.slot, pool, reading.run) : null;
    stream.marks.show("pinned", place === null ? NO_SLOTS : new Set([place]));
    this.pair();
  }

  /** The button beside the dial pins the setting shown, or unpins it where it is the pinned one. */
  offer(shown) {
    this.shown = shown;
    say(this.setter, shown ? "Unpin" : "Pin");
    this.setter.setAttribute("aria-label", shown ? "Unpin this setting" : "Pin this setting");
  }

  /** What is heard of the pinned setting once the hand rests. */
  get told() {
    return this.setting && heardWords(this.explorer.reading.run, this.sentence);
  }

  tell(reading, found, shown) {
    this.sentence = besidePinned(reading, this.setting, found);
    this.words.show(reading.run, this.sentence);
    mark(this.basis, basisOf(reading) === "exact" ? this.setting.basis : "block-local");
    this.back.hidden = shown;
  }
}
