// Says in one sentence why a report shows nothing. Runs first, by itself, and in the words of old browsers, which may
// understand nothing of the rest.

function failed(sentence) {
  var place = document.getElementById("failed");
  place.textContent = sentence;
  place.hidden = false;
  document.getElementById("waiting").hidden = true;
}

if (typeof DecompressionStream === "undefined") failed("This browser is too old to unpack the report. Open it in a browser of 2023 or later.");
