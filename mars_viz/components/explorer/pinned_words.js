// What is said of the setting shown beside the pinned one. Touches no document.

/** How the setting shown differs from the pinned one, in parts as those of `sentence`; `found` is what its text has other than
 * there. */
export function besidePinned(reading, pinned, found) {
  const { run, values, dial } = reading, then = pinned.reading.values;
  if (pinned.isShown(run, dial)) return [`Pinned: ${pinned.words}. It is the setting shown; move the dial to compare another with it.`];
  const changes = [
    more(values.rounds - then.rounds, "target pass", "es"),
    `${more(values.rolledBack - then.rolledBack, "drafted token")} rolled back`,
    values.tokens === then.tokens ? "" : more(values.tokens - then.tokens, "token"),
  ].filter(Boolean);
  const mixed = basisOf(reading) === pinned.basis ? "" : " One of the two is block-local, so these are no savings or losses.";
  const begin = `Beside the pinned ${pinned.words}: ${changes.join(", ")}.`;
  if (!found.first) return [`${begin} The text is the same.${mixed}`];
  const { index, token, instead } = found.first;
  if (token < 0) return [`${begin} The text is the same as far as it goes, up to token ${whole(index)}.${mixed}`];
  const words = `${begin} ${whole(found.count)} of ${plural(values.tokens, "token")} ${found.count === 1 ? "is" : "are"} other than there, first token ${whole(index + 1)}`;
  if (instead < 0) return [`${words}.${mixed}`];
  return [`${words} (`, { token }, " instead of ", { token: instead, run: pinned.reading.run }, `).${mixed}`];
}

/** '3 more tokens', 'as many tokens'. */
function more(change, noun, ending = "s") {
  if (!change) return `as many ${noun}${ending}`;
  return `${whole(Math.abs(change))} ${change > 0 ? "more" : "fewer"} ${noun}${Math.abs(change) === 1 ? "" : ending}`;
}
