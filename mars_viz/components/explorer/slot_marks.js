// Classes that tokens carry beside that of their outcome: what was searched for, what differs from a pinned text. They say
// where to look and leave the outcome's colours alone.

const NO_SLOTS = new Set();

/** The marked slots of a stream's reading, by the name of their class. */
class SlotMarks {
  constructor(stream) {
    Object.assign(this, { stream, marked: new Map() });
  }

  /** Let these slots carry the class, and no others. */
  show(name, slots) {
    const before = this.marked.get(name) ?? NO_SLOTS;
    if (before === slots) return;
    if (slots.size) this.marked.set(name, slots);
    else this.marked.delete(name);
    for (const slot of before) if (!slots.has(slot)) this.toggle(name, slot, false);
    for (const slot of slots) if (!before.has(slot)) this.toggle(name, slot, true);
  }

  toggle(name, slot, on) {
    const { elements, unfolding } = this.stream;
    elements.tokens[slot]?.classList.toggle(name, on);
    unfolding?.box(slot)?.classList.toggle(name, on);
  }

  /** The slots become another reading's: no token is marked any more. */
  clear() {
    for (const name of [...this.marked.keys()]) this.show(name, NO_SLOTS);
  }

  /** The tokens are gone, and so are the marks. */
  forget() {
    this.marked.clear();
  }

  /** Tokens of slots from `first` to before `end` were another reading's until now: mark them as this one has it. */
  renew(first, end) {
    for (const [name, slots] of this.marked) {
      for (let slot = first; slot < end; slot++) if (slots.has(slot)) this.toggle(name, slot, true);
    }
  }

  /** The classes of a slot, each with a leading blank. */
  of(slot) {
    let names = "";
    for (const [name, slots] of this.marked) if (slots.has(slot)) names += ` ${name}`;
    return names;
  }
}
