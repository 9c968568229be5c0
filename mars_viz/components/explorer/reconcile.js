// A chunk whose rounds are another trajectory's, changed into what a stream's reading has there: what both have stays, and
// elements of what only the other has are used again. It knows a stream's elements, and no dial.

/** Let a chunk be built of its own rounds instead of the `stale` ones; most still have to get their looks. */
function reconcile(stream, chunk) {
  const { stale, first, last, element } = chunk, { elements } = stream;
  const reused = reusedRounds(stale, stream.run, first, last - first + 1);
  const kept = new Set(reused);
  for (const round of stale) if (!kept.has(round)) discard(stream, round);
  let before = first === 0 ? stream.prompt : null;
  reused.forEach((round, i) => {
    if (round) reuse(stream, round, first + i);
    else if (before) before.after(elements.round(first + i));
    else element.prepend(elements.round(first + i));
    before = elements.rounds[first + i];
  });
  element.classList.remove("faded");
  Object.assign(chunk, { stale: null, parted: undefined });
}

/** For each of `count` rounds from `first` on the stale one whose elements it gets, in the same order; null for none. The same
 * round as far as there is one, and in between whatever is left over. */
function reusedRounds(stale, run, first, count) {
  const reused = new Array(count).fill(null);
  const same = (i, k) => sameDraft(stale[i].run, stale[i].r, run, first + k);
  let from = 0, next = 0; // behind the last pair
  for (const [i, k] of [...commonSubsequence(stale.length, count, same), [stale.length, count]]) {
    while (from < i && next < k) reused[next++] = stale[from++];
    if (k < count) reused[k] = stale[i];
    [from, next] = [i + 1, k + 1];
  }
  return reused;
}

/** The longest common subsequence of two sequences of these lengths, as pairs of indices. */
function commonSubsequence(left, right, same) {
  const head = [], tail = [];
  let from = 0;
  while (from < left && from < right && same(from, from)) head.push([from, from++]);
  while (left > from && right > from && same(left - 1, right - 1)) tail.unshift([--left, --right]);
  const wide = right - from + 1;
  const best = new Uint16Array((left - from + 1) * wide); // how many pairs there are from here on
  const pairs = new Uint8Array(best.length);
  for (let i = left - 1; i >= from; i--) {
    for (let k = right - 1; k >= from; k--) {
      const at = (i - from) * wide + k - from;
      pairs[at] = same(i, k);
      best[at] = pairs[at] ? best[at + wide + 1] + 1 : Math.max(best[at + wide], best[at + 1]);
    }
  }
  for (let i = from, k = from; i < left && k < right;) {
    const at = (i - from) * wide + k - from;
    if (pairs[at]) head.push([i++, k++]);
    else if (best[at + wide] >= best[at + 1]) i++;
    else k++;
  }
  return [...head, ...tail];
}

/** True if two rounds drafted the same tokens. */
function sameDraft(run, r, other, s) {
  if (sameRound(run, r, other, s)) return true;
  if (run.count[r] !== other.count[s]) return false;
  for (let i = run.nodeAt[r], k = other.nodeAt[s]; i < run.nodeAt[r + 1]; i++, k++) {
    if (run.nodes.token[i] !== other.nodes.token[k] || run.nodes.parent[i] !== other.nodes.parent[k]) return false;
  }
  return true;
}

/** Let the elements of a stale round be those of round `r`. */
function reuse(stream, round, r) {
  const { run, elements } = stream, { element } = round;
  if (sameRound(round.run, round.r, run, r)) elements.looks.put(r, round.looks);
  else if (!sameDraft(round.run, round.r, run, r)) rewrite(stream, round, r);
  if (element.className !== "r") element.className = "r";
  if (round.r !== r) element.dataset.round = roundName(r);
  elements.rounds[r] = element;
  round.tokens.forEach((token, i) => token && elements.assign(token, run.slotAt[r] + i));
}

/** Put the drafted tokens of round `r` in place of a stale round's. */
function rewrite(stream, round, r) {
  const { run, list, elements } = stream, { element, tokens } = round;
  if (run.branched[r] || round.run.branched[round.r]) {
    element.replaceChildren();
    list.putAll(tokens.splice(0));
    if (!run.branched[r]) element.append(...elements.chain(r));
    return;
  }
  const count = run.count[r], emitted = tokens.pop();
  for (const token of tokens.splice(count)) {
    token.remove();
    list.put(token);
  }
  while (tokens.length < count) {
    tokens.push(list.token());
    emitted.before(tokens.at(-1));
  }
  tokens.forEach((token, i) => elements.write(token, run.nodes.token[run.nodeAt[r] + i]));
  tokens.push(emitted); // which is written where it gets its looks
}

/** A stale round is gone: its tokens are used again. */
function discard({ list }, { element, tokens }) {
  element.remove();
  list.putAll(tokens);
}
