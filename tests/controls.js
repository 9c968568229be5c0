// What a person can use on a page, as it stands: every control that can be seen, by role and label, and what shows on
// the page. Looks into shadow roots. Knows no page of the app; knows which parts are Streamlit's and Plotly's own.

(() => {
  const ROLES = ["slider", "tab", "radio", "option", "switch", "checkbox", "button", "combobox", "link", "menuitem", "spinbutton", "textbox", "gridcell"];
  const CONTROLS = ["button", "a[href]", "input", "select", "textarea", "summary", "[data-testid=data-grid-canvas]", '[tabindex]:not([tabindex="-1"])']
    .concat(ROLES.map((role) => `[role=${role}]`)).join(", ");
  const SCROLLED = "[data-testid=stMain], [data-testid=stSkipLink], .stCode, .stCode *, pre"; // take the focus to scroll, and no more
  const OWN = "[data-testid=stElementToolbar], [data-testid=stMainMenu], .modebar, .plotly-notifier, [data-testid=stHeaderActionElements], [data-testid=stCodeCopyButton], [data-testid$=Dropdown], input[type=file]";
  const WIDGETS = ["Selectbox", "MultiSelect", "NumberInput", "Slider", "TextInput", "TextArea", "ButtonGroup", "FileUploader", "Checkbox"]
    .map((name) => `[data-testid=st${name}]`).join(", ");
  const TAGS = { BUTTON: "button", A: "link", SELECT: "combobox", TEXTAREA: "textbox", SUMMARY: "summary", CANVAS: "table" };
  const TYPES = { checkbox: "checkbox", radio: "radio", number: "spinbutton", range: "slider", file: "file" };
  const HANDS = ["pointer", "grab", "ew-resize", "ns-resize", "col-resize", "crosshair", "move"];
  const UNDER_WAY = "[data-testid=stSkeleton], [data-testid=stSpinner], [data-testid=stFileChipIconSpinner], [data-stale=true]";
  const UNANSWERED = 60000; // ms; no answer comes after so long
  const FIGURE = ".js-plotly-plot", LAYERS = { nsewdrag: "area", legendtoggle: "legend" }; // of a Plotly figure
  const LAYER = Object.keys(LAYERS).map((each) => `.${each}`).join(", ");

  const up = (e) => e.parentElement ?? e.getRootNode().host ?? null;
  function closest(e, test) {
    for (let at = e; at; at = up(at)) if (typeof test === "string" ? at.matches(test) : test(at)) return at;
    return null;
  }
  const shadows = []; // of all elements, the pages' own and others'
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (how) {
    const root = attach.call(this, how);
    shadows.push(root);
    return root;
  };
  const roots = () => [document, ...shadows.filter((root) => root.host.isConnected)];
  const matching = (selector) => roots().flatMap((root) => [...root.querySelectorAll(selector)]);
  /** Every element in the order of the page, with its cursor and that of its parent; of a figure its layers, and nothing of
   * what is not the page's own. */
  function every(root, around = "auto", found = []) {
    for (const e of root.children) {
      if (e.matches(OWN)) continue;
      if (e.matches(FIGURE)) {
        for (const each of e.querySelectorAll(LAYER)) found.push([each, around, around]);
        continue;
      }
      const { cursor } = getComputedStyle(e);
      found.push([e, cursor, around]);
      if (e.shadowRoot) every(e.shadowRoot, cursor, found);
      every(e, cursor, found);
    }
    return found;
  }
  const text = (e) => (e?.innerText ?? e?.textContent ?? "").replace(/\s+/g, " ").trim();

  function role(e) {
    return e.getAttribute("role") ?? (e.tagName === "INPUT" ? TYPES[e.type] ?? "textbox" : TAGS[e.tagName] ?? "focusable");
  }
  function name(e) {
    if (e.tagName === "TH") return "row of a table";
    const by = () => (e.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean).map((id) => text(e.getRootNode().getElementById(id)));
    const words = () => e.querySelector("[data-testid=stMarkdownContainer]"); // without the icon beside it
    return e.getAttribute("aria-label") || by().join(" ") || text(e.labels?.[0]) || text(words()) || text(e) || e.getAttribute("placeholder") || e.classList[0] || "";
  }
  function group(e) {
    const found = closest(up(e), (at) => ["radiogroup", "tablist", "listbox", "toolbar"].includes(at.getAttribute("role")) && at.getAttribute("aria-label"));
    return found ? found.getAttribute("aria-label") : text(closest(e, WIDGETS)?.querySelector("[data-testid=stWidgetLabel]"));
  }
  /** Figures and titles of runs differ from run to run; a label does not. */
  function plain(words) {
    const kinds = /“?Of the kind \w+( \(interrupted\))?”?/g;
    return words.replace(kinds, "〈run〉").replace(/“[^”]*”/gs, "“…”").replace(/[−-]?\d[\d.,\u202f]*/g, "#").slice(0, 90).trim();
  }
  function seen(e) {
    if (!e.checkVisibility({ visibilityProperty: true })) return false;
    const shown = (at) => at.getBoundingClientRect().width > 1 && at.getBoundingClientRect().height > 1;
    return [e, ...(e.labels ?? [])].some(shown) || (e.matches("input") && shown(up(up(e)))); // a thumb's input is hidden
  }
  function layer(e) {
    return Object.keys(LAYERS).find((each) => e.classList.contains(each));
  }
  function described(e) {
    const off = e.disabled === true || e.getAttribute("aria-disabled") === "true";
    if (layer(e)) return { label: LAYERS[layer(e)], off };
    const own = plain(name(e)), of = plain(group(e));
    return { label: of && of !== own ? `${of} › ${own}` : own, off };
  }
  /** Every control with its element, or those of one role. One that only its cursor gives away is 'clickable'. */
  function all(wanted) {
    const found = [];
    for (const [e, cursor, around] of every(document)) {
      const known = layer(e) || e.matches(CONTROLS);
      if ((!known && (cursor === around || !HANDS.includes(cursor))) || e.matches(SCROLLED)) continue;
      const is = layer(e) ? "figure" : known ? role(e) : "clickable";
      if (wanted && is !== wanted) continue;
      if (!known) {
        if (closest(e, (at) => at.tagName === "LABEL" || (at.matches(CONTROLS) && !at.matches(SCROLLED)))) continue;
        if (e.querySelector(CONTROLS) || every(e).some(([at]) => at.matches(CONTROLS))) continue;
      }
      if (seen(e)) found.push({ element: e, role: is, ...described(e) });
    }
    return found;
  }
  const OPENER = "[data-testid=stPopoverButton][aria-expanded=true]";
  /** Labels of the popover and the open expanders that hold an element, from without, joined by ' / '. */
  function inside(e) {
    const path = [];
    for (let at = up(e); at; at = up(at)) {
      const opens = at.matches("[data-testid=stPopoverBody]") ? document.querySelector(OPENER)
        : at.tagName === "DETAILS" && !e.matches("summary") ? at.querySelector("summary") : null;
      if (opens) path.unshift(described(opens).label);
    }
    return path.join(" / ");
  }
  /** The label of the button whose popover is open, or an empty one. */
  const opener = () => (document.querySelector(OPENER) ? described(document.querySelector(OPENER)).label : "");
  /** Those that differ, whether none of them can be used, and whether all are chosen already. */
  function told() {
    const found = new Map();
    for (const { element, role, label, off } of all()) {
      const key = `${role} ${label}`;
      const known = found.get(key) ?? { off: true, taken: true };
      const saves = Boolean(closest(element, "[data-testid=stDownloadButton]"));
      found.set(key, { role, label, saves, inside: inside(element), off: off && known.off, taken: chosen(element) && known.taken });
    }
    return [...found.values()];
  }
  const chosen = (e) => ["aria-checked", "aria-selected", "aria-pressed"].some((name) => e.getAttribute(name) === "true") || (e.type === "radio" && e.checked);
  /** The one to be used: not one that is chosen already, where there is another. What stands for it where it is too small. */
  function pick(role, label) {
    const able = all(role).filter((each) => each.label === label && !each.off).map(({ element }) => element);
    const e = able.find((each) => !chosen(each)) ?? able[0] ?? null;
    const hidden = e?.tagName === "INPUT" && up(e).getBoundingClientRect().width <= 1;
    return hidden ? closest(up(up(e)), (at) => at.getBoundingClientRect().width > 1) : e; // its thumb, or its label
  }

  const INNER = "label, div"; // what holds a control whose state is asked for
  const STATES = ["aria-checked", "aria-selected", "aria-pressed", "aria-valuenow", "aria-expanded", "open"];
  function state(e) {
    return [e.value ?? "", e.checked ?? "", ...STATES.map((name) => e.getAttribute(name))].join("|");
  }
  function figure(e) {
    const values = (each) => each && (each.bdata ?? [...(each.flat?.(9) ?? [])].join());
    const { title, xaxis, yaxis, annotations, shapes } = e._fullLayout ?? {};
    return JSON.stringify([title?.text, xaxis?.range, yaxis?.range, annotations?.map?.((each) => each.text), shapes?.length,
      e.data?.map((each) => [values(each.x), values(each.y), values(each.z), each.visible])]);
  }
  function focused() {
    let at = document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    return at;
  }
  const LOOKS = {
    link: (name) => (name ? new URLSearchParams(location.search).get(name) : location.search),
    path: () => location.pathname,
    text: (selector) => matching(selector).filter((e) => e.checkVisibility()).map((e) => e.innerText).join("\n"),
    answer: (of) => { // the text of a selector, or the notes that say some words
      const [selector, words] = of.split(" | ");
      return LOOKS.text(selector) + matching(".mv-note").map((e) => e.innerText).filter((said) => said.includes(words)).join("\n");
    },
    drawn: (selector) => matching(selector).map((e) => e.outerHTML + (e.toDataURL?.() ?? "")).join("\n"),
    state: (selector) => matching(selector).map(state).join("\n"),
    figures: (selector) => matching(`${selector} .js-plotly-plot`).map(figure).join("\n"),
    scroll: (selector) => matching(selector).map((e) => [e.scrollTop, e.scrollLeft]).join(),
    seen: (selector) => matching(selector).filter(seen).length,
    itself: (of, spot) => state(spot.matches(INNER) ? spot.querySelector("input, [role]") ?? spot : spot),
    page: () => { // all that can be seen of it
      const texts = roots().map((root) => (root.body ? [root.body] : [...root.children]).map((e) => e.innerText).join("\n"));
      return [location.href, ...texts, ...matching("input, textarea, [role], details").map(state), LOOKS.figures("body")].join("\n");
    },
    focus: () => {
      const at = focused();
      return at ? `${role(at)} ${text(at)}` : "";
    },
  };
  const look = (wanted, spot) => wanted.map(([kind, of]) => String(LOOKS[kind](of, spot)));

  // when the page asked its server for something last, when it heard from it, when it last scrolled, and how often it was
  // looked at since: a page that gets little of the processor has not shown in 40 ms what it has heard
  let sent = 0, heard = 0, moved = 0, looked = 0;
  addEventListener("scroll", () => { moved = performance.now(); looked = 0; }, { capture: true });
  const Native = window.WebSocket;
  window.WebSocket = class extends Native {
    constructor(...how) {
      super(...how);
      this.addEventListener("message", () => { heard = performance.now(); looked = 0; });
    }
    send(data) {
      sent = performance.now();
      looked = 0;
      super.send(data);
    }
  };
  /** True once the page has been told what became of what it asked for, and shows it. Asked once a frame. */
  function idle() {
    const now = performance.now(), app = document.querySelector("[data-testid=stApp]");
    looked += 1;
    if (app?.dataset.testScriptState !== "notRunning" || looked < 3 || now - Math.max(sent, heard, moved) < 40) return false;
    if (heard < sent && now - sent < UNANSWERED) return false;
    if (matching("[data-testid=stPlotlyChart]").some((e) => !e.querySelector(".main-svg"))) return false;
    return !document.querySelector(UNDER_WAY);
  }
  /** True once nothing moves of its own accord that will come to an end. */
  function still() {
    const moving = (each) => each.playState === "running" && Number.isFinite(each.effect?.getComputedTiming().endTime);
    return idle() && !roots().some((root) => root.getAnimations().some(moving));
  }
  /** True once all that is looked at is other than before. What a control says of itself may be taken back by the server. */
  function changed(wanted, before, spot, began) {
    if (!idle() || look(wanted, spot).some((now, at) => now === before[at])) return false;
    return !spot || sent > began || performance.now() - began > 400;
  }
  window.census = { opener, told, pick, look, changed, leave: () => focused()?.blur(), idle, still };
})();
