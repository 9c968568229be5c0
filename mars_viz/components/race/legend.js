// What the looks and marks of tokens mean, each shown as it is in the text.

const MARKS = {
  relaxed: "kept only because the rule is relaxed",
  rejected: "by the rule",
  discarded: "drafted after a rejection",
  corrected: "the target's token in place of a rejected one",
  bonus: "the target's token after a block kept whole",
};

function legend() {
  return h("div", { class: "legend race-legend" }, ...Object.entries(MARKS).map(([look, words]) =>
    h("span", {}, h("span", { class: `t ${look}` }, look), ` ${words}`)));
}
