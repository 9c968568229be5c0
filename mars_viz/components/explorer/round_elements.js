// The elements of a run's rounds and of their tokens, by round and by slot: made when they are first shown, and used again
// once nobody shows them.

/** What a round is called where the pointer is on it. */
const roundName = (r) => `round ${r + 1}`;

/** The slots of a round that drafted a chain, in order. */
const chainSlots = (run, r) => Array.from({ length: run.count[r] + 1 }, (_, i) => run.slotAt[r] + i);

class RoundElements {
  /** `spare` has elements of tokens, `prefix` keeps their names apart from another text's. */
  constructor(run, spare, prefix) {
    Object.assign(this, { run, spare, prefix, rounds: new Array(run.rounds), tokens: new Array(run.slots), looks: new Looks(run.rounds) });
  }

  /** The element of a slot, made when it is first shown: most nodes of a tree never are. */
  token(slot, r) {
    if (this.tokens[slot]) return this.tokens[slot];
    const { run } = this;
    const token = this.assign(this.spare.token(), slot);
    if (slot < run.slotAt[r + 1] - 1) this.write(token, run.nodes.token[slot - r]);
    return token;
  }

  /** Let an element be that of a slot. */
  assign(token, slot) {
    if (token.mine !== slot) {
      token.id = `${this.prefix}slot-${slot}`;
      token.mine = slot; // not `slot`, which is an element's own and turns into text
    }
    return (this.tokens[slot] = token);
  }

  /** Let an element show a piece of text. */
  write(token, piece) {
    if (token.piece === piece) return;
    token.piece = piece;
    fill(token, this.run.pieces.text[piece]);
  }

  /** All of a round that drafted a chain. */
  chain(r) {
    return chainSlots(this.run, r).map((slot) => this.token(slot, r));
  }

  /** A round; that of a tree is empty until it gets its looks. */
  round(r) {
    const tokens = this.run.branched[r] ? [] : this.chain(r);
    return (this.rounds[r] = h("span", { class: "r", role: "presentation", "data-round": roundName(r) }, ...tokens));
  }

  /** These rounds as they stand, with the run that they are of; of a tree's tokens there are those that were ever shown. */
  standing(first, last) {
    const { run, rounds, tokens, looks } = this;
    return rounds.slice(first, last + 1).map((element, i) => {
      const r = first + i;
      return { run, r, element, tokens: tokens.slice(run.slotAt[r], run.slotAt[r + 1]), looks: looks.of(r) };
    });
  }

  /** These rounds are not shown any more. */
  forget(first, last) {
    this.looks.forget(first, last);
    this.rounds.fill(undefined, first, last + 1);
    this.tokens.fill(undefined, this.run.slotAt[first], this.run.slotAt[last + 1]);
  }
}
