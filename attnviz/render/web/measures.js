/* Numbers of heads: one as a mosaic of layers and heads, all of them as a table that sorts. */

const measures = {
  title: "Measures of heads",
  controls: ["measure", "colormap"],

  build() {
    this.sorted = { by: null, down: true };
    this.mosaic = made("div", { class: "mosaic", on: { keydown: gridKeys } });
    this.table = made("div", { class: "numbers" });
    return made("div", {}, this.mosaic, this.table);
  },

  draw() {
    const values = DATA.measures[state.measure];
    const there = values.flat().filter((value) => value !== null);
    const [low, high] = [Math.min(...there), Math.max(...there)];
    this.share = (value) => (value === null ? NaN : high > low ? (value - low) / (high - low) : 0);
    this.sorted.by ??= state.measure;
    this.showLegend(low, high, there.length);
    this.showMosaic(values);
    this.showTable();
    return "Light and dark are the most and the least of what is here; a head opens with a click.";
  },

  showLegend(low, high, count) {
    const kept = state.scale;
    state.scale = "linear";
    showLegend(1);
    state.scale = kept;
    const words = count
      ? [low, (low + high) / 2, high].map((value) => String(Number(value.toPrecision(3))))
      : ["", "", ""];
    document.getElementById("legend-ticks").replaceChildren(...words.map((text) => made("span", { text })));
  },

  showMosaic(values) {
    const most = Math.max(...DATA.maps.map((map) => map.heads.length));
    this.mosaic.style.setProperty("--heads", most);
    const numbers = range(0, most).map((h) =>
      made("span", { class: "at top", text: DATA.maps[0].heads[h] ?? String(h), "aria-hidden": "true" }),
    );
    const cells = [made("span"), ...numbers];
    DATA.maps.forEach((map, m) => {
      cells.push(made("span", { class: "at", text: map.title, "aria-hidden": "true" }));
      for (let h = 0; h < most; h++)
        cells.push(h < map.heads.length ? this.cell(map, m, h, values[m][h]) : made("span"));
    });
    const focused = this.mosaic.contains(document.activeElement) ? document.activeElement.dataset : null;
    this.mosaic.replaceChildren(...cells);
    markCurrent(this.mosaic);
    if (focused) this.mosaic.querySelector(`[data-m="${focused.m}"][data-h="${focused.h}"]`)?.focus();
  },

  cell(map, m, h, value) {
    const words = measureInWords(value);
    const button = made("button", {
      type: "button",
      text: words,
      "aria-label": `${map.titles[h]}: ${state.measure} ${words}`,
      title: map.titles[h],
      data: { m, h },
      on: { click: () => openHead(m, h) },
    });
    const share = this.share(value);
    button.style.background = cssColor(share);
    button.style.color = inkOn(share);
    return button;
  },

  showTable() {
    const names = Object.keys(DATA.measures);
    const rows = DATA.maps.flatMap((map, m) => map.heads.map((name, h) => ({ m, h, name: `${map.address}${name}` })));
    const { by, down } = this.sorted;
    const value = ({ m, h }) => DATA.measures[by][m][h] ?? (down ? -Infinity : Infinity);
    if (by !== "head")
      rows.sort((a, b) => (down ? value(b) - value(a) : value(a) - value(b)) || a.m - b.m || a.h - b.h);
    else if (down) rows.reverse();
    const heading = (name) => {
      const order = name !== by ? "none" : down ? "descending" : "ascending";
      const sort = () => {
        this.sorted = { by: name, down: name === by ? !down : name !== "head" };
        this.showTable();
        this.table.querySelector(`[data-name="${CSS.escape(name)}"]`).focus();
      };
      const sign = { none: "", descending: " ▾", ascending: " ▴" }[order];
      return made(
        "th",
        { scope: "col", "aria-sort": order },
        made("button", { type: "button", text: name + sign, data: { name }, on: { click: sort } }),
      );
    };
    const line = ({ m, h, name }) =>
      made(
        "tr",
        {},
        made(
          "th",
          { scope: "row" },
          made("button", { type: "button", text: name, on: { click: () => openHead(m, h) } }),
        ),
        ...names.map((one) => made("td", { text: measureInWords(DATA.measures[one][m][h]) })),
      );
    const table = made(
      "table",
      {},
      made("caption", { text: "All heads, in the order of a column" }),
      made("thead", {}, made("tr", {}, ...["head", ...names].map(heading))),
      made("tbody", {}, ...rows.map(line)),
    );
    this.table.replaceChildren(table);
  },
};

function measureInWords(value) {
  if (value === null) return "–";
  return Math.abs(value) < 10 ? value.toFixed(3) : value.toFixed(1);
}
