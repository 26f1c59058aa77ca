/* Colours: of weights on a scale, of heads, and of the page itself. */

const SCALES = {
  linear: { share: (v, top) => v / top, at: (s, top) => s * top },
  sqrt: { share: (v, top) => Math.sqrt(v / top), at: (s, top) => s * s * top },
  log: { share: (v, top) => (v > 0 ? 1 + Math.log10(v / top) / 3 : 0), at: (s, top) => top * 10 ** (3 * (s - 1)) },
  row: { share: (v, top, largest) => (largest > 0 ? v / largest : 0), at: (s) => s },
};

/** How far along the colours a weight is, in 0..1; NaN stays. */
function shade(value, top, largest) {
  const share = SCALES[state.scale].share(value, top, largest);
  return Number.isNaN(value) ? NaN : Math.min(1, Math.max(0, share || 0));
}

function colorTable() {
  return once(`colors-${state.colormap}`, () => bytesOf(DATA.colormaps[state.colormap]));
}

/** Red, green and blue of a share of 0..1; NaN has its own. */
function colorOf(share) {
  if (Number.isNaN(share)) return DATA.missing;
  const step = 3 * Math.round(share * 255);
  return colorTable().subarray(step, step + 3);
}

function cssColor(share) {
  return `rgb(${[...colorOf(share)].join(" ")})`;
}

/** Black or white, whichever can be read on the colour. */
function inkOn(share) {
  const [r, g, b] = [...colorOf(share)].map((level) => (level / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

/** Largest finite value of a row of a matrix. */
function largestOf(values, start, length) {
  let largest = 0;
  for (let i = start; i < start + length; i++) if (values[i] > largest && values[i] < Infinity) largest = values[i];
  return largest;
}

/** The 256 colours as pixels, and after them the one for what is no number. */
function pixelTable() {
  return once(`pixels-${state.colormap}`, () => {
    const bytes = new Uint8Array(4 * 257).fill(255);
    for (let i = 0; i < 256; i++) bytes.set(colorTable().subarray(3 * i, 3 * i + 3), 4 * i);
    bytes.set(DATA.missing, 4 * 256);
    return new Uint32Array(bytes.buffer);
  });
}

/** The weights [row, column] as a picture, a pixel each. */
function pictureOf(values, n_rows, n_columns, top) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, n_columns);
  canvas.height = Math.max(1, n_rows);
  if (n_rows === 0 || n_columns === 0) return canvas;
  const picture = new ImageData(n_columns, n_rows);
  const pixels = new Uint32Array(picture.data.buffer);
  const table = pixelTable();
  for (let r = 0; r < n_rows; r++) {
    const largest = largestOf(values, r * n_columns, n_columns);
    for (let i = r * n_columns; i < (r + 1) * n_columns; i++) {
      const share = shade(values[i], top, largest);
      pixels[i] = table[Number.isNaN(share) ? 256 : Math.round(255 * share)];
    }
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}

/** The colour bar with what its ends and middle stand for. */
function showLegend(top) {
  const bar = document.getElementById("legend-bar").getContext("2d");
  for (let i = 0; i < 256; i++) {
    bar.fillStyle = cssColor(i / 255);
    bar.fillRect(i, 0, 1, 1);
  }
  const short = (value) => String(Number(value.toPrecision(3)));
  const words =
    state.scale === "row"
      ? ["0", "half", "row's largest"]
      : [0, 0.5, 1].map((share) => short(SCALES[state.scale].at(share, top)));
  if (state.scale === "log") words[0] = `≤ ${words[0]}`;
  document.getElementById("legend-ticks").replaceChildren(...words.map((word) => made("span", { text: word })));
}

/* After Okabe and Ito, for colour-blind readers; yellow does not show on white, nor dark blue on black. */
const HEAD_COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const HEAD_COLORS_ON_DARK = ["#56b4e9", "#ff8a3d", "#1fc796", "#e79bc6", "#f0e442", "#5f8dff"];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

/** How the n-th chosen head is drawn: a colour, and after all colours another dash. */
function headStyle(n) {
  const dash = DASHES[Math.floor(n / HEAD_COLORS.length) % DASHES.length];
  const colors = isDark() ? HEAD_COLORS_ON_DARK : HEAD_COLORS;
  return { color: colors[n % colors.length], dash };
}

/** A colour of the page, by its name in the style sheet. */
function pageColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
