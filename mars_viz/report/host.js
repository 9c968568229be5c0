// The page around the explorer: it gives the component what Streamlit gives it in the app, and draws the figures.
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

  class Figures {
    constructor({ names, settings, maps, specs, template, dialMark, colours }, plotly, name) {
      Object.assign(this, { settings, maps, specs, template, dialMark, colours, plotly, name, map: 0 });
      this.places = names.map((figure) => ({ figure, element: $("figures").appendChild(h("div", { class: "figure", id: figure })) }));
      $("maps").hidden = !maps.length;
      this.choices = maps.map(({ label }, i) => h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => this.choose(i) }, label));
      $("quantities").append(...this.choices);
    }

    /** The drawn setting that stands for a dial value: the nearest in the same segment of the map. */
    setting(dial) {
      if (dial === null) return this.settings[0];
      const away = ([value]) => Math.abs(value - dial);
      const within = this.settings.filter(([, low, high]) => (low === null ? !this.onMap(dial) : dial >= low && dial < high));
      return (within.length ? within : this.settings).reduce((best, one) => (away(one) < away(best) ? one : best));
    }

    onMap(dial) {
      return this.settings.some(([, low, high]) => low !== null && dial >= low && dial < high);
    }

    show(dial) {
      this.dial = dial;
      const [drawn, , , basis, ...indices] = this.setting(dial);
      const about = drawn === null || Math.abs(drawn - dial) < 5e-5 ? "" : ` Drawn at ${this.symbol} = ${dialText(drawn)}, the nearest value that this report has figures of.`;
      say($("basis"), basis + about);
      this.places.forEach(({ figure, element }, i) => this.draw(element, this.spec(indices[i]), figure));
      if (this.maps.length) this.drawMap();
    }

    choose(index) {
      this.map = index;
      this.choices.forEach((button, i) => button.setAttribute("aria-pressed", i === index));
      this.drawMap();
    }

    drawMap() {
      const { data, layout } = this.spec(this.maps[this.map].spec);
      if (this.dial !== null) this.move(data, layout);
      this.draw($("heat_map"), { data, layout }, "heat_map");
    }

    /** Let every mark of the dial stand where the dial stands. */
    move(data, layout) {
      const at = this.dial, ours = ({ name }) => name === this.dialMark;
      for (const trace of data.filter(ours)) trace.x = [at];
      for (const shape of (layout.shapes ?? []).filter(ours)) shape.x0 = shape.x1 = at;
      const [low, high] = layout.xaxis.range;
      const left = at > (low + high) / 2;
      for (const label of (layout.annotations ?? []).filter(ours)) {
        Object.assign(label, { x: at, text: `${this.symbol} = ${dialText(at)}`, xanchor: left ? "right" : "left", xshift: left ? -4 : 4 });
      }
    }

    /** A figure's description in the colours of the theme, free to be changed. */
    spec(index) {
      const paint = (value) => {
        if (typeof value === "string") return dark.matches ? value.replace(/#[0-9A-F]{6}\b/gi, (colour) => this.colours[colour] ?? colour) : value;
        if (value === null || typeof value !== "object") return value;
        if (ArrayBuffer.isView(value)) return value;
        return Array.isArray(value) ? value.map(paint) : Object.fromEntries(Object.entries(value).map(([name, item]) => [name, paint(item)]));
      };
      const { data, layout } = paint(this.specs[index]);
      return { data, layout: { ...layout, template: this.template } };
    }

    draw(element, { data, layout }, figure) {
      const save = (format) => ({ name: `Save as ${format.toUpperCase()}`, icon: this.plotly.Icons.camera, click: (drawn) => this.plotly.downloadImage(drawn, { format, filename: `${this.name}-${figure}`, scale: format === "png" ? 2 : 1, width: drawn.offsetWidth, height: layout.height }) });
      const config = { responsive: true, displaylogo: false, modeBarButtons: [[save("svg"), save("png")]] };
      this.plotly.react(element, data, layout, config);
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", layout.title.text.replace(/<br>/g, " ").replace(/<\/?b>/g, ""));
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
    const data = { key: "report", revision: "report", position, payload: columns(payload) };
    const setStateValue = (_, stands) => {
      dial = stands.dial;
      figures?.show(dial);
    };
    const show = () => explorer({ data, parentElement: place, setStateValue });
    show();
    $("waiting").remove();
    const described = await unparcel($("drawn").textContent);
    figures = new Figures(described, await plotly(), name);
    figures.symbol = payload.dial?.symbol;
    figures.show(dial);
    dark.addEventListener("change", () => {
      show();
      figures.show(dial);
    });
  }

  open().catch((error) => {
    const old = typeof DecompressionStream === "undefined";
    $("failed").textContent = old ? "This browser is too old to unpack the report. Open it in a browser of 2023 or later." : `The report could not be shown: ${error.message}. It may have been damaged on its way; make it again.`;
    $("failed").hidden = false;
    console.error(error);
  });
}
