// Which chunks of a long text are near. Whoever watches every chunk of it pays for all of them in every frame, so chunks
// stand on shelves: shelves are watched, and chunks only on shelves that are near.

const SHELF = 24; // chunks on a shelf
const NEAR = 120; // pixels around the text's box within which a chunk is near
const AHEAD = 3000; // and a shelf, so that its chunks are watched before they come near

/** Tells of chunks that come near or leave by `seen`, as an IntersectionObserver does. */
class Shelves {
  constructor(root, seen) {
    const around = (margin, told) => new IntersectionObserver(told, { root, rootMargin: `${margin}px 0px` });
    Object.assign(this, { elements: [], seen, chunks: around(NEAR, seen), shelves: around(AHEAD, (entries) => this.reach(entries)) });
  }

  /** Put chunks up, in place of all that stood there; the shelves. */
  put(chunks) {
    this.close();
    this.elements = [];
    for (let first = 0; first < chunks.length; first += SHELF) {
      this.elements.push(h("div", { class: "shelf", role: "presentation" }, ...chunks.slice(first, first + SHELF).map(({ element }) => element)));
    }
    return this.elements;
  }

  watch() {
    for (const shelf of this.elements) this.shelves.observe(shelf);
  }

  /** A shelf that leaves takes its chunks along: nobody would hear of them otherwise. */
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
    this.shelves.disconnect();
  }
}
