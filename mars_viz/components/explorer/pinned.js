// What is pinned: a setting with its text and its numbers, or a token at a setting, as it was then, wherever the dial stands
// now. Touches no document.

const MOST_PAIRS = 500000; // of tokens that are compared one with another, which takes a few ms; a longer middle counts as other

/** A pool's reading at a dial value, which stays there: one of its own, none of those that the dial turns. */
function keptReading(pool, dial) {
  const trajectories = new Trajectories(pool), at = trajectories.own.within(dial);
  const reading = trajectories.at(at);
  reading.turn(at);
  return reading;
}

/** What the numbers of a reading by itself stand on. */
function basisOf({ local }) {
  return local ? "block-local" : "exact";
}

/** A setting in words, such as 'θ = 0.80, γ = 4'. */
function settingWords({ dial, about }, value) {
  const length = `${lengthName(about.tree)} = ${about.gamma}`;
  return dial ? `${dial.symbol} = ${dialText(value)}${dial.cuts ? ` of ${dial.cuts}` : ""}, ${length}` : length;
}

/** A dial value with the draft length, of one pool of rounds. */
export class PinnedSetting {
  constructor(pool, dial) {
    Object.assign(this, { pool, reading: keptReading(pool, dial), gamma: pool.about.gamma, known: new WeakMap() });
    this.dial = this.reading.dial;
    this.basis = basisOf(this.reading);
  }

  get words() {
    return settingWords(this.pool, this.dial);
  }

  /** True where this is the setting that a reading shows. */
  isShown(run, dial) {
    return dial === this.dial && run.about.gamma === this.gamma;
  }

  /** What of a reading's text is other than here; worked out once for a text that does not change. */
  beside(reading) {
    if (!reading.exact) return this.found(reading);
    if (!this.known.has(reading)) this.known.set(reading, this.found(reading));
    return this.known.get(reading);
  }

  found(reading) {
    const { slots, pieces } = writtenTokens(reading), ours = (this.written ??= writtenTokens(this.reading));
    const ids = idsOf(reading.run, pieces), ownIds = (this.ids ??= idsOf(this.reading.run, ours.pieces));
    const sameRounds = !reading.exact && !this.reading.exact && reading.run.id === this.reading.run.id;
    const others = sameRounds ? otherInRounds(reading, this.reading) : otherTokens(ids, ownIds);
    const first = commonStart(ids, ownIds), parts = first < ids.length || first < ownIds.length;
    if (parts && first < ids.length && !others.includes(first)) others.push(first);
    const token = first < ids.length ? pieces[first] : -1, instead = first < ownIds.length ? ours.pieces[first] : -1;
    return { slots: new Set(others.map((index) => slots[index])), count: others.length, first: parts ? { index: first, token, instead } : null };
  }
}

function idsOf({ pieces }, written) {
  return written.map((piece) => pieces.ids[piece]);
}

/** How many tokens two texts begin with alike. */
function commonStart(left, right) {
  const most = Math.min(left.length, right.length);
  let same = 0;
  while (same < most && left[same] === right[same]) same++;
  return same;
}

/** The indices of tokens of the left text that are no part of what both texts have in the same order. */
export function otherTokens(left, right) {
  const from = commonStart(left, right);
  let end = left.length, other = right.length;
  while (end > from && other > from && left[end - 1] === right[other - 1]) [end, other] = [end - 1, other - 1];
  const all = Array.from({ length: end - from }, (_, i) => from + i);
  if ((end - from) * (other - from) > MOST_PAIRS) return all;
  const shared = commonSubsequence(end - from, other - from, (i, k) => left[from + i] === right[from + k]);
  const kept = new Set(shared.map(([i]) => from + i));
  return all.filter((index) => !kept.has(index));
}

/** Likewise where both judge the same recorded rounds: each round is held against itself. */
function otherInRounds({ run, now }, { now: then }) {
  const found = [];
  let written = 0;
  for (let r = 0; r < run.rounds; r++) {
    for (let i = 0; i < now.length[r]; i++, written++) {
      const at = run.slotAt[r] + i;
      if (i >= then.length[r] || now.tokens[at] !== then.tokens[at]) found.push(written);
    }
  }
  return found;
}

/** A token at a setting. Its slot is one of the pool's; `place` is its slot in the text of that setting, null where that
 * does not pass there. */
export class PinnedToken {
  constructor(pool, slot, dial) {
    Object.assign(this, { pool, slot, reading: keptReading(pool, dial), gamma: pool.about.gamma });
    this.dial = this.reading.dial;
    this.place = slot < pool.slots ? carried(slot, pool, this.reading.run) : null;
  }

  get words() {
    return settingWords(this.pool, this.dial);
  }
}
