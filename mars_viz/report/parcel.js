// Reads what parcel.py wrote: text, compressed bytes, then JSON and arrays.

const KINDS = { int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array };
const UNKNOWN = -(2 ** 15), INFINITE = 100;

const LETTERS = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i)).filter((letter) => !'<&"\\'.includes(letter));

/** The bytes that `text.py` wrote: 13 bits in two characters; the first says how many bits at the end are none. */
function bytesOf(text) {
  const value = new Uint8Array(128);
  LETTERS.forEach((letter, i) => (value[letter.charCodeAt(0)] = i));
  const bytes = new Uint8Array(Math.floor((((text.length - 1) / 2) * 13 - value[text.charCodeAt(0)]) / 8));
  for (let at = 1, held = 0, bits = 0, to = 0; at < text.length; at += 2) {
    held = (held << 13) | (value[text.charCodeAt(at)] * LETTERS.length + value[text.charCodeAt(at + 1)]);
    for (bits += 13; bits >= 8; held &= (1 << bits) - 1) bytes[to++] = held >> (bits -= 8);
  }
  return bytes;
}

async function inflated(text) {
  return new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
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
  if ("$scaled" in value) {
    const found = unscaled(value, ...value.$scaled.map((index) => read[index]));
    return value.shape ? rowsOf(found, value.shape) : found;
  }
  if ("$some" in value) return some(...value.$some.map((index) => read[index]), value.length);
  if ("$array" in value) return value.shape ? rowsOf(read[value.$array], value.shape) : read[value.$array];
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filled(item, read)]));
}

/** Numbers, each as its class, which says exponent, sign, length and first bits of the mantissa, and the bits after these. */
function unscaled({ base, first }, classes, exponents, lengths, tops, bits) {
  if (first === undefined) return Float64Array.from(classes, (mantissa, i) => unscaledOne(base, mantissa, exponents[i]));
  let at = 0;
  return Float64Array.from(classes, (of) => {
    let mantissa = tops[of];
    for (let left = Math.max(Math.abs(lengths[of]) - first, 0); left > 0; left--, at++) mantissa = 2 * mantissa + ((bits[at >> 3] >> (7 - (at & 7))) & 1);
    return unscaledOne(base, lengths[of] < 0 ? -mantissa : mantissa, exponents[of]);
  });
}

function unscaledOne(base, mantissa, exponent) {
  if (base === 2) return mantissa * 2 ** exponent;
  if (mantissa === UNKNOWN) return NaN;
  return exponent === INFINITE ? mantissa * Infinity : scaled(mantissa, exponent);
}

function scaled(mantissa, exponent) {
  return exponent < 0 ? mantissa / 10 ** -exponent : mantissa * 10 ** exponent;
}

/** An array that is NaN but for some values; a bit for each place says where they stand. */
function some(there, values, length) {
  let next = 0;
  return new values.constructor(length).map((_, i) => ((there[i >> 3] >> (7 - (i & 7))) & 1 ? values[next++] : NaN));
}

function rowsOf(values, [rows, width]) {
  return Array.from({ length: rows }, (_, r) => Array.from(values.subarray(r * width, (r + 1) * width)));
}
