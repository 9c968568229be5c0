// The end board: what each lane took, as a sentence and a table of words made in Python. It appears when all are done.

function board({ sentence, columns, rows }) {
  return h("section", { class: "race-board", role: "status" },
    h("p", { class: "race-sentence" }, sentence),
    h("div", { class: "race-table", role: "region", "aria-label": "What each lane took", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, ...columns.map(({ name, help }) => h("th", { scope: "col", title: help }, name)))),
      h("tbody", {}, ...rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((cell, place) => h("td", { "data-name": columns[place + 1].name }, cell))))))));
}
