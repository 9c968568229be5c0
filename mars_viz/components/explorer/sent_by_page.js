// The explorer and others on its page, such as a classroom's: it tells them where it stands, and goes where they send it,
// by events of the window that name its key. Going there tells Python nothing until it has rested for a while, or until the
// page says that it `rests`.

const RESTS = 1500; // ms after which Python is told, for the figures and the link
const SPREAD = 4000; // ms more at most, by chance: a class does not ask the server all at once

/** Tell the page where an explorer stands; `turned` where a hand has just moved its dial or chosen another length. */
function tellPage(explorer, turned) {
  const detail = { ...explorer.position(), key: explorer.key, turned };
  window.dispatchEvent(new CustomEvent("mars-viz-stands", { detail }));
}

/** Let an explorer go where the page sends it, until what is returned is called. */
function sentByPage(explorer) {
  let resting = 0;
  const go = (event) => {
    if (event.detail.key !== explorer.key || !explorer.reading || explorer.dial.grip) return;
    event.preventDefault(); // whoever sent it knows that it was heard
    sent(explorer, event.detail);
    clearTimeout(resting);
    resting = setTimeout(() => {
      explorer.settle();
      explorer.announce();
      tellPosition(explorer, explorer.key, explorer.position());
    }, event.detail.rests ? 0 : RESTS + SPREAD * Math.random());
  };
  window.addEventListener("mars-viz-go", go);
  return () => {
    clearTimeout(resting);
    window.removeEventListener("mars-viz-go", go);
  };
}

/** Go to what is said of a position. */
function sent(explorer, { dial, overlay, selected, gamma }) {
  if (overlay !== undefined && overlay !== explorer.overlays.name) {
    explorer.overlays.press(overlay);
    explorer.stream.repaint();
  }
  if (typeof dial === "number") explorer.move(dial);
  else explorer.overlays.draw(explorer.reading);
  const slot = selected == null ? null : carried(selected, explorer.trajectories.pool, explorer.reading.run);
  if (slot !== null) {
    explorer.selected = slot;
    explorer.stream.select(slot, true);
    explorer.inspector.show(explorer.reading, slot);
  }
  if (gamma !== undefined && gamma !== explorer.lengths.value && explorer.lengths.lengths.includes(gamma)) {
    explorer.lengths.place(gamma);
    explorer.awaited = gamma;
    tellPosition(explorer, explorer.key, explorer.position()); // its rounds are sent anew
  }
}
