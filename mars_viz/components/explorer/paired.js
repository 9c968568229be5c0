// Two inspectors beside one another: what the selected token has other than the pinned one is marked in both.

const COMPARED = ["ratio", "margin", "entropy", "p(x)"];
const BEST = 2; // of the target's best tokens

/** Mark what two inspected tokens do not have in common; without a second one nothing is marked. */
function markUnlike(selected, pinned) {
  const ours = selected.said, theirs = pinned?.said ?? null;
  const known = Boolean(ours && theirs);
  for (const inspector of [selected, pinned].filter(Boolean)) {
    inspector.pill?.classList.toggle("unlike", known && ours.outcome !== theirs.outcome);
    inspector.facts?.forEach(({ name, value }) => value.classList.toggle("unlike", known && COMPARED.includes(name) && unequal(ours.numbers[name], theirs.numbers[name])));
    inspector.target?.rows.forEach((row, i) => row.classList.toggle("unlike", known && i < BEST && ours.best[i] !== theirs.best[i]));
  }
  selected.facts?.forEach(({ name, change }) => say(change, known && COMPARED.includes(name) ? changeOf(ours.numbers[name], theirs.numbers[name]) : ""));
}

function unequal(ours, theirs) {
  return short(ours) !== short(theirs);
}

/** By how much a number is larger than the pinned one's, with its sign; nothing where they read alike. */
function changeOf(ours, theirs) {
  const change = ours - theirs;
  if (!Number.isFinite(change) || !unequal(ours, theirs)) return "";
  return `${change < 0 ? "−" : "+"}${short(Math.abs(change))}`;
}
