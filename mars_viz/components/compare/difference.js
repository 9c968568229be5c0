// What a text has that another has not, token by token: kinds as classes, and their legend.

const KINDS_OF_DIFFERENCE = [["same", "same so far"], ["apart", "differs"], ["again", "same again"]];

/** The kind of a token: `common` says of each whether the other text has it, the two part at the index `parts` or never. */
function differenceOf(common, parts, index) {
  if (!common[index]) return index === parts ? " apart parts" : " apart";
  return parts === null || index < parts ? " same" : " again";
}

/** Where stretches that differ begin, and how many tokens before them are in common. */
function stretchesOf(common, side) {
  let before = 0;
  return common.flatMap((same, index) => {
    if (same) before += 1;
    return same || (index && !common[index - 1]) ? [] : [{ side, index, before }];
  });
}

/** The differences of two texts in order, each where it begins in the right one, or in the left one if only that says more
 * there. Texts that are not of one vocabulary do not have their tokens in common in pairs: there one text's alone. */
function differencesOf(left, right, paired) {
  const ours = stretchesOf(left, 0);
  const theirs = stretchesOf(right, 1);
  if (!paired) return theirs.length ? theirs : ours;
  const known = new Set(theirs.map(({ before }) => before));
  return [...theirs, ...ours.filter(({ before }) => !known.has(before))].sort((a, b) => a.before - b.before);
}

/** [[kind, length], …] as one kind for each token. */
function spread(rows) {
  return rows.flatMap(([kind, length]) => new Array(length).fill(kind));
}

function legendOf(keys) {
  return keys.map(([kind, words]) => h("span", { class: "key" }, h("span", { class: `t ${kind}` }, words)));
}
