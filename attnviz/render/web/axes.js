/* Which tokens stand along an axis: words for pieces, without special ones, one sentence of a pair. */

/** The places along an axis: what each is called, and the tokens that it stands for. */
function axisOf(index, part) {
  const tokens = tokensOf(index);
  const special = new Set(tokens.special);
  const wanted = (i) => !(state.special && special.has(i)) && (!part || !tokens.parts || tokens.parts[i] === part);
  const place = (members, label) => ({
    label,
    members,
    at: members[0],
    position: positionOf(tokens, members[0]),
    special: special.has(members[0]),
    hit: members.some((i) => isHit(tokens, i, label)),
  });
  const words = state.words && tokens.words;
  const places = words
    ? words.map(([start, label], w) => place(range(start, words[w + 1]?.[0] ?? tokens.text.length), label))
    : tokens.text.map((label, i) => place([i], label));
  return places.filter((one) => wanted(one.at));
}

function range(start, stop) {
  return Array.from({ length: stop - start }, (_, i) => start + i);
}

function isHit(tokens, i, label) {
  const wanted = state.find.toLowerCase();
  return wanted !== "" && [tokens.text[i], tokens.pieces[i], label].some((one) => one.toLowerCase().includes(wanted));
}

/** Queries and keys of a map that are shown. */
function axesOf(map) {
  const [from, to] = state.pair === "all" ? [null, null] : state.pair;
  return { rows: axisOf(map.query, from), columns: axisOf(map.key, to) };
}

/** The weights [row, column] between places: summed over the tokens of a key, averaged over those of a query. */
function between(codes, rows, columns) {
  const values = new Float32Array(rows.length * columns.length);
  rows.forEach((row, r) => values.set(rowBetween(codes, row, columns), r * columns.length));
  return values;
}

function rowBetween(codes, row, columns) {
  const sums = new Float32Array(columns.length);
  for (const i of row.members) {
    const weights = codes.row(i);
    columns.forEach((column, c) => {
      for (const j of column.members) sums[c] += weights[j];
    });
  }
  return row.members.length === 1 ? sums : sums.map((sum) => sum / row.members.length);
}

/** The share of the weight of the rows that goes to keys that are not shown. */
function hiddenShare(codes, rows, columns) {
  let [all, shown] = [0, 0];
  for (const row of rows) {
    for (const i of row.members) {
      const weights = codes.row(i);
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      if (Number.isNaN(total)) continue;
      all += total;
      for (const column of columns) for (const j of column.members) shown += weights[j];
    }
  }
  return all > 0 ? Math.max(0, 1 - shown / all) : 0;
}

/** What of some heads is hidden, in words; nothing where all keys are shown. */
function hiddenInWords(heads, map, { rows, columns }) {
  const shown = columns.reduce((sum, column) => sum + column.members.length, 0);
  if (shown === tokensOf(map.key).text.length) return map.cut ? "Keys had been left out: rows sum to less." : "";
  return hiddenMass(heads.map((codes) => hiddenShare(codes, rows, columns)));
}

/** The mean over heads of the share that is hidden, in words. */
function hiddenMass(shares) {
  const percent = (100 * mean(shares)).toFixed(1);
  const over = shares.length > 1 ? `, on average of ${shares.length} heads` : "";
  return `${percent} % of the weight of these rows goes to tokens that are hidden${over}.`;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}
