// The explorer where no server is, and the figures that follow its dial: it is given what Streamlit gives it in the app.
// Stands behind the explorer's own script, in one scope with it.

/** The explorer; it also tells of every dial value, while Python would hear of those alone where the hand rests. */
class Followed extends Explorer {
  constructor(parent, followed) {
    super(parent, false);
    this.followed = followed;
  }

  render() {
    super.render();
    this.followed(this.reading.dial);
  }
}

/** Make the element the explorer's place, with its style; `followed` hears of every dial value. Give what is returned to
 *  `explorer` as its `parentElement`. */
function explorerPlace(element, followed) {
  const place = shadowPlace(element, explorerStyle);
  views.set(place, new Followed(place, followed));
  return place;
}

/** The figures of a page, in its elements of those ids. `file` names what is saved of them. */
function figuresOnPage(described, { plotly, file, payload, dark }) {
  const places = Object.fromEntries(["basis", "figures", "maps", "quantities", "heat_map"].map((id) => [id, document.getElementById(id)]));
  return new Figures(described, places, { plotly, file, symbol: payload.dial?.symbol, dark });
}

/** As `file_name` in Python. */
function fileName({ stem, gamma }, dial) {
  const at = dial === null ? "" : `-at-${String(dial).replace("-", "minus-").replace(".", "-")}`;
  return `${stem}${at}${gamma}`;
}
