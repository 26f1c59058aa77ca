/* A matrix of weights on a canvas that scrolls: labels, numbers where there is room, pointer and keyboard. */

const CELL_MOST = 58;
const LABEL_MOST = 150;
const LABEL_ROOM = 14;
const FONT = '13px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';

class Matrix {
  /** told: `moved(place)` when another cell is looked at or none, `opened(place)` when one is chosen. */
  constructor(told) {
    this.told = told;
    this.at = null; // where keys or a click have put the mark
    this.over = null; // where the pointer is
    this.canvas = made("canvas", { tabindex: 0, role: "application", "aria-roledescription": "matrix" });
    this.sizer = made("div", {}, this.canvas);
    this.host = made("div", { class: "scroller" }, this.sizer);
    this.host.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => this.mark(this.placeAt(event)));
    this.canvas.addEventListener("dblclick", () => this.at && this.told.opened(this.at));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show values [row, column]; `names` of the axes, `square` cells or flat ones, `width` and `height` of the room. */
  show({ rows, columns, values, top, label, names, square, width, height }) {
    Object.assign(this, { rows, columns, values, top, names });
    this.canvas.setAttribute("aria-label", `${label}: ${rows.length} rows, ${columns.length} columns`);
    this.picture = pictureOf(values, rows.length, columns.length, top);
    this.measure(square, width, height);
    if (this.at && (this.at.row >= rows.length || this.at.column >= columns.length)) this.at = null;
    this.over = null;
    this.draw();
  }

  /** Sizes of labels, cells and the whole. */
  measure(square, width, height) {
    const pen = this.canvas.getContext("2d");
    pen.font = FONT;
    const widest = (places) => Math.max(8, ...places.map((place) => pen.measureText(place.label).width));
    this.left = Math.max(56, Math.min(widest(this.rows), LABEL_MOST, 0.4 * width) + 10);
    const across = widest(this.columns);
    const room = (size, count) => size / Math.max(1, count);
    let cellWidth = room(width - this.left - 2, this.columns.length);
    let upright = Math.min(across, LABEL_MOST) + 10;
    let cellHeight = room(height - upright, this.rows.length);
    if (square) cellWidth = cellHeight = Math.min(cellWidth, cellHeight);
    else cellHeight = Math.max(18, Math.min(26, cellHeight));
    const scaled = (cell) => {
      const size = Math.min(CELL_MOST, cell) * 1.5 ** state.zoom;
      return size >= 3 ? Math.floor(size) : Math.max(size, 0.2);
    };
    [this.cellWidth, this.cellHeight] = [scaled(cellWidth), square ? scaled(cellHeight) : cellHeight];
    this.flat = across + 6 <= this.cellWidth;
    this.above = Math.max(40, this.flat ? 0 : upright);
    this.size(width, height);
  }

  size(width, height) {
    const whole = [
      Math.ceil(this.left + this.columns.length * this.cellWidth) + 2,
      Math.ceil(this.above + this.rows.length * this.cellHeight) + 2,
    ];
    const seen = [Math.min(whole[0], width), Math.min(whole[1], Math.max(height, 120))];
    const bars = [whole[1] > seen[1] ? 16 : 0, whole[0] > seen[0] ? 16 : 0];
    this.sizer.style.width = `${whole[0]}px`;
    this.sizer.style.height = `${whole[1]}px`;
    this.host.style.width = `${Math.min(seen[0] + bars[0], width)}px`;
    this.host.style.height = `${seen[1] + bars[1]}px`;
    [this.width, this.height] = seen;
  }

  placeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    if (y < this.above && x < this.left) return null;
    const column = Math.floor((x - this.left + this.host.scrollLeft) / this.cellWidth);
    const row = Math.floor((y - this.above + this.host.scrollTop) / this.cellHeight);
    const there = row >= 0 && column >= 0 && row < this.rows.length && column < this.columns.length;
    return there && x >= this.left && y >= this.above ? { row, column } : null;
  }

  point(event) {
    this.hover(this.placeAt(event), event);
  }

  hover(place, event) {
    const same = place?.row === this.over?.row && place?.column === this.over?.column;
    this.over = place;
    if (place)
      showTip(
        `${this.rows[place.row].label} → ${this.columns[place.column].label}  ${inWords(this.value(place))}`,
        event,
      );
    else hideTip();
    if (same) return;
    this.draw();
    this.told.moved(place ?? this.at);
  }

  value({ row, column }) {
    return this.values[row * this.columns.length + column];
  }

  mark(place) {
    this.at = place;
    this.draw();
    this.told.moved(place);
  }

  key(event) {
    const last = { row: this.rows.length - 1, column: this.columns.length - 1 };
    const now = this.at ?? { row: 0, column: -1 };
    const page = Math.max(1, Math.floor((this.height - this.above) / this.cellHeight) - 1);
    const moves = {
      ArrowRight: { ...now, column: now.column + 1 },
      ArrowLeft: { ...now, column: now.column - 1 },
      ArrowDown: { row: this.at ? now.row + 1 : 0, column: now.column },
      ArrowUp: { ...now, row: now.row - 1 },
      Home: { ...now, column: 0 },
      End: { ...now, column: last.column },
      PageDown: { ...now, row: now.row + page },
      PageUp: { ...now, row: now.row - page },
    };
    if (event.key === "Enter" && this.at) this.told.opened(this.at);
    else if (event.key === "Escape") this.mark(null);
    else if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    else this.move(moves[event.key], last);
    event.preventDefault();
    event.stopPropagation();
  }

  move(place, last) {
    if (last.row < 0 || last.column < 0) return;
    const within = (value, end) => Math.min(end, Math.max(0, value));
    const to = { row: within(place.row, last.row), column: within(place.column, last.column) };
    this.reveal(to);
    hideTip();
    this.over = null;
    this.mark(to);
  }

  /** Scroll as far as it takes for a cell to be seen. */
  reveal({ row, column }) {
    const near = (scroll, start, size, room) => Math.min(start, Math.max(scroll, start + size - room));
    const host = this.host;
    host.scrollLeft = near(host.scrollLeft, column * this.cellWidth, this.cellWidth, this.width - this.left);
    host.scrollTop = near(host.scrollTop, row * this.cellHeight, this.cellHeight, this.height - this.above);
  }

  draw() {
    const ratio = devicePixelRatio || 1;
    const { canvas, width, height } = this;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = FONT;
    pen.fillStyle = pageColor("paper");
    pen.fillRect(0, 0, width, height);
    this.drawCells(pen);
    this.drawMark(pen);
    this.drawLabels(pen);
  }

  /** The range of rows or columns that are seen, and where the first of them is drawn. */
  seen(scroll, cell, count, start, size) {
    const first = Math.max(0, Math.floor(scroll / cell));
    const end = Math.min(count, Math.ceil((scroll + size - start) / cell));
    return { first, count: Math.max(0, end - first), from: start + first * cell - scroll };
  }

  seenRows() {
    return this.seen(this.host.scrollTop, this.cellHeight, this.rows.length, this.above, this.height);
  }

  seenColumns() {
    return this.seen(this.host.scrollLeft, this.cellWidth, this.columns.length, this.left, this.width);
  }

  drawCells(pen) {
    const [down, across] = [this.seenRows(), this.seenColumns()];
    if (down.count === 0 || across.count === 0) return;
    const [w, h] = [this.cellWidth, this.cellHeight];
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.above, this.width, this.height);
    pen.clip();
    pen.imageSmoothingEnabled = Math.min(w, h) < 1;
    const source = [across.first, down.first, across.count, down.count];
    pen.drawImage(this.picture, ...source, across.from, down.from, across.count * w, down.count * h);
    pen.fillStyle = pageColor("paper");
    if (Math.min(w, h) < 10) pen.globalAlpha = 0.4;
    if (w >= 10)
      for (let c = 1; c < across.count; c++) pen.fillRect(across.from + c * w - 1, this.above, 1, this.height);
    if (h >= 10) for (let r = 1; r < down.count; r++) pen.fillRect(this.left, down.from + r * h - 1, this.width, 1);
    pen.globalAlpha = 1;
    if (w >= 34 && h >= 16) this.drawNumbers(pen, down, across);
    pen.restore();
  }

  drawNumbers(pen, down, across) {
    const [w, h] = [this.cellWidth, this.cellHeight];
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let r = 0; r < down.count; r++) {
      const start = (down.first + r) * this.columns.length;
      const largest = largestOf(this.values, start, this.columns.length);
      for (let c = 0; c < across.count; c++) {
        const value = this.values[start + across.first + c];
        pen.fillStyle = inkOn(shade(value, this.top, largest));
        const text = Number.isNaN(value) ? "?" : Math.abs(value) < 10 ? value.toFixed(2) : value.toPrecision(2);
        pen.fillText(text, across.from + (c + 0.5) * w, down.from + (r + 0.5) * h + 0.5, w - 2);
      }
    }
  }

  drawMark(pen) {
    const place = this.over ?? this.at;
    if (!place) return;
    const x = this.left + place.column * this.cellWidth - this.host.scrollLeft;
    const y = this.above + place.row * this.cellHeight - this.host.scrollTop;
    const [w, h] = [Math.max(3, this.cellWidth - 1), Math.max(3, this.cellHeight - 1)];
    pen.lineWidth = 4;
    pen.strokeStyle = "#000000";
    pen.strokeRect(x, y, w, h);
    pen.lineWidth = 2;
    pen.strokeStyle = "#ffffff";
    pen.strokeRect(x, y, w, h);
  }

  drawLabels(pen) {
    pen.fillStyle = pageColor("paper");
    pen.fillRect(0, 0, this.width, this.above);
    pen.fillRect(0, 0, this.left, this.height);
    pen.textBaseline = "middle";
    this.drawNames(pen);
    const place = this.over ?? this.at;
    const [down, across] = [this.seenRows(), this.seenColumns()];
    pen.save();
    pen.beginPath();
    pen.rect(0, this.above - 8, this.left, this.height);
    pen.clip();
    this.eachLabel(this.rows, down, this.cellHeight, place?.row, (one, middle) => {
      this.write(pen, one, this.left - 6, middle, "right", this.left - 10);
    });
    pen.restore();
    pen.beginPath();
    pen.rect(this.left - 8, 0, this.width, this.above);
    pen.clip();
    this.eachLabel(this.columns, across, this.cellWidth, place?.column, (one, middle) => {
      if (this.flat) return this.write(pen, one, middle, this.above - 12, "center", this.cellWidth);
      pen.save();
      pen.translate(middle, this.above - 5);
      pen.rotate(-Math.PI / 2);
      this.write(pen, one, 0, 0, "left", this.above - 10);
      pen.restore();
    });
  }

  drawNames(pen) {
    pen.fillStyle = pageColor("soft");
    pen.font = FONT.replace("13px", "11px");
    pen.textAlign = "right";
    pen.fillText(`${this.names[1]} →`, this.left - 6, this.above - 26);
    pen.fillText(`${this.names[0]} ↓`, this.left - 6, this.above - 10);
  }

  /** Labels as far as there is room: first the marked one, then those that were searched for, then the others. */
  eachLabel(places, { first, count, from }, cell, marked, write) {
    const every = Math.max(1, Math.ceil(LABEL_ROOM / cell));
    const urgency = (i) => (i === marked ? 0 : places[i].hit ? 1 : 2);
    const wanted = range(first, first + count).filter((i) => urgency(i) < 2 || i % every === 0);
    const written = [];
    for (const i of wanted.sort((a, b) => urgency(a) - urgency(b) || a - b)) {
      if (written.some((other) => Math.abs(other - i) * cell < LABEL_ROOM - 1)) continue;
      written.push(i);
      write({ ...places[i], marked: i === marked }, from + (i - first + 0.5) * cell);
    }
  }

  write(pen, { label, special, hit, marked }, x, y, align, room) {
    const style = special ? "italic " : "";
    pen.font = (marked ? "bold " : "") + style + FONT;
    const width = Math.min(room, pen.measureText(label).width);
    if (hit) {
      const start = { right: x - width, center: x - width / 2, left: x }[align];
      pen.fillStyle = pageColor("hit");
      pen.fillRect(start - 3, y - 9, width + 6, 18);
    }
    pen.fillStyle = pageColor(hit ? "hit-ink" : marked ? "accent" : special ? "soft" : "ink");
    pen.textAlign = align;
    pen.fillText(fitting(pen, label, room), x, y);
  }
}

/** As much of a text as there is room for. */
function fitting(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  const signs = [...text];
  while (signs.length > 1 && pen.measureText(`${signs.join("")}…`).width > room) signs.pop();
  return `${signs.join("")}…`;
}

const tip = made("div", { id: "tip", hidden: true, "aria-hidden": "true" });

function showTip(text, event) {
  tip.textContent = text;
  tip.hidden = false;
  const right = event.clientX + 16 + tip.offsetWidth > innerWidth;
  tip.style.left = `${right ? Math.max(4, event.clientX - tip.offsetWidth - 12) : event.clientX + 16}px`;
  tip.style.top = `${Math.min(event.clientY + 18, innerHeight - tip.offsetHeight - 4)}px`;
}

function hideTip() {
  tip.hidden = true;
}
