// Where the keys lead in the text: left and right by tokens, up and down by rounds; and the way there.

/** The slot to which a key leads from the selected one, in reading order; undefined for a key that leads nowhere. */
function neighbour(run, reading, selected, key) {
  if (!run.rounds) return undefined;
  const order = (r) => readingOrder(run, reading.now, r);
  if (key === "Home") return order(0)[0];
  if (key === "End") return order(run.rounds - 1).at(-1);
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return undefined;
  if (selected === null) return order(0)[0];
  const r = roundOf(run, selected);
  const here = order(r);
  const at = here.indexOf(selected);
  if (key === "ArrowRight") return at + 1 < here.length ? here[at + 1] : order(Math.min(r + 1, run.rounds - 1)).at(r + 1 < run.rounds ? 0 : -1);
  if (key === "ArrowLeft") return at > 0 ? here[at - 1] : r > 0 ? order(r - 1).at(-1) : here[0];
  const other = order(clamp(r + (key === "ArrowDown" ? 1 : -1), 0, run.rounds - 1));
  return other[Math.min(Math.max(at, 0), other.length - 1)];
}

/** Scroll the box around a token, never the page, as little as needed. */
function scrollInto(box, token) {
  const around = box.getBoundingClientRect();
  const at = token.getBoundingClientRect();
  if (at.top < around.top + 8) box.scrollTop += at.top - around.top - 40;
  else if (at.bottom > around.bottom - 8) box.scrollTop += at.bottom - around.bottom + 40;
}
