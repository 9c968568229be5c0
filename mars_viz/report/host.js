// The page around the explorer: it gives the component what Streamlit gives it in the app, and the figures their dial.
// Stands after the explorer's own script, in one module with it, and behind `opening.js`.

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

  /** The bytes that stand gzipped in the page, as base64. */
  async function unpacked(id) {
    const bytes = bytesOf($(id).textContent);
    return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
  }

  const asText = (bytes) => new TextDecoder().decode(bytes);

  /** A value as `page.py` sent it: JSON in one line, and behind it the bytes of its arrays. */
  async function valueOf(id) {
    const bytes = await unpacked(id);
    const end = bytes.indexOf(10);
    return withArrays(JSON.parse(asText(bytes.subarray(0, end))), bytes.subarray(end + 1));
  }

  async function plotly() {
    const script = document.createElement("script");
    script.textContent = asText(await unpacked("plotly"));
    document.head.append(script);
    return globalThis.Plotly;
  }

  /** As `file_name` in Python. */
  function fileName({ stem, gamma }, dial) {
    const at = dial === null ? "" : `-at-${String(dial).replace("-", "minus-").replace(".", "-")}`;
    return `${stem}${at}${gamma}`;
  }

  async function open() {
    const { payload, position, name } = await valueOf("run");
    const place = $("explorer").attachShadow({ mode: "open" });
    const sheet = document.createElement("style");
    sheet.textContent = explorerStyle;
    place.append(sheet);
    let figures = null, dial = position.dial;
    views.set(place, new Followed(place, (value) => {
      dial = value;
      figures?.show(value);
    }));
    const data = { key: "report", revision: "report", position, payload };
    const show = () => explorer({ data, parentElement: place, setStateValue: () => {} });
    show();
    $("waiting").hidden = true;
    const described = await valueOf("drawn");
    const places = Object.fromEntries(["basis", "figures", "maps", "quantities", "heat_map"].map((id) => [id, $(id)]));
    figures = new Figures(described, places, { plotly: await plotly(), file: () => fileName(name, dial), symbol: payload.dial?.symbol, dark, rows: payload.rows });
    figures.show(dial);
    dark.addEventListener("change", () => {
      show();
      figures.repaint();
    });
  }

  if (globalThis.DecompressionStream) {
    open().catch((error) => {
      failed(`The report could not be shown: ${error.message}. It may have been damaged on its way; make it again.`);
      console.error(error);
    });
  }
}
