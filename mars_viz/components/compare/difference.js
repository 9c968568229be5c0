// What a text has that another has not, token by token: kinds as classes, and their legend.

const KINDS_OF_DIFFERENCE = [["same", "same so far"], ["apart", "differs"], ["again", "same again"]];

/** The kind of a token: `common` says of each whether the other text has it, the two part at the index `parts` or never. */
function differenceOf(common, parts, index) {
  if (!common[index]) return index === parts ? " apart parts" : " apart";
  return parts === null || index < parts ? " same" : " again";
}

/** [[kind, length], …] as one kind for each token. */
function spread(rows) {
  return rows.flatMap(([kind, length]) => new Array(length).fill(kind));
}

function legendOf(keys) {
  return keys.map(([kind, words]) => h("span", { class: "key" }, h("span", { class: `t ${kind}` }, words)));
}
