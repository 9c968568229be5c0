// What a text could have done to a page: elements that it made, addresses that it named, marks that turn what stands
// around it. Looks into shadow roots. Knows no page of the app.

(() => {
  const HOST = "hostile.invalid";
  const ADDRESSES = ["src", "href", "srcset", "action", "formaction", "poster", "data", "background", "style"];
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

  window.hostile = () => {
    const problems = [], texts = [];
    for (const node of every(document.documentElement)) {
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
  };
})();
