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

/** A group of explained things as one stop of the Tab key, arrow keys moving within it; they show and hide together. */
function grouped(elements) {
  elements.forEach((element, i) => {
    element.tabIndex = i === 0 ? 0 : -1;
    element.addEventListener("keydown", (event) => {
      const next = elements[i + ({ ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key] ?? NaN)];
      if (!next) return;
      event.preventDefault();
      element.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
  return elements;
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

// Marks that turn the direction of what follows: a token with one is isolated. Letters that read from right to left are
// not, or words of several tokens would fall apart and a line of them would run backwards.
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;
const ORDINARY = /^ ?[^\s\p{C}\u0590-\u08ff\ufb1d-\ufdff\u115f\u3164\ufe0f\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]+$/u;
const UNSEEN = /^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u3164\ufe0f]*$/u;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/u;
const BLANK = /\p{Zs}/u;
const JOINS = /^[\u200d\ufe0f]|\u200d$/u; // part of an emoji, that would melt into the token beside it
const MODIFIES = /^[\u{1f3fb}-\u{1f3ff}]/u; // likewise: the colour of a skin

/** Fill an element with a token's text as it is; marks for what cannot be seen come from CSS and are not copied. */
function fill(element, text) {
  const ordinary = ORDINARY.test(text);
  element.kind = [
    ordinary && text[0] === " " && " lead", text.includes("\n") && " broken", TURNING.test(text) && " bidi", MODIFIES.test(text) && " modified",
  ].filter(Boolean).join("");
  if (ordinary) say(element, text);
  else element.replaceChildren(...spelled(text));
  return element;
}

function spelled(text) {
  if (text === "") return [h("i", { class: "w u", "data-u": "empty" })];
  const parts = [];
  const all = UNSEEN.test(text);
  const chars = Array.from(text);
  chars.forEach((char, i) => {
    const edge = i === 0 || i === chars.length - 1;
    const mark = markOf(char, all || (edge && JOINS.test(i === 0 ? char : `.${char}`)));
    if (mark === "u") parts.push(h("i", { class: "w u", "data-u": codepoint(char) }, char));
    else if (mark) parts.push(h("i", { class: `w ${mark}` }, char));
    else if (typeof parts.at(-1) === "string") parts[parts.length - 1] += char;
    else parts.push(char);
  });
  return parts;
}

/** How a character that cannot be seen is made visible: a class of `w`, or nothing. `spell` asks for its code point. */
function markOf(char, spell) {
  if (char === "\n") return "n";
  if (char === "\t") return "tab";
  if (BLANK.test(char)) return "s";
  return spell || CONTROL.test(char) ? "u" : "";
}

function codepoint(char) {
  return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A token's text for an accessible name: what cannot be seen is spelled out, and it is never very long. */
function spoken(text) {
  return Array.from(cut(text, 80), (char) => (char === "\n" ? "⏎" : CONTROL.test(char) ? codepoint(char) : char)).join("");
}

/** A token in words, for who cannot see its looks: its `index` in the text, null for a draft that did not reach it; an outcome
 * or a ratio that is not known is left out. */
function tokenLabel(index, text, outcome, ratio) {
  const name = index === null ? "draft" : `token ${index + 1}`;
  const known = ratio !== null && ratio !== undefined;
  return [name, `“${spoken(text)}”`, outcome, known && `ratio ${short(ratio)}`].filter(Boolean).join(", ");
}

/** A token in quotation marks, isolated from the text around it; a control token is a chip without them. */
function quote() {
  const token = h("bdi"), marks = ["“", "”"].map((mark) => document.createTextNode(mark));
  let shown = null, control = false;
  return {
    element: h("span", { class: "quote" }, marks[0], token, marks[1]),
    /** `bare` leaves out blanks around a word. */
    show(run, piece, bare = false) {
      const text = clipped(run.pieces.text[piece]), special = run.pieces.special?.[piece] === 1;
      const said = bare ? text.trim() || text : text;
      if (said === shown && special === control) return;
      [shown, control] = [said, special];
      fill(token, said);
      token.className = special ? "special" : `quoted${token.kind}${/^\p{M}/u.test(said) ? " orphan" : ""}`;
      [marks[0].data, marks[1].data] = special ? ["", ""] : ["“", "”"];
    },
  };
}

function clipped(text) {
  return cut(text, 60);
}

/** At most so many characters, whole ones. */
function cut(text, most) {
  const chars = text.length > most ? Array.from(text) : [];
  return chars.length > most ? `${chars.slice(0, most).join("")}…` : text;
}

/** The name of a control token. */
function controlToken(text) {
  return h("span", { class: "special", role: "presentation" }, text);
}

/** A prompt before its text: the end of a long one. If the target read more than the prompt, a press shows the `whole` of it:
 * stretches of text and control tokens. */
function promptBefore(prompt, whole = []) {
  const shown = prompt.length > 1200 ? `…${prompt.slice(-1200).replace(/^[\udc00-\udfff]/, "")}` : prompt;
  const element = h("span", { class: "prompt", role: "presentation" }, shown);
  if (!whole.length) return element;
  const own = h("span", { role: "presentation" }, shown);
  const all = h("span", { role: "presentation" }, ...whole.map(([text, special]) => (special ? controlToken(text) : text)));
  const handle = h("span", { class: "unfold", role: "presentation", onclick: () => element.unfold() });
  const show = (folded) => {
    [own.hidden, all.hidden] = [!folded, folded];
    handle.dataset.more = folded ? "whole prompt" : "fold prompt";
    handle.dataset.tip = folded ? "Show the prompt as the target read it (p)" : "Show the user's text alone (p)";
  };
  element.replaceChildren(own, all, handle);
  element.unfold = () => show(own.hidden);
  show(true);
  return element;
}

const LABEL = 110; // pixels that a round's label takes at most, with the edge beside it

/** A round's label stands at its beginning; one that would be cut off at the text's right edge stands left of that. */
function labelled(round, text) {
  round?.classList.toggle("late", text.getBoundingClientRect().right - round.getClientRects()[0].left < LABEL);
}

/** Scroll the box around a token, never the page, as little as needed. */
function scrollInto(box, token) {
  const around = box.getBoundingClientRect();
  const at = token.getBoundingClientRect();
  if (at.top < around.top + 8) box.scrollTop += at.top - around.top - 40;
  else if (at.bottom > around.bottom - 8) box.scrollTop += at.bottom - around.bottom + 40;
}
