// The colour scale of the overlays, and whether the page is dark.

// Cividis (Nuñez, Anderton, Renslow 2018) at nine points; light text on the dark half.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#fee838"];
const SHADES = 24;

function cividis(share) {
  const at = clamp(share, 0, 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const channel = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mix = (i) => Math.round(channel(CIVIDIS[low], i) + (at - low) * (channel(CIVIDIS[low + 1], i) - channel(CIVIDIS[low], i)));
  return [mix(0), mix(1), mix(2)];
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function colourSheet() {
  const rules = Array.from({ length: SHADES }, (_, i) => {
    const rgb = cividis(i / (SHADES - 1));
    const ink = luminance(rgb) > 0.18 ? "#111" : "#fff";
    const faded = `color-mix(in srgb,rgb(${rgb}) 35%,var(--ground))`; // of which the theme's ink is legible at either end
    return `.t.c${i}{background-color:rgb(${rgb});color:${ink};--mark:${ink}}.faded .t.c${i}{background-color:${faded};color:var(--ink);--mark:var(--ink)}`;
  });
  return h("style", {}, rules.join(""));
}

/** Mark an element as light or dark, as the page around it is. True if that changed. */
function themed(root) {
  const color = getComputedStyle(root).getPropertyValue("--st-background-color").trim();
  const probe = h("span");
  probe.style.color = color || "#fff";
  root.append(probe);
  const rgb = getComputedStyle(probe).color.match(/\d+(\.\d+)?/g).slice(0, 3).map(Number);
  probe.remove();
  const name = luminance(rgb) < 0.2 ? "dark" : "light";
  if (root.dataset.theme === name) return false;
  root.dataset.theme = name;
  return true;
}
