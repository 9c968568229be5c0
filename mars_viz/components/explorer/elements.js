// Elements, and a token's text in them. Token text is data: it only ever becomes a text node.

/** An element; attributes by name, `class` and listeners (`onclick`) included, then its children. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function say(element, text) {
  if (element.firstChild?.nodeType === 3 && element.childNodes.length === 1) {
    if (element.firstChild.data !== text) element.firstChild.data = text;
  } else element.textContent = text;
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

const DIRECTED = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const ORDINARY = /^ ?[^\s\p{C}\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]+$/u;
const UNSEEN = /^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u3164\ufe0f]*$/u;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/u;

/** Fill an element with a token's text as it is; marks for what cannot be seen come from CSS and are not copied. */
function fill(element, text) {
  const ordinary = ORDINARY.test(text);
  element.kind = [ordinary && text[0] === " " && " lead", text.includes("\n") && " broken", DIRECTED.test(text) && " bidi"].filter(Boolean).join("");
  if (ordinary) element.textContent = text;
  else element.replaceChildren(...spelled(text));
  return element;
}

function spelled(text) {
  if (text === "") return [h("i", { class: "w u", "data-u": "empty" })];
  const parts = [];
  const all = UNSEEN.test(text);
  for (const char of text) {
    const mark = char === " " ? "s" : char === "\n" ? "n" : char === "\t" ? "tab" : CONTROL.test(char) || all ? "u" : "";
    if (mark === "u") parts.push(h("i", { class: "w u", "data-u": codepoint(char) }, char));
    else if (mark) parts.push(h("i", { class: `w ${mark}` }, char));
    else if (typeof parts.at(-1) === "string") parts[parts.length - 1] += char;
    else parts.push(char);
  }
  return parts;
}

function codepoint(char) {
  return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A token's text for an accessible name: what cannot be seen is spelled out, and it is never very long. */
function spoken(text) {
  const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
  return Array.from(shown, (char) => (char === "\n" ? "⏎" : CONTROL.test(char) ? codepoint(char) : char)).join("");
}

/** A token in quotation marks, isolated from what stands around it. */
function quote() {
  const token = h("bdi");
  let shown = null;
  return {
    element: h("span", { class: "quote" }, "“", token, "”"),
    /** `bare` leaves out blanks around a word. */
    show(run, piece, bare = false) {
      const text = clipped(run.pieces.text[piece]);
      const said = bare ? text.trim() || text : text;
      if (said === shown) return;
      shown = said;
      fill(token, said);
      token.className = `quoted${token.kind}`;
    },
  };
}

function clipped(text) {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
