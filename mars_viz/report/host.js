// The page around the explorer: it gives the component what Streamlit gives it in the app, and the figures their dial.
// Stands after the explorer's own script, in one module with it, and behind `opening.js`, which unpacked both.

{
  const $ = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** The explorer; it also tells the page of every dial value, while Python would hear of those alone where the hand rests. */
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

  async function plotly() {
    const text = new TextDecoder().decode(await inflated($("plotly").textContent));
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    return globalThis.Plotly;
  }

  /** As `file_name` in Python. */
  function fileName({ stem, gamma }, dial) {
    const at = dial === null ? "" : `-at-${String(dial).replace("-", "minus-").replace(".", "-")}`;
    return `${stem}${at}${gamma}`;
  }

  async function open() {
    const { payload, position, name, drawn } = await unparcel($("run").textContent);
    const place = $("explorer").attachShadow({ mode: "open" });
    const sheet = document.createElement("style");
    sheet.textContent = explorerStyle;
    place.append(sheet);
    let figures = null, dial = position.dial;
    views.set(place, new Followed(place, (value) => {
      dial = value;
      figures?.show(value);
    }));
    const whole = restored(payload);
    const data = { key: "report", revision: "report", position, payload: whole };
    const show = () => explorer({ data, parentElement: place, setStateValue: () => {} });
    show();
    $("waiting").remove();
    const described = await unparcel($("drawn").textContent);
    const places = Object.fromEntries(["basis", "figures", "maps", "quantities", "heat_map"].map((id) => [id, $(id)]));
    figures = new Figures(described, places, { plotly: await plotly(), file: () => fileName(name, dial), symbol: payload.dial?.symbol, dark, rows: whole.rows });
    figures.show(dial);
    dark.addEventListener("change", () => {
      show();
      figures.repaint();
    });
  }

  open().catch(failed);
}
