// Unpacks the page's own script and lets it run. Stands after `parcel.js`, in one script with it.

let explorerStyle = "";

/** True if the browser can unpack what `unparcel` is given. */
function unpacks() {
  try {
    return Boolean(new DecompressionStream("deflate-raw"));
  } catch {
    return false;
  }
}

/** Say that the report cannot be shown, and what to do. */
function failed(error) {
  const old = !unpacks();
  const place = document.getElementById("failed");
  place.textContent = old ? "This browser is too old to unpack the report. Open it in a browser of 2023 or later." : `The report could not be shown: ${error.message}. It may have been damaged on its way; make it again.`;
  place.hidden = false;
  console.error(error);
}

async function begin() {
  const { code, style } = await unparcel(document.getElementById("code").textContent);
  explorerStyle = style;
  const script = document.createElement("script");
  script.type = "module";
  script.textContent = code;
  document.head.append(script);
}

begin().catch(failed);
