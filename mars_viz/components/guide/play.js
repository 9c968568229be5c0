// The dial plays once in a browser's tab: from strict to a loose value and back. Any key, press, wheel or touch stops it.

const PLAYED = "mars-viz-played"; // in the tab's memory
const STAGES = [[900, 0], [2300, 1], [700, 1], [1300, 2]]; // ms, and the index of the value at the end of the stage
const STOPS = ["keydown", "pointerdown", "wheel", "touchstart"];
const LOOKS = 50; // ms between two looks for the explorer

/** The value so many ms after the start. */
function playedAt(values, elapsed) {
  let from = values[0], left = elapsed;
  for (const [length, index] of STAGES) {
    const to = values[index];
    if (left < length) return from + ((to - from) * (1 - Math.cos((Math.PI * left) / length))) / 2;
    [from, left] = [to, left - length];
  }
  return from;
}

/** Play the dial of the explorer of that key in `place`, unless it was played before or the reader wants no motion. */
function playDial(place, key, values) {
  if (recall(PLAYED) || matchMedia("(prefers-reduced-motion: reduce)").matches) return () => {};
  const stopped = new AbortController();
  const { signal } = stopped;
  const go = (dial, rests) => window.dispatchEvent(new CustomEvent("mars-viz-go", { detail: { key, dial, rests }, cancelable: true }));
  const stop = () => stopped.abort(); // Python hears of it once the dial has rested, not while a link is followed
  for (const name of STOPS) {
    window.addEventListener(name, () => { remember(PLAYED, true); stop(); }, { capture: true, passive: true, signal });
  }
  const begin = (start) => {
    if (signal.aborted) return;
    remember(PLAYED, true);
    const last = STAGES.reduce((sum, [length]) => sum + length, 0);
    const frame = (now) => {
      if (signal.aborted) return;
      const ends = now - start >= last;
      go(Number(playedAt(values, now - start).toFixed(3)), ends);
      if (ends) return stop();
      requestAnimationFrame(frame);
    };
    frame(start);
  };
  const look = () => {
    if (signal.aborted) return;
    if (explorerIn(place)) requestAnimationFrame(() => requestAnimationFrame(begin)); // it has been painted by then
    else setTimeout(look, LOOKS);
  };
  look();
  return stop;
}
