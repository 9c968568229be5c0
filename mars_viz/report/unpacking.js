// What a page carries as base64, unpacked. Needs `bytesOf` and `withArrays` of the explorer's own script.

/** The bytes that stand gzipped in a text. */
async function unpacked(text) {
  const bytes = bytesOf(text);
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

function asText(bytes) {
  return new TextDecoder().decode(bytes);
}

/** A value as `sending.py` sent it: JSON in one line, and behind it the bytes of its arrays. */
async function valueOf(text) {
  const bytes = await unpacked(text);
  const end = bytes.indexOf(10);
  return withArrays(JSON.parse(asText(bytes.subarray(0, end))), bytes.subarray(end + 1));
}
