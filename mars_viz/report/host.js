// The report's page around the explorer: what stands in the page is unpacked and shown.
// Stands behind `run_view.js`, in one module with it, and behind `opening.js`.

{
  const $ = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const valueIn = (id) => valueOf($(id).textContent);

  async function plotly() {
    const script = document.createElement("script");
    script.textContent = asText(await unpacked($("plotly").textContent));
    document.head.append(script);
    return globalThis.Plotly;
  }

  async function open() {
    const { payload, position, name } = await valueIn("run");
    let figures = null, dial = position.dial;
    const place = explorerPlace($("explorer"), (value) => {
      dial = value;
      figures?.show(value);
    });
    const data = { key: "report", revision: "report", position, payload };
    const show = () => explorer({ data, parentElement: place, setStateValue: () => {} });
    show();
    $("waiting").hidden = true;
    const described = await valueIn("drawn");
    figures = figuresOnPage(described, { plotly: await plotly(), file: () => fileName(name, dial), payload, dark });
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
