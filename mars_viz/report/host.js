// The page around the explorer: it gives the component what Streamlit gives it in the app, and the figures their dial.
// Stands after the explorer's own script, in one module with it.

{
  const $ = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** A column of the payload as the explorer takes it; one that came in parts is joined. */
  function columns(value) {
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    if (Array.isArray(value)) return value.map(columns);
    if ("parts" in value) {
      const data = new ARRAYS[value.type](value.parts.reduce((length, part) => length + part.length, 0));
      value.parts.reduce((at, part) => (data.set(part, at), at + part.length), 0);
      return data;
    }
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, columns(item)]));
  }

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

  async function open() {
    const { payload, position, name, drawn } = await unparcel($("run").textContent);
    const place = $("explorer").attachShadow({ mode: "open" });
    const sheet = document.createElement("style");
    sheet.textContent = $("explorer-style").textContent;
    place.append(sheet);
    let figures = null, dial = position.dial;
    views.set(place, new Followed(place, (value) => {
      dial = value;
      figures?.show(value);
    }));
    const data = { key: "report", revision: "report", position, payload: columns(payload) };
    const show = () => explorer({ data, parentElement: place, setStateValue: () => {} });
    show();
    $("waiting").remove();
    const described = await unparcel($("drawn").textContent);
    const places = Object.fromEntries(["basis", "figures", "maps", "quantities", "heat_map"].map((id) => [id, $(id)]));
    figures = new Figures(described, places, { plotly: await plotly(), file: name, symbol: payload.dial?.symbol, dark });
    figures.show(dial);
    dark.addEventListener("change", () => {
      show();
      figures.repaint();
    });
  }

  open().catch((error) => {
    const old = typeof DecompressionStream === "undefined";
    $("failed").textContent = old ? "This browser is too old to unpack the report. Open it in a browser of 2023 or later." : `The report could not be shown: ${error.message}. It may have been damaged on its way; make it again.`;
    $("failed").hidden = false;
    console.error(error);
  });
}
