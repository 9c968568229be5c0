// The text that a reading has: what was kept and emitted, without what was drafted in vain. Touches no document.

/** The slots that wrote the text, in order, and the piece of text that each wrote. */
export function writtenTokens({ run, now }) {
  const slots = new Int32Array(now.totals.tokens), pieces = new Int32Array(slots.length);
  let at = 0;
  for (let r = 0; r < run.rounds; r++) {
    const first = run.slotAt[r], kept = now.length[r] - (now.emission[r] === NOTHING ? 0 : 1);
    const order = run.branched[r] ? readingOrder(run, now, r) : null; // begins with the kept path
    for (let i = 0; i < now.length[r]; i++, at++) {
      slots[at] = i >= kept ? run.slotAt[r + 1] - 1 : order ? order[i] : first + i;
      pieces[at] = now.tokens[first + i];
    }
  }
  return { slots, pieces };
}

/** The text of these pieces, control tokens left out, and where each of them begins in it; one more number is its end. */
export function joinedText({ pieces: { text, special } }, pieces) {
  const parts = new Array(pieces.length), starts = new Int32Array(pieces.length + 1);
  for (let i = 0; i < pieces.length; i++) {
    parts[i] = special[pieces[i]] ? "" : text[pieces[i]];
    starts[i + 1] = starts[i] + parts[i].length;
  }
  return { text: parts.join(""), starts };
}

/** Where a text has what is searched for, as pairs of begin and end. White space in it stands for white space of any kind and
 * length, line breaks included; upper and lower case are the same unless `cased`. */
export function occurrences(text, wanted, cased = false) {
  const parts = wanted.normalize("NFC").split(/(\s+)/u).filter(Boolean);
  if (!parts.length) return [];
  const pattern = parts.map((part) => (/^\s/u.test(part) ? "\\s+" : part.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"))).join("");
  const found = text.matchAll(new RegExp(pattern, cased ? "gu" : "giu"));
  return Array.from(found, ({ 0: match, index }) => [index, index + match.length]);
}

/** The index of the token that holds a place in the text; of tokens without any text the last one that begins there. */
export function tokenAt(starts, place) {
  let low = 0, high = starts.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}
