/* What the page holds: everything but the weights as JSON, and the weights of a head when they are asked for. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const DIGITS = Math.min(5, Math.max(3, DATA.error > 0 ? Math.ceil(-Math.log10(DATA.error)) + 1 : 5));

/** Weights as codes; each is low + (top - low) (code / last)², and the highest code is no number. */
class Codes {
  constructor(bytes, rows, columns, bits, triangle) {
    Object.assign(this, { rows, columns, triangle });
    this.tops = new Float32Array(bytes.buffer, 0, rows);
    this.lows = new Float32Array(bytes.buffer, 4 * rows, rows);
    this.planes = bits / 8;
    this.missing = 2 ** bits - 1;
    this.bytes = bytes.subarray(8 * rows);
    this.count = this.bytes.length / this.planes;
  }

  code(i) {
    return this.planes === 1 ? this.bytes[i] : 256 * this.bytes[i] + this.bytes[this.count + i];
  }

  /** Row i as numbers; NaN for what is none. */
  row(i, into = new Float32Array(this.columns)) {
    const length = this.triangle ? i + 1 : this.columns;
    const start = this.triangle ? (i * (i + 1)) / 2 : i * this.columns;
    const low = this.lows[i];
    const span = this.tops[i] - low;
    const last = this.missing - 1;
    for (let j = 0; j < length; j++) {
      const code = this.code(start + j);
      into[j] = code === this.missing ? NaN : low + span * (code / last) ** 2;
    }
    into.fill(0, length);
    return into;
  }
}

const parsed = new Promise((done) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", done, { once: true });
  else done();
});

/** The text of an element, when all of it has arrived. */
async function textOf(id) {
  if (!document.getElementById(id)?.nextSibling) await parsed;
  return document.getElementById(id).textContent;
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflated(base64) {
  const packed = new Blob([bytesOf(base64)]).stream();
  return new Uint8Array(await new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
}

const arrived = new Map();

function once(key, make) {
  if (!arrived.has(key)) arrived.set(key, make());
  return arrived.get(key);
}

/** The codes of a head, by the indices of its map and of itself. */
function headCodes(m, h) {
  return once(`weights-${m}-${h}`, async () => {
    const map = DATA.maps[m];
    const [rows, columns] = [tokensOf(map.query).text.length, tokensOf(map.key).text.length];
    return new Codes(await inflated(await textOf(`weights-${m}-${h}`)), rows, columns, DATA.bits, map.triangle);
  });
}

/** The thumbnails of all heads of a map, one below the other. */
function thumbnailCodes(m) {
  return once(`thumbnails-${m}`, async () => {
    const map = DATA.maps[m];
    const rows = map.heads.length * (map.rowEdges.length - 1);
    return new Codes(await inflated(await textOf(`thumbnails-${m}`)), rows, map.columnEdges.length - 1, 8, false);
  });
}

function tokensOf(index) {
  return DATA.tokens[index];
}

/** Where in the whole text a token is. */
function positionOf(tokens, i) {
  return tokens.positions ? tokens.positions[i] : i;
}

/** A weight in words, with the digits that the page can vouch for. */
function inWords(value) {
  return Number.isNaN(value) ? "not a number" : Math.abs(value) < 1e4 ? value.toFixed(DIGITS) : value.toPrecision(3);
}
