/* Every head as a thumbnail, a row for each layer. */

const overview = {
  title: "All heads",
  controls: ["scale", "colormap", "pair", "special", "words"],

  build() {
    const host = made("div", { class: "overview" });
    host.addEventListener("keydown", gridKeys);
    DATA.maps.forEach((map, m) => {
      const grid = made("div", { class: "thumbnails" }, ...map.heads.map((name, h) => thumbnail(map, m, name, h)));
      grid.style.setProperty("--heads", Math.max(4, map.heads.length));
      host.append(made("section", { class: "layer" }, made("h3", { text: map.title, title: map.name }), grid));
    });
    return host;
  },

  async draw(host) {
    const steps = DATA.maps.map((map) => Math.max(step(map.rowEdges), step(map.columnEdges)));
    const pooled = Math.max(...steps);
    const top = pooled > 1 ? DATA.thumbnailTop : DATA.top;
    showLegend(top);
    const shares = [];
    for (const [m, map] of DATA.maps.entries()) {
      const all = await thumbnailCodes(m);
      const axes = steps[m] > 1 ? tileAxes(map) : axesOf(map);
      map.heads.forEach((_, h) => {
        const rows = axes.rows.map((one) => shifted(one, h * (map.rowEdges.length - 1)));
        if (steps[m] === 1 && state.special) shares.push(hiddenShare(all, rows, axes.columns));
        const values = between(all, rows, axes.columns);
        paintThumbnail(
          host.querySelector(`#thumbnail-${m}-${h}`),
          pictureOf(values, rows.length, axes.columns.length, top),
        );
      });
    }
    markCurrent(host);
    if (pooled > 1)
      return `A tile is the mean of ${pooled} × ${pooled} weights, of all tokens; a head opens in full.`;
    if (shares.length === 0) return "A head opens with a click or Enter.";
    return hiddenMass(shares);
  },
};

function step(edges) {
  return edges.length > 1 ? edges[1] - edges[0] : 1;
}

function tileAxes(map) {
  const tiles = (edges) => range(0, edges.length - 1).map((i) => ({ members: [i], at: i }));
  return { rows: tiles(map.rowEdges), columns: tiles(map.columnEdges) };
}

function shifted(place, by) {
  return { ...place, members: place.members.map((i) => i + by) };
}

function thumbnail(map, m, name, h) {
  return made(
    "button",
    {
      type: "button",
      class: "thumbnail",
      id: `thumbnail-${m}-${h}`,
      "aria-label": map.titles[h],
      title: map.titles[h],
      tabindex: -1,
      data: { m, h },
      on: { click: () => openHead(m, h) },
    },
    made("canvas", { "aria-hidden": "true" }),
    made("span", { text: `${map.address}${name}`, "aria-hidden": "true" }),
  );
}

function openHead(map, head) {
  change({ view: "head", map, head, chosen: new Set([head]) });
  document.getElementById("stage").focus({ preventScroll: true });
}

/** A picture of one pixel a weight, drawn so large that its cells stay sharp. */
function paintThumbnail(button, picture) {
  const canvas = button.querySelector("canvas");
  const times = Math.max(1, Math.ceil(144 / Math.max(picture.width, picture.height)));
  canvas.width = picture.width * times;
  canvas.height = picture.height * times;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
}

/** Which of the buttons that stand for heads is the one shown; it is the one that Tab goes to. */
function markCurrent(host) {
  for (const button of host.querySelectorAll("[data-h]")) {
    const current = Number(button.dataset.m) === state.map && Number(button.dataset.h) === state.head;
    button.tabIndex = current ? 0 : -1;
    if (current) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

/** Arrow keys go from head to head and from layer to layer. */
function gridKeys(event) {
  const now = event.target.closest("[data-h]");
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!now || !by) return;
  const [m, h] = [Number(now.dataset.m) + by[0], Number(now.dataset.h) + by[1]];
  const next = event.currentTarget.querySelector(`[data-m="${m}"][data-h="${h}"]`);
  event.preventDefault();
  if (!next) return;
  now.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
