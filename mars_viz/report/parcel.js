// Reads what parcel.py wrote: base64, gzip, then JSON and arrays.

const KINDS = { int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array };
const UNKNOWN = -(2 ** 15), INFINITE = 100;

async function inflated(text) {
  const binary = atob(text.trim());
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** The value that was packed, with typed arrays where there were arrays; one of several dimensions is a list of rows. */
async function unparcel(text) {
  const buffer = await inflated(text);
  const size = new DataView(buffer).getUint32(0, true);
  const { value, arrays } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size;
  const read = [];
  for (const about of arrays) {
    const Kind = KINDS[about.type], width = Kind.BYTES_PER_ELEMENT, { length } = about;
    const planes = new Uint8Array(buffer, at, length * width);
    const bytes = new Uint8Array(length * width);
    for (let plane = 0; plane < width; plane++) for (let i = 0; i < length; i++) bytes[i * width + plane] = planes[plane * length + i];
    if (about.from !== undefined) {
      const before = new Uint8Array(read[about.from].buffer);
      for (let i = 0; i < bytes.length; i++) bytes[i] ^= before[i];
    }
    read.push(new Kind(bytes.buffer));
    at += length * width;
  }
  return filled(value, read);
}

function filled(value, read) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((item) => filled(item, read));
  if ("$decimals" in value) {
    const found = decimals(...value.$decimals.map((index) => read[index]));
    return value.shape ? rowsOf(found, value.shape) : found;
  }
  if ("$array" in value) return value.shape ? rowsOf(read[value.$array], value.shape) : read[value.$array];
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filled(item, read)]));
}

function decimals(mantissas, exponents) {
  return Float32Array.from(mantissas, (mantissa, i) => {
    if (mantissa === UNKNOWN) return NaN;
    if (exponents[i] === INFINITE) return mantissa * Infinity;
    return exponents[i] < 0 ? mantissa / 10 ** -exponents[i] : mantissa * 10 ** exponents[i];
  });
}

function rowsOf(values, [rows, width]) {
  return Array.from({ length: rows }, (_, r) => Array.from(values.subarray(r * width, (r + 1) * width)));
}
