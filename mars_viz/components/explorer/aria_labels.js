// What is heard of the tokens: a label for each that is shown, and its place among all of them, most of which are not there.

const HEARD = ["label", "posinset", "setsize"];

/** Name the tokens of a round, of which `listed` says where it begins among all; `elements` are the tokens' by slot. Only what
 * has changed is written. */
function nameTokens(reading, r, listed, elements) {
  const { run, now } = reading;
  readingOrder(run, now, r).forEach((slot, i) => {
    const words = [reading.label(slot), listed[r] + i + 1, listed[run.rounds]];
    const said = words.join(" "), token = elements[slot];
    if (token.said === said) return;
    token.said = said;
    HEARD.forEach((name, k) => token.setAttribute(`aria-${name}`, words[k]));
  });
  if (now.emission[r] === NOTHING) unname(elements[run.slotAt[r + 1] - 1]);
}

/** Nothing is heard of a token that is not shown. */
function unname(token) {
  if (!token?.said) return;
  token.said = undefined;
  for (const name of HEARD) token.removeAttribute(`aria-${name}`);
}
