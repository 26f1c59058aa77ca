/* One query token over all heads: a row for each head, and its tokens tinted by the mean of all. */

const token = {
  controls: ["query", "scale", "colormap", "pair", "special", "words", "zoom", "find"],

  get title() {
    const map = DATA.maps[state.map];
    const tokens = tokensOf(map.query);
    return `${tokens.text[state.query] ?? ""} (${positionOf(tokens, state.query)}) over all heads`;
  },

  build() {
    this.strip = made("div", { class: "strip", role: "group", "aria-label": "Query" });
    this.strip.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const next = this.axes.rows[this.current() + by];
      if (next) change({ query: next.at });
    });
    this.matrix = new Matrix({
      moved: (place) => this.look(place),
      opened: ({ row }) => openHead(...this.heads[row].place),
    });
    this.list = made("div", { class: "row-list" });
    return made("div", {}, this.strip, made("div", { class: "beside" }, this.matrix.host, this.list));
  },

  /** The place among the rows of the query that is shown. */
  current() {
    return this.axes.rows.findIndex((row) => row.members.includes(state.query));
  },

  async draw(host, stale) {
    const map = DATA.maps[state.map];
    const heads = headsLike(map);
    const codes = await Promise.all(heads.map(({ place }) => headCodes(...place)));
    if (stale()) return "";
    this.heads = heads;
    this.axes = axesOf(map);
    const { rows, columns } = this.axes;
    const row = rows[Math.max(0, this.current())];
    if (row && !row.members.includes(state.query)) state.query = row.at;
    this.values = new Float32Array(this.heads.length * columns.length);
    if (row) codes.forEach((one, h) => this.values.set(rowBetween(one, row, columns), h * columns.length));
    showLegend(DATA.top);
    this.showStrip(rows, columns);
    this.matrix.show({
      rows: this.heads,
      columns,
      values: this.values,
      top: DATA.top,
      label: this.title,
      names: ["head", "key"],
      square: false,
      ...roomForMatrix(300),
    });
    this.look(this.matrix.at);
    const hidden = hiddenInWords(codes, map, { rows: row ? [row] : [], columns });
    return `${hidden} A row is a head; it opens with Enter or a double click.`.trim();
  },

  /** The queries to choose from; where keys are the same tokens, tinted by the mean weight on them. */
  showStrip(rows, columns) {
    const focused = this.strip.contains(document.activeElement);
    const n = columns.length;
    const means = new Map(
      columns.map((column, c) => [column.at, mean(this.heads.map((_, h) => this.values[h * n + c]))]),
    );
    const largest = largestOf([...means.values()], 0, means.size);
    const map = DATA.maps[state.map];
    this.strip.replaceChildren(
      ...rows.map((one) => {
        const current = one.members.includes(state.query);
        const kinds = `token${one.hit ? " hit" : ""}`;
        const button = made("button", {
          type: "button",
          class: kinds,
          text: one.label,
          "aria-pressed": String(current),
          tabindex: current ? 0 : -1,
          on: { click: () => change({ query: one.at }) },
        });
        if (map.query === map.key && means.has(one.at)) {
          const share = Math.sqrt(Math.max(0, means.get(one.at) / largest || 0));
          button.style.background = `color-mix(in srgb, var(--accent) ${Math.round(55 * share)}%, var(--paper))`;
          button.title = `mean over all heads: ${inWords(means.get(one.at))}`;
        }
        return button;
      }),
    );
    const current = this.strip.querySelector('[aria-pressed="true"]');
    if (focused) current?.focus();
  },

  look(place) {
    const { columns } = this.axes;
    const tokens = tokensOf(DATA.maps[state.map].query);
    const query = { label: tokens.text[state.query] ?? "", position: positionOf(tokens, state.query) };
    if (place)
      say(
        cellInWords(
          `head ${this.heads[place.row].label}`,
          query,
          columns[place.column],
          this.values,
          place,
          columns.length,
        ),
      );
    else say("");
    const r = place?.row ?? 0;
    const head = { label: `${query.label} in ${this.heads[r].label}` };
    this.list.replaceChildren(
      ...(columns.length
        ? rowList(head, columns, this.values.subarray(r * columns.length, (r + 1) * columns.length))
        : []),
    );
  },
};

/** The heads of all maps over the same tokens. */
function headsLike(wanted) {
  return DATA.maps.flatMap((map, m) =>
    map.query === wanted.query && map.key === wanted.key
      ? map.heads.map((name, h) => ({ label: `${map.address}${name}`, place: [m, h], special: false, hit: false }))
      : [],
  );
}
