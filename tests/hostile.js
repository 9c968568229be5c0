// What a text could have done to a page: elements that it made, addresses that it named, marks that turn what stands
// around it. Looks into shadow roots. Knows no page of the app.

(() => {
  const HOST = "hostile.invalid";
  const ADDRESSES = ["src", "href", "xlink:href", "srcset", "action", "formaction", "poster", "data", "background", "style"];
  const WRITTEN = "[data-testid=stMarkdownContainer], [data-testid=stCaptionContainer], [data-testid=stTooltipContent]";
  const FORMATS = "a, img, strong, em, code, pre, del, h1, h2, h3, h4, h5, h6, li, td, th, blockquote, hr, .katex, .stMarkdownColoredText, .stMarkdownColoredBackground, .stMarkdownBadge, [data-testid=stIconMaterial]";
  const TURNING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;
  const UNREAD = "script, style, textarea, canvas *, title, [data-testid=stCode] *"; // what is copied from there stays as it is
  const OWN = "[data-testid=stFileUploader]"; // Streamlit's, of the visitor's own file

  const up = (node) => node.parentElement ?? node.getRootNode().host ?? null;
  /** Every element and every text, those of shadow roots at the place of their hosts. */
  function* every(root) {
    for (const node of root.childNodes) {
      yield node;
      if (node.shadowRoot) yield* every(node.shadowRoot);
      yield* every(node);
    }
  }
  /** True where the text stands in an element of a line that keeps directions to itself, or where its mark is shown. */
  function isolated(text) {
    for (let at = text.parentElement; at; at = up(at)) {
      const { display, unicodeBidi } = getComputedStyle(at);
      if (at.dataset.u || (display.startsWith("inline") && unicodeBidi.startsWith("isolate"))) return true;
      if (!display.startsWith("inline") && display !== "contents") return false;
    }
    return false;
  }
  const quoted = (text) => JSON.stringify(text.trim().slice(0, 70));
  const closed = (text) => text.replace(/\u2068[^\u2066-\u2069]*\u2069/gu, "");

  /** What is wrong below a node, and its text. */
  function within(root) {
    const problems = [], texts = [];
    for (const node of every(root)) {
      if (node.nodeType === 3 && !node.parentElement?.matches(UNREAD)) {
        texts.push(node.data);
        if (TURNING.test(closed(node.data)) && !isolated(node)) problems.push(`a mark is not shown in ${quoted(node.data)}`);
      }
      if (node.nodeType !== 1) continue;
      for (const name of ADDRESSES) {
        const value = node.getAttribute(name) ?? "";
        if (value.includes(HOST) || /^\s*javascript:/i.test(value)) problems.push(`<${node.tagName} ${name}="${value}">`);
      }
      for (const { name, value } of node.attributes) {
        if (name.startsWith("on")) problems.push(`<${node.tagName} ${name}="${value}">`);
        if (["title", "alt", "placeholder", "aria-label"].includes(name) && !node.closest(OWN) && TURNING.test(closed(value))) problems.push(`a mark is not shown in ${name}=${quoted(value)}`);
      }
      if (/evil|Streamlit logo/.test(node.textContent + (node.alt ?? "")) && node.matches(FORMATS) && node.closest(WRITTEN)) problems.push(`<${node.tagName}> is made of ${quoted(node.textContent)}`);
      if (node.matches("[data-testid=stException]")) problems.push(`an error: ${quoted(node.innerText)}`);
    }
    return { problems, text: texts.join("") };
  }
  window.hostile = () => within(document.documentElement);

  /** True once it is so; false where it is not for as long as nobody would wait. */
  async function comes(so, again) {
    for (let tries = 1; tries < 12_000; tries += 1) {
      if (so()) return true;
      if (tries % 100 === 0) again(); // the widget may have been drawn again
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return false;
  }
  const over = (node, kind) => node.dispatchEvent(new PointerEvent(kind, { bubbles: true, composed: true, pointerType: "mouse" }));
  const targets = () => [...document.querySelectorAll("[data-testid=stTooltipHoverTarget]")];
  const named = (target) => {
    const widget = target.closest("[data-testid=stElementContainer]");
    return `${location.pathname} ${widget?.className.match(/st-key-[\w-]+/)?.[0] ?? widget?.innerText.slice(0, 30)}`;
  };
  /** Streamlit's tooltips, each kind of widget once, without the known ones. */
  function* helps(known) {
    for (const target of targets()) {
      const name = named(target);
      if (known.has(name) || !target.checkVisibility({ visibilityProperty: true })) continue;
      known.add(name);
      const point = (kind) => [target, ...targets().filter((each) => named(each) === name)].forEach((each) => over(each, kind));
      point("pointerover");
      yield [name, () => point("pointerover")];
      point("pointerout");
    }
  }
  /** The page's own tooltips. */
  function* tips() {
    for (const node of every(document.documentElement)) {
      if (node.nodeType !== 1 || !node.dataset?.tip) continue;
      over(node, "pointerover");
      yield node.getRootNode().querySelector(".tip");
      over(node, "pointerout");
    }
  }
  const helped = new Set(JSON.parse(sessionStorage.getItem("helped") ?? "[]"));
  /** What shows on hovering alone. */
  window.hovered = async () => {
    const found = [];
    for (const tip of tips()) if (tip) found.push(within(tip));
    for (const [name, again] of helps(helped)) {
      const shown = () => [...document.querySelectorAll("[data-testid=stTooltipContent]")].find((each) => each.textContent);
      if (await comes(shown, again)) found.push(within(shown().parentElement));
      else found.push({ problems: [`nothing shows on ${name}`], text: "" });
    }
    sessionStorage.setItem("helped", JSON.stringify([...helped]));
    return { problems: found.flatMap((each) => each.problems), text: found.map((each) => each.text).join("") };
  };
})();
