/* The controls, the keys, and the view that is shown. */

const byId = (id) => document.getElementById(id);
const views = { overview, head, lines, token, measures };
const built = new Map();
let turn = 0;

/** Bring everything on the page to what the state says. */
async function show() {
  const mine = ++turn; // what is drawn later than something newer must not cover it
  const view = views[state.view];
  const host = built.get(view) ?? built.set(view, view.build()).get(view);
  hideTip();
  showControls(view);
  if (byId("view").firstChild !== host) {
    byId("view").replaceChildren(host);
    say("");
  }
  byId("stage-title").textContent = view.title;
  byId("stage").setAttribute("aria-busy", "true");
  const said = await view.draw(host, () => mine !== turn);
  if (mine !== turn) return;
  byId("stage-title").textContent = view.title;
  byId("said").textContent = said;
  byId("stage").setAttribute("aria-busy", "false");
  document.title = `${view.title} · ${DATA.caption}`;
}

function say(text) {
  byId("readout").textContent = text;
}

const PLACES = {
  place: "place",
  query: "query-place",
  measure: "measure-place",
  scale: "scale",
  colormap: "colormap",
  pair: "pair-place",
  special: "special-place",
  words: "words-place",
  zoom: "zoom",
  find: "find",
};

function showControls(view) {
  const useful = {
    pair: DATA.tokens.some((tokens) => tokens.parts),
    special: DATA.tokens.some((tokens) => tokens.special.length > 0),
    words: DATA.tokens.some((tokens) => tokens.words),
  };
  for (const [name, id] of Object.entries(PLACES)) {
    (byId(id).closest("label") ?? byId(id)).hidden = !view.controls.includes(name) || useful[name] === false;
  }
  byId("legend").hidden = state.view === "lines";
  for (const tab of byId("views").children) {
    tab.hidden = !VIEWS.includes(tab.dataset.view);
    tab.setAttribute("aria-selected", String(tab.dataset.view === state.view));
    tab.tabIndex = tab.dataset.view === state.view ? 0 : -1;
  }
  const map = DATA.maps[state.map];
  options(
    "layer",
    DATA.maps.map((one) => one.title.replace(/^layer /, "")),
    state.map,
  );
  options("head", map.heads, state.head);
  options(
    "query",
    tokensOf(map.query).text.map((text, i) => `${positionOf(tokensOf(map.query), i)} ${text}`),
    state.query,
  );
  options("measure", Object.keys(DATA.measures), Object.keys(DATA.measures).indexOf(state.measure));
  options("colormap", Object.keys(DATA.colormaps), Object.keys(DATA.colormaps).indexOf(state.colormap));
  byId("scale").value = state.scale;
  byId("pair").value = state.pair;
  byId("special").checked = state.special;
  byId("words").checked = state.words;
  const hits = hitsOf(map);
  byId("found").textContent = state.find === "" ? "" : hits.length === 0 ? "none" : `${hits.length}`;
}

/** The choices of a select; they are made anew only where they are others. */
function options(id, texts, chosen) {
  const select = byId(id);
  if (select.length !== texts.length || texts.some((text, i) => select.options[i].text !== text)) {
    select.replaceChildren(...texts.map((text, value) => made("option", { text, value })));
  }
  select.selectedIndex = chosen;
}

/** The queries that were searched for. */
function hitsOf(map) {
  return axesOf(map).rows.filter((row) => row.hit);
}

/** Go to the next query that was searched for. */
function nextHit() {
  const hits = hitsOf(DATA.maps[state.map]);
  if (hits.length === 0) return;
  const next = hits.find((row) => row.at > state.query) ?? hits[0];
  change({ query: next.at });
  const row = axesOf(DATA.maps[state.map]).rows.findIndex((one) => one.at === next.at);
  if (state.view === "lines") lines.focus(lines.queries, lines.queries.querySelector(`[data-i="${row}"]`));
  if (state.view !== "head" || !head.matrix) return;
  head.matrix.at = { row, column: head.matrix.at?.column ?? 0 };
  head.matrix.reveal(head.matrix.at);
  show();
}

function zoom(by) {
  change({ zoom: Math.min(8, Math.max(-4, state.zoom + by)) });
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  show();
}

function nextScale() {
  const names = Object.keys(SCALES);
  change({ scale: names[(names.indexOf(state.scale) + 1) % names.length] });
}

const KEYS = {
  j: () => stepHead(1),
  k: () => stepHead(-1),
  J: () => stepLayer(1),
  K: () => stepLayer(-1),
  s: nextScale,
  h: () => change({ special: !state.special }),
  w: () => change({ words: !state.words }),
  d: switchTheme,
  "+": () => zoom(1),
  "=": () => zoom(1),
  "-": () => zoom(-1),
  "/": () => byId("find").focus(),
  "?": () => byId("help").showModal(),
  Escape: () => change({ find: "" }),
};

function onKey(event) {
  const typing = event.target.matches("input[type=search], select");
  if (event.ctrlKey || event.metaKey || event.altKey || typing || byId("help").open) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) change({ view });
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault();
}

function listen() {
  const on = (id, event, listener) => byId(id).addEventListener(event, listener);
  on("views", "click", (event) => event.target.dataset.view && change({ view: event.target.dataset.view }));
  on("views", "keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const view = VIEWS[(VIEWS.indexOf(state.view) + by + VIEWS.length) % VIEWS.length];
    change({ view });
    byId("views").querySelector(`[data-view="${view}"]`).focus();
  });
  on("layer", "change", (event) => change({ map: event.target.selectedIndex, chosen: new Set([state.head]) }));
  on("head", "change", (event) =>
    change({ head: event.target.selectedIndex, chosen: new Set([event.target.selectedIndex]) }),
  );
  on("query", "change", (event) => change({ query: event.target.selectedIndex }));
  for (const name of ["measure", "colormap"])
    on(name, "change", (event) => change({ [name]: event.target.selectedOptions[0].text }));
  for (const name of ["scale", "pair"]) on(name, "change", (event) => change({ [name]: event.target.value }));
  for (const name of ["special", "words"]) on(name, "change", (event) => change({ [name]: event.target.checked }));
  on("find", "input", (event) => change({ find: event.target.value }));
  on("find", "keydown", (event) => {
    if (event.key === "Enter") nextHit();
    if (event.key !== "Escape") return;
    event.target.value = "";
    change({ find: "" });
    byId("stage").focus();
  });
  on("previous", "click", () => stepHead(-1));
  on("next", "click", () => stepHead(1));
  on("zoom-in", "click", () => zoom(1));
  on("zoom-out", "click", () => zoom(-1));
  on("theme", "click", switchTheme);
  on("help-open", "click", () => byId("help").showModal());
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", () => {
    const asked = readAddress(location.hash);
    if (asked) change(asked);
  });
  addEventListener("resize", () => show());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());
}

/** JSON in which characters that do not show, or turn the text around, are written as their codes. */
function plainJson(value) {
  const code = (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value, null, 1).replace(/[\p{Cf}\p{Zl}\p{Zp}\x7f-\x9f]/gu, code);
}

function begin() {
  if (!globalThis.DecompressionStream) {
    document.documentElement.className = ""; // as without scripts
    return;
  }
  document.body.append(tip);
  byId("made").textContent = DATA.made;
  byId("notes").replaceChildren(...DATA.notes.map((text) => made("p", { text })));
  byId("provenance").textContent = plainJson(DATA.provenance);
  listen();
  change(readAddress(location.hash) ?? {});
}

begin();
