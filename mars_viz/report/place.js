// Where a component stands on a page without a server.

/** Make the element a component's place, with its style, instead of the words that stood for it. */
function shadowPlace(element, style) {
  const place = element.attachShadow({ mode: "open" });
  const sheet = document.createElement("style");
  sheet.textContent = style;
  place.append(sheet);
  return place;
}
