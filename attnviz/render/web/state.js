/* What is shown, and its name in the page's address. */

const state = {
  view: DATA.maps.length * DATA.maps[0].heads.length > 1 ? "overview" : "head",
  map: 0,
  head: 0,
  query: 0,
  chosen: new Set([0]), // heads of the map whose lines are drawn
  measure: Object.keys(DATA.measures)[0] ?? "",
  scale: DATA.scale,
  colormap: DATA.colormap,
  pair: "all",
  special: false,
  words: false,
  find: "",
  zoom: 0,
};

const VIEWS = ["overview", "head", "lines", "token", "measures"].filter(
  (view) => view !== "measures" || Object.keys(DATA.measures).length > 0,
);

/** The address of what is shown: #5.3, #5.3/lines, #5.3/token/4, #overview, #measures. */
function address() {
  if (state.view === "overview" || state.view === "measures") return `#${state.view}`;
  const map = DATA.maps[state.map];
  const place = `#${map.address}${map.heads[state.head]}`;
  if (state.view === "head") return place;
  return state.view === "token" ? `${place}/token/${state.query}` : `${place}/lines`;
}

/** What an address asks for; null where it names nothing that is here. */
function readAddress(hash) {
  const name = hash.replace(/^#/, "");
  if (name === "overview" || name === "measures") return VIEWS.includes(name) ? { view: name } : null;
  const [, place, view = "head", query] = /^([a-z]*\d+\.\w+)(?:\/(lines|token))?(?:\/(\d+))?$/.exec(name) ?? [];
  for (const [m, map] of DATA.maps.entries()) {
    const h = map.heads.findIndex((head) => `${map.address}${head}` === place);
    if (h < 0) continue;
    const found = { view, map: m, head: h, chosen: new Set([h]) };
    if (Number(query) < tokensOf(map.query).text.length) found.query = Number(query);
    return found;
  }
  return null;
}

/** Change what is shown. */
function change(changes) {
  Object.assign(state, changes);
  const map = DATA.maps[state.map];
  state.head = Math.min(state.head, map.heads.length - 1);
  state.query = Math.min(state.query, Math.max(0, tokensOf(map.query).text.length - 1));
  state.chosen = new Set([...state.chosen].filter((h) => h < map.heads.length));
  if (state.chosen.size === 0) state.chosen.add(state.head);
  show();
  const framed = location.protocol === "about:"; // whose address is not its own
  if (!framed && location.hash !== address()) history.replaceState(null, "", address());
}

/** The head so many places after the one shown, over the ends of layers. */
function stepHead(by) {
  const places = DATA.maps.flatMap((map, m) => map.heads.map((_, h) => [m, h]));
  const now = places.findIndex(([m, h]) => m === state.map && h === state.head);
  const [map, head] = places[(now + by + places.length) % places.length];
  change({ map, head, chosen: new Set([head]) });
}

function stepLayer(by) {
  const map = (state.map + by + DATA.maps.length) % DATA.maps.length;
  const head = Math.min(state.head, DATA.maps[map].heads.length - 1);
  change({ map, head, chosen: new Set([head]) });
}

/** An element with text and attributes; what is given as text is never markup. */
function made(name, { text, on = {}, data = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  }
  Object.assign(element.dataset, data);
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children);
  return element;
}
