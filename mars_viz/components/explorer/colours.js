// The colour scale of the overlays.

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

function colourSheet() {
  const rules = Array.from({ length: SHADES }, (_, i) => {
    const rgb = cividis(i / (SHADES - 1));
    const ink = luminance(rgb) > 0.18 ? "#111" : "#fff";
    const faded = `color-mix(in srgb,rgb(${rgb}) 35%,var(--ground))`; // of which the theme's ink is legible at either end
    return `.t.c${i}{background-color:rgb(${rgb});color:${ink};--mark:${ink}}.faded .t.c${i}{background-color:${faded};color:var(--ink);--mark:var(--ink)}`;
  });
  return h("style", {}, rules.join(""));
}
