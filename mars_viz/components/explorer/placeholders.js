// A long text before it is built: where it is cut, so that each piece is laid out by itself, and which pieces are near.

const CHUNK_FROM = 60, CHUNK_TO = 140; // tokens in a block of text that is laid out by itself
const ONE_CHUNK = 320; // a text no longer than this stays in one block

/** Ranges of rounds, cut where a line or a sentence ends if there is such a place. */
export function chunked(run, recorded) {
  const chunks = [];
  if (run.rounds && recorded.totals.tokens <= ONE_CHUNK) return [{ first: 0, last: run.rounds - 1 }];
  for (let first = 0; first < run.rounds; first = chunks.at(-1).last + 1) {
    let tokens = 0, last = run.rounds - 1, merit = -1;
    for (let r = first; r < run.rounds && merit < 2; r++) {
      tokens += recorded.length[r];
      if (tokens > CHUNK_TO) break;
      const worth = tokens < CHUNK_FROM ? -1 : endingOf(run, recorded, r);
      if (worth >= Math.max(merit, 0)) [last, merit] = [r, worth];
      if (r === run.rounds - 1) last = r; // the rest fits
    }
    chunks.push({ first, last: tokens > CHUNK_TO && merit < 0 ? first : last });
  }
  return chunks;
}

/** 2 where a round ends a line, 1 where it ends a sentence, else 0. */
function endingOf(run, recorded, r) {
  if (!recorded.length[r]) return 0;
  const text = run.pieces.text[recorded.tokens[run.slotAt[r] + recorded.length[r] - 1]];
  return /\n\s*$/.test(text) ? 2 : /[.!?;}"”。！？；…」』»؟۔।]$/.test(text) ? 1 : 0;
}

function looksLikeCode(run, recorded) {
  let text = "";
  for (let r = 0; r < run.rounds && text.length < 20000; r++) {
    for (let i = 0; i < recorded.length[r]; i++) text += run.pieces.text[recorded.tokens[run.slotAt[r] + i]];
  }
  return /\n(\t| {2,})\S/.test(text);
}

const GROUP = 24; // chunks in a group
const NEAR = 120; // pixels around the text's box within which a chunk is near
const AHEAD = 3000; // and a group, so that its chunks are watched before they come near

function chunkGroup(elements = []) {
  return h("div", { class: "chunks", role: "presentation" }, ...elements);
}

/** A chunk that is not built. `stale` are the rounds of another trajectory that it is built of until it is refreshed. */
function emptyChunk(run, range) {
  const element = h("div", { class: "chunk", role: "presentation" });
  element.chunk = { element, built: false, near: false, parted: undefined, stale: null };
  return setRange(run, element.chunk, range);
}

/** Give a chunk a range of rounds. What is not built is as tall as its slots suggest. */
function setRange(run, chunk, { first, last }) {
  const slots = run.slotAt[last + 1] - run.slotAt[first];
  if (slots !== chunk.slots && !chunk.built) {
    chunk.slots = slots;
    chunk.element.style.setProperty("--slots", slots);
    chunk.element.style.removeProperty("--tall"); // another text's
  }
  return Object.assign(chunk, { first, last });
}

/** Chunks that wait to be built. Who watched every chunk of a long text would pay for all of them in every frame, so they
 * stand in groups: groups are watched, and chunks only in groups that are near. Tells of chunks that come near or leave by
 * `seen`, as an IntersectionObserver does. */
class Placeholders {
  constructor(root, seen) {
    const around = (margin, told) => new IntersectionObserver(told, { root, rootMargin: `${margin}px 0px` });
    Object.assign(this, { elements: [], seen, chunks: around(NEAR, seen), groups: around(AHEAD, (entries) => this.reach(entries)) });
  }

  /** Put chunks up, in place of all that stood there; the groups. */
  put(chunks) {
    this.close();
    this.elements = [];
    for (let first = 0; first < chunks.length; first += GROUP) {
      this.elements.push(chunkGroup(chunks.slice(first, first + GROUP).map(({ element }) => element)));
    }
    return this.elements;
  }

  /** Put up those of the chunks that are new, behind the others, and take away what is none of them. */
  change(chunks) {
    const present = this.elements.flatMap((group) => [...group.children]);
    for (const element of present.slice(chunks.length)) {
      this.chunks.unobserve(element);
      element.remove();
    }
    for (const group of this.elements.filter(({ children }) => !children.length)) {
      this.groups.unobserve(group);
      group.remove();
    }
    this.elements = this.elements.filter(({ children }) => children.length);
    for (const { element } of chunks.slice(present.length)) this.add(element);
  }

  /** Put a chunk up behind the last one. */
  add(element) {
    let group = this.elements.at(-1);
    if (group.children.length === GROUP) {
      this.elements.push(chunkGroup());
      group.after(this.elements.at(-1));
      group = this.elements.at(-1);
    }
    group.append(element);
    this.groups.unobserve(group);
    this.groups.observe(group); // tells of it anew, and so of the chunk
  }

  watch() {
    for (const group of this.elements) this.groups.observe(group);
  }

  /** A group that leaves takes its chunks along: nobody would hear of them otherwise. */
  reach(entries) {
    const left = [];
    for (const { target, isIntersecting } of entries) {
      for (const chunk of target.children) {
        if (isIntersecting) this.chunks.observe(chunk);
        else {
          this.chunks.unobserve(chunk);
          left.push({ target: chunk, isIntersecting });
        }
      }
    }
    if (left.length) this.seen(left);
  }

  close() {
    this.chunks.disconnect();
    this.groups.disconnect();
  }
}
