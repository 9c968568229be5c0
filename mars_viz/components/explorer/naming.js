// A token in words, for who cannot see its looks: the same ones wherever a token stands. Touches no document.

/** `index` in the text, null for a draft that did not reach it; an outcome or a ratio that is not known is left out. */
function tokenWords(index, text, outcome, ratio) {
  const name = index === null ? "draft" : `token ${index + 1}`;
  const known = ratio !== null && ratio !== undefined;
  return [name, `“${spoken(text)}”`, outcome, known && `ratio ${short(ratio)}`].filter(Boolean).join(", ");
}
