/* Two columns of tokens joined by lines, as thick and as dense as the weights; several heads, each in its colour. */

const FAINT_OF_ONE = 0.01;
const FAINT = 0.04;
const FAINT_AMONG_MANY = 0.25;
const MANY = 64;
const MOST_LINES = 1500;

const lines = {
  controls: ["place", "scale", "pair", "special", "words", "find"],

  get title() {
    const { title, heads } = DATA.maps[state.map];
    const [first] = state.chosen;
    return `${title} · ${state.chosen.size === 1 ? `head ${heads[first]}` : `${state.chosen.size} heads`}`;
  },

  build() {
    this.pinned = null; // {side: "queries" or "keys", i}
    this.over = null;
    this.chips = made("div", { class: "chips", role: "group", "aria-label": "Heads" });
    this.queries = made("ol", { class: "queries", "aria-label": "Queries", data: { side: "queries" } });
    this.keys = made("ol", { class: "keys", "aria-label": "Keys", data: { side: "keys" } });
    this.canvas = made("canvas", { "aria-hidden": "true" });
    this.wire = made("div", { class: "wire" }, this.canvas);
    this.body = made("div", { class: "lines" }, this.queries, this.wire, this.keys);
    this.list = made("div", { class: "row-list" });
    this.scroller = made("div", { class: "scroller", on: { scroll: () => this.paint() } }, this.body);
    for (const list of [this.queries, this.keys]) this.listen(list);
    return made("div", {}, this.chips, made("div", { class: "beside" }, this.scroller, this.list));
  },

  listen(list) {
    const place = (event) => {
      const token = event.target.closest(".token");
      return token && { side: list.dataset.side, i: Number(token.dataset.i) };
    };
    list.addEventListener("pointerover", (event) => this.point(place(event)));
    list.addEventListener("pointerleave", () => this.point(null));
    list.addEventListener("focusin", (event) => this.point(place(event)));
    list.addEventListener("focusout", () => this.point(null));
    list.addEventListener("click", (event) => {
      const now = place(event);
      this.pinned = now && !sameEnd(now, this.pinned) ? now : null;
      this.press();
      this.paint();
    });
    list.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const next = by && list.querySelector(`[data-i="${Number(event.target.dataset.i) + by}"]`);
      if (by) event.preventDefault();
      if (next) this.focus(list, next);
    });
  },

  focus(list, token) {
    for (const one of list.querySelectorAll(".token")) one.tabIndex = one === token ? 0 : -1;
    token.focus();
  },

  async draw(host, stale) {
    const map = DATA.maps[state.map];
    this.showChips(map);
    const chosen = [...state.chosen];
    const codes = await Promise.all(chosen.map((h) => headCodes(state.map, h)));
    if (stale()) return "";
    this.axes = axesOf(map);
    const { rows, columns } = this.axes;
    this.heads = chosen.map((h, n) => ({
      name: `${map.address}${map.heads[h]}`,
      values: between(codes[n], rows, columns),
      ...headStyle(n),
    }));
    if (this.pinned && this.pinned.i >= this.axes[this.pinned.side === "queries" ? "rows" : "columns"].length)
      this.pinned = null;
    this.fill(this.queries, rows);
    this.fill(this.keys, columns);
    this.scroller.style.maxHeight = `${Math.max(320, Math.round(innerHeight * 0.66))}px`;
    const most = Math.max(rows.length, columns.length);
    this.line = most <= 12 ? 44 : most <= 24 ? 30 : 24;
    this.body.style.setProperty("--line-height", `${this.line}px`);
    this.body.style.height = `${most * this.line}px`;
    this.press();
    this.paint();
    const hidden = hiddenInWords(codes, map, this.axes);
    const rest = rows.length > MANY ? `, and all but the ${MOST_LINES} strongest of a head,` : "";
    const said = `Lines fainter than ${this.faint()} of the scale${rest} are left out until a token is chosen.`;
    return `${hidden} ${said}`.trim();
  },

  faint() {
    return this.axes.rows.length > MANY ? FAINT_AMONG_MANY : FAINT;
  },

  showChips(map) {
    const order = [...state.chosen];
    this.chips.replaceChildren(
      ...map.heads.map((name, h) => {
        const n = order.indexOf(h);
        const toggle = () => {
          const chosen = new Set(state.chosen);
          if (!chosen.delete(h)) chosen.add(h);
          if (chosen.size === 0) return;
          change({ chosen, head: chosen.has(state.head) ? state.head : [...chosen][0] });
          this.chips.children[h].focus();
        };
        const chip = made("button", {
          type: "button",
          class: "chip",
          "aria-pressed": String(n >= 0),
          "aria-label": `head ${name}`,
          text: name,
          on: { click: toggle },
        });
        if (n >= 0) chip.prepend(sample(headStyle(n)));
        return chip;
      }),
      made("button", {
        type: "button",
        class: "chip",
        text: "all",
        on: { click: () => change({ chosen: new Set(map.heads.keys()) }) },
      }),
    );
  },

  fill(list, places) {
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.i : null;
    list.replaceChildren(
      ...places.map((one, i) => {
        const kinds = `token${one.special ? " special" : ""}${one.hit ? " hit" : ""}`;
        return made(
          "li",
          {},
          made("button", {
            type: "button",
            class: kinds,
            text: one.label,
            title: `${one.label} (${one.position})`,
            tabindex: i === 0 ? 0 : -1,
            "aria-pressed": "false",
            data: { i },
          }),
        );
      }),
    );
    if (focused !== null) list.querySelector(`[data-i="${focused}"]`)?.focus();
  },

  point(place) {
    if (sameEnd(place, this.over)) return;
    this.over = place;
    this.paint();
  },

  press() {
    for (const list of [this.queries, this.keys]) {
      list.querySelectorAll(".token").forEach((token, i) => {
        token.setAttribute("aria-pressed", String(sameEnd(this.pinned, { side: list.dataset.side, i })));
      });
    }
  },

  /** Draw the lines that are seen, or those of one token. */
  paint() {
    const { rows, columns } = this.axes;
    const width = this.wire.clientWidth;
    const height = Math.min(this.scroller.clientHeight, Math.max(rows.length, columns.length) * this.line);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const one = this.over ?? this.pinned;
    const y = (i) => (i + 0.5) * this.line - this.scroller.scrollTop;
    this.heads.forEach((head, n) => this.drawHead(pen, head, n, one, y, width, height));
    this.look(one);
  },

  /** The lines of the n-th head, beside those of the others; the strongest last, so that nothing covers them. */
  drawHead(pen, head, n, one, y, width, height) {
    const aside = (n - (this.heads.length - 1) / 2) * Math.min(4, (this.line - 8) / this.heads.length);
    pen.strokeStyle = head.color;
    pen.setLineDash(head.dash);
    for (const { share, r, c } of this.strongest(head, one, y, height)) {
      const [from, to] = [y(r) + aside, y(c) + aside];
      pen.globalAlpha = 0.08 + 0.87 * share;
      pen.lineWidth = 1 + 3 * share;
      pen.beginPath();
      pen.moveTo(2, from);
      pen.bezierCurveTo(width / 2, from, width / 2, to, width - 2, to);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  },

  /** The lines of a head that are seen and strong enough, or those of one token. */
  strongest(head, one, y, height) {
    const { rows, columns } = this.axes;
    const least = one ? FAINT_OF_ONE : this.faint();
    const found = [];
    rows.forEach((_, r) => {
      if (one?.side === "queries" && one.i !== r) return;
      const largest = largestOf(head.values, r * columns.length, columns.length);
      for (let c = 0; c < columns.length; c++) {
        if (one?.side === "keys" && one.i !== c) continue;
        const share = shade(head.values[r * columns.length + c], DATA.top, largest);
        const outside = Math.max(y(r), y(c)) < 0 || Math.min(y(r), y(c)) > height;
        if (share >= least && !outside) found.push({ share, r, c });
      }
    });
    return found.sort((a, b) => a.share - b.share).slice(-MOST_LINES);
  },

  /** Say what a token's largest weight is, and list the largest of every head. */
  look(one) {
    if (!one || this.axes.rows.length === 0 || this.axes.columns.length === 0) {
      say("");
      return this.list.replaceChildren(
        made("p", {
          class: "said",
          text: "Point at a token, or go to it with Tab and arrow keys; a click keeps it.",
        }),
      );
    }
    const { rows, columns } = this.axes;
    const [here, there, arrow] = one.side === "queries" ? [rows, columns, "→"] : [columns, rows, "←"];
    const weights = ({ values }) =>
      there.map((_, j) => values[one.side === "queries" ? one.i * columns.length + j : j * columns.length + one.i]);
    const blocks = this.heads.map((head) => ({
      head,
      best: largestFew(weights(head), this.heads.length > 2 ? 3 : ROW_LIST),
    }));
    const told = blocks
      .slice(0, 3)
      .map(({ head, best }) => `${there[best[0].j].label} ${inWords(best[0].weight)} in ${head.name}`);
    say(`${here[one.i].label} ${arrow} ${told.join(", ")}`);
    return this.list.replaceChildren(
      made("h3", { text: `${here[one.i].label} ${one.side === "queries" ? "looks at" : "is looked at by"}` }),
      ...blocks.flatMap(({ head, best }) => [
        made("div", { class: "of" }, sample(head), made("span", { text: head.name })),
        made("ol", {}, ...best.map(({ j, weight }) => barItem(there[j].label, weight, head.color))),
      ]),
    );
  },
};

/** The places of the largest of some weights. */
function largestFew(weights, count) {
  const order = range(0, weights.length).sort((a, b) => (weights[b] || 0) - (weights[a] || 0) || a - b);
  return order.slice(0, count).map((j) => ({ j, weight: weights[j] }));
}

function sameEnd(a, b) {
  return a?.side === b?.side && a?.i === b?.i;
}

/** A short line in a head's colour and dash. */
function sample({ color, dash }) {
  const svg = document.getElementById("sample").content.firstElementChild.cloneNode(true);
  svg.firstElementChild.setAttribute("stroke", color);
  svg.firstElementChild.setAttribute("stroke-dasharray", dash.join(" "));
  return svg;
}
