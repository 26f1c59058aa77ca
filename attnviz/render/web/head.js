/* One head as a matrix, with the row that is looked at as a list, and all of it as a table on request. */

const ROW_LIST = 10;
const TABLE_MOST = 20000;

const head = {
  controls: ["place", "scale", "colormap", "pair", "special", "words", "zoom", "find"],

  get title() {
    return DATA.maps[state.map].titles[state.head];
  },

  build() {
    this.matrix = new Matrix({
      moved: (place) => this.look(place),
      opened: (place) => change({ view: "token", query: this.axes.rows[place.row].at }),
    });
    this.list = made("div", { class: "row-list" });
    this.numbers = made("div", {
      class: "numbers",
      tabindex: 0,
      role: "region",
      "aria-label": "All weights of this head",
    });
    const details = made(
      "details",
      { on: { toggle: () => this.fillTable() } },
      made("summary", { text: "As a table" }),
      this.numbers,
    );
    this.details = details;
    return made("div", {}, made("div", { class: "beside" }, this.matrix.host, this.list), details);
  },

  async draw(host, stale) {
    const map = DATA.maps[state.map];
    const codes = await headCodes(state.map, state.head);
    if (stale()) return "";
    this.axes = axesOf(map);
    const { rows, columns } = this.axes;
    this.values = between(codes, rows, columns);
    showLegend(DATA.top);
    this.matrix.show({
      rows,
      columns,
      values: this.values,
      top: DATA.top,
      label: this.title,
      names: ["query", "key"],
      square: true,
      ...roomForMatrix(300),
    });
    this.look(this.matrix.at);
    this.fillTable();
    return hiddenInWords([codes], map, this.axes);
  },

  /** Say what a cell holds, and list its row. */
  look(place) {
    const { rows, columns } = this.axes;
    if (place)
      say(cellInWords(this.title, rows[place.row], columns[place.column], this.values, place, columns.length));
    else say("");
    const r =
      place?.row ??
      Math.max(
        0,
        rows.findIndex((row) => row.members.includes(state.query)),
      );
    this.list.replaceChildren(
      ...(rows.length && columns.length
        ? rowList(rows[r], columns, this.values.subarray(r * columns.length, (r + 1) * columns.length))
        : []),
    );
  },

  fillTable() {
    const { rows, columns } = this.axes;
    if (!this.details.open) return this.numbers.replaceChildren();
    if (this.values.length > TABLE_MOST) {
      return this.numbers.replaceChildren(
        made("p", { text: `${this.values.length} numbers are too many for a table here.` }),
      );
    }
    const top = made("tr", {}, made("td"), ...columns.map((one) => made("th", { text: one.label, scope: "col" })));
    const body = rows.map((one, r) => {
      const weights = this.values.subarray(r * columns.length, (r + 1) * columns.length);
      return made(
        "tr",
        {},
        made("th", { text: one.label, scope: "row" }),
        ...Array.from(weights, (w) => made("td", { text: inWords(w) })),
      );
    });
    return this.numbers.replaceChildren(made("table", {}, made("thead", {}, top), made("tbody", {}, ...body)));
  },
};

/** The room that a matrix may take, `beside` being kept for what stands next to it where the window is wide. */
function roomForMatrix(beside) {
  const width = document.getElementById("view").clientWidth;
  return { width: width > 760 ? width - beside : width, height: Math.max(300, Math.round(innerHeight * 0.68)) };
}

function cellInWords(title, row, column, values, place, n_columns) {
  const weights = values.subarray(place.row * n_columns, (place.row + 1) * n_columns);
  const value = weights[place.column];
  const larger = weights.filter((weight) => weight > value).length;
  const rank = Number.isNaN(value)
    ? ""
    : `, ${larger === 0 ? "the largest" : `no. ${larger + 1}`} of ${n_columns} in its row`;
  return `${title}: ${row.label} (${row.position}) → ${column.label} (${column.position}): ${inWords(value)}${rank}`;
}

/** A row's largest weights as bars. */
function rowList(row, columns, weights) {
  const best = largestFew(weights, ROW_LIST);
  const items = best.map(({ j, weight }) => barItem(columns[j].label, weight));
  const rest =
    weights.reduce((sum, weight) => sum + (weight || 0), 0) -
    best.reduce((sum, { weight }) => sum + (weight || 0), 0);
  if (columns.length > ROW_LIST) items.push(numberItem(`${columns.length - ROW_LIST} others`, Math.max(0, rest)));
  return [made("h3", { text: `${row.label} looks at` }), made("ol", {}, ...items)];
}

function barItem(label, weight, color) {
  const bar = made("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${100 * Math.min(1, Math.max(0, weight || 0))}%`;
  if (color) bar.style.background = color;
  return numberItem(label, weight, bar);
}

function numberItem(label, weight, bar = made("span")) {
  return made(
    "li",
    {},
    made("span", { text: label, title: label }),
    bar,
    made("span", { class: "number", text: inWords(weight) }),
  );
}
