// The map: as many thumbnails as fit without covering each other, a mark for every other image.

const map = {
  canvas: find("#map"),
  context: find("#map").getContext("2d"),
  clouds: make("canvas"),
  colorBy: "cluster",
  size: 28,
  cursor: -1,
  opened: -1,
  highlight: null,
  outline: null,
  drawn: [],
  scheduled: false,
};

/** Palette entry of an image under the colouring chosen. */
const groupIndex = (shot) => (map.colorBy === "given" ? givenCodes[shot] : clusterIndex.get(clusterOf(shot)));
const isDimmed = (shot) => map.highlight !== null && groupIndex(shot) !== map.highlight;

/** Images in the order in which they claim room: most typical of every cluster first, in turn. */
let claims = [];
let ranked = [];
function orderClaims() {
  ranked = [...clusterMembers()].map(([cluster, shots]) => ({ cluster, shots }));
  ranked.sort((a, b) => b.shots.length - a.shots.length);
  const places = ranked.flatMap(({ shots }) => shots.map((shot, rank) => [rank / shots.length, shot]));
  claims = places.sort((a, b) => a[0] - b[0]).map(([, shot]) => shot);
}

const isImportant = (shot) => shot >= 0 && (shot === map.opened || shot === map.cursor);

function scheduleMap() {
  if (map.scheduled) return;
  map.scheduled = true;
  requestAnimationFrame(() => {
    map.scheduled = false;
    drawMap();
  });
}

function resizeMap() {
  const frame = find("#map-frame").getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  camera.width = Math.max(50, frame.width);
  camera.height = Math.max(50, frame.height);
  map.canvas.width = Math.round(camera.width * ratio);
  map.canvas.height = Math.round(camera.height * ratio);
  map.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  arrange();
  scheduleMap();
}

function thumbSize() {
  if (spread.on) return clamp(0.84 * spread.cell * camera.zoom, 5, 220);
  return clamp(map.size * Math.pow(camera.zoom, 0.4), 10, 120);
}

function drawMap() {
  const context = map.context;
  context.fillStyle = cssColor("--map");
  context.fillRect(0, 0, camera.width, camera.height);
  if (!sheetPictures.length) return;
  const names = placeNames(context);
  const { tiles, marks } = layOut(names);
  drawHalos(context);
  marks.forEach((item) => drawMark(context, item));
  tiles.forEach((item) => drawThumb(context, item));
  map.drawn = [...marks, ...tiles];
  drawNames(context, names);
  tiles.filter((item) => isImportant(item.shot)).forEach((item) => drawThumb(context, item));
  drawRings(context);
  drawOutline(context);
}

/** Decide which images are drawn as pictures: those that find a free place, the important ones first. */
function layOut(names) {
  const size = thumbSize(),
    cell = size * 1.12;
  const taken = new Map(),
    tiles = [],
    marks = [];
  const key = (column, row) => column * 4096 + row;
  const covered = (x, y) =>
    names.some(
      (name) =>
        Math.abs(name.x - x) < name.half + size / 2 && Math.abs(name.below - y) < NAME_HEIGHT / 2 + size / 2,
    );
  const free = (x, y) => {
    const column = Math.floor(x / cell),
      row = Math.floor(y / cell);
    for (let c = column - 1; c <= column + 1; c++) {
      for (let r = row - 1; r <= row + 1; r++) {
        const other = taken.get(key(c, r));
        if (other && Math.abs(other[0] - x) < cell && Math.abs(other[1] - y) < cell) return false;
      }
    }
    taken.set(key(column, row), [x, y]);
    return true;
  };
  const important = [map.opened, map.cursor].filter(isImportant);
  const named = new Set(names.map((name) => name.shot).filter((shot) => shot >= 0));
  for (const shot of new Set([...important, ...named, ...claims])) {
    const [x, y] = toScreen(shot);
    if (x < -size || y < -size || x > camera.width + size || y > camera.height + size) continue;
    const wanted = !isDimmed(shot) && (isImportant(shot) || named.has(shot) || !covered(x, y));
    const isTile = spread.on || (wanted && free(x, y));
    // On a dense grid the chosen image stands out by its size.
    const shown = spread.on && isImportant(shot) ? Math.max(size, 38) : size;
    (isTile ? tiles : marks).push({ shot, x, y, size: shown, isTile });
  }
  // The ones with the best claim are drawn last, on top.
  return { tiles: tiles.reverse(), marks };
}

const halos = new Map();

/** A soft round cloud of one colour, drawn once and reused. */
function haloOf(color) {
  if (!halos.has(color)) {
    const canvas = make("canvas", { width: 128, height: 128 });
    const context = canvas.getContext("2d");
    const gradient = context.createRadialGradient(64, 64, 0, 64, 64, 64);
    gradient.addColorStop(0, `${color}ff`);
    gradient.addColorStop(0.5, `${color}55`);
    gradient.addColorStop(1, `${color}00`);
    context.fillStyle = gradient;
    context.fillRect(0, 0, 128, 128);
    halos.set(color, canvas);
  }
  return halos.get(color);
}

/** Clouds behind the images show the clusters at a glance; drawn together they never grow opaque. */
function drawHalos(context) {
  const radius = spread.on ? 1.9 * spread.cell * camera.zoom : clamp(30 * Math.sqrt(camera.zoom), 30, 110);
  const layer = map.clouds;
  layer.width = Math.ceil(camera.width / 2);
  layer.height = Math.ceil(camera.height / 2);
  const soft = layer.getContext("2d");
  soft.scale(0.5, 0.5);
  soft.globalAlpha = 0.35;
  for (const shot of claims) {
    const [x, y] = toScreen(shot);
    if (
      isDimmed(shot) ||
      x < -radius ||
      y < -radius ||
      x > camera.width + radius ||
      y > camera.height + radius
    )
      continue;
    soft.drawImage(haloOf(paletteColor(groupIndex(shot))), x - radius, y - radius, 2 * radius, 2 * radius);
  }
  context.globalAlpha = document.documentElement.dataset.theme === "dark" ? 0.26 : 0.2;
  context.imageSmoothingEnabled = true;
  context.drawImage(layer, 0, 0, camera.width, camera.height);
  context.globalAlpha = 1;
}

function drawMark(context, { shot, x, y }) {
  const index = groupIndex(shot);
  context.globalAlpha = isDimmed(shot) ? 0.22 : 1;
  traceMark(context, paletteShape(index), x, y, 3.2);
  if (isOutlier(shot)) {
    context.lineWidth = 1.5;
    context.strokeStyle = paletteColor(index);
    context.stroke();
  } else {
    context.fillStyle = paletteColor(index);
    context.fill();
  }
  context.globalAlpha = 1;
}

function tileBox({ x, y, size }) {
  const scale = size / Math.max(S.width, S.height);
  const width = S.width * scale,
    height = S.height * scale;
  return [x - width / 2, y - height / 2, width, height];
}

/** Side by side there is no room for rings: what is not selected steps back instead. */
const isAside = (shot) => spread.on && selection.size > 0 && !selection.has(shot) && !isImportant(shot);

function drawThumb(context, item) {
  const index = groupIndex(item.shot);
  const [x, y, width, height] = tileBox(item);
  const edge = spread.on ? clamp(item.size / 11, 0.75, 4) : clamp(item.size / 12, 1.5, 3);
  context.globalAlpha = isDimmed(item.shot) ? 0.15 : isAside(item.shot) ? 0.25 : 1;
  context.imageSmoothingEnabled = !crisp(item.size);
  context.fillStyle = paletteColor(index);
  context.fillRect(x - edge, y - edge, width + 2 * edge, height + 2 * edge);
  drawTile(context, item.shot, x, y, width, height);
  if (isOutlier(item.shot)) {
    context.setLineDash([3, 3]);
    context.strokeStyle = cssColor("--map");
    context.lineWidth = edge;
    context.strokeRect(x - edge / 2, y - edge / 2, width + edge, height + edge);
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
}

function drawRings(context) {
  const ring = (item, color, gap, weight) => {
    const [x, y, width, height] = item.isTile ? tileBox(item) : [item.x - 3, item.y - 3, 6, 6];
    context.strokeStyle = color;
    context.lineWidth = weight;
    context.beginPath();
    context.roundRect(x - gap, y - gap, width + 2 * gap, height + 2 * gap, 4);
    context.stroke();
  };
  for (const item of map.drawn) {
    if (selection.has(item.shot) && !spread.on) ring(item, cssColor("--ink"), 4, 1.5);
    if (item.shot === map.opened) ring(item, cssColor("--accent"), 5, 3);
    if (item.shot === map.cursor && document.activeElement === map.canvas)
      ring(item, cssColor("--focus"), 9, 2.5);
  }
}

const NAME_HEIGHT = 20;

/** Names of clusters, largest first, where there is room: on an island, or below one of the typical images. */
function placeNames(context) {
  if (map.colorBy === "given") return [];
  const size = thumbSize(),
    placed = [];
  context.font = `600 12px ${cssColor("--sans")}`;
  for (const { cluster, shots } of ranked) {
    if (!shots.length || isDimmed(shots[0])) continue;
    const text = shortName(cluster);
    const half = context.measureText(text).width / 2 + 8;
    const base = { half, text, index: clusterIndex.get(cluster) };
    const choices = (spread.on ? islandPlaces(shots, size) : imagePlaces(shots, size)).map((place) => ({
      ...base,
      ...place,
    }));
    const free = (name) => inView(name, size) && !placed.some((other) => nameCollides(name, other, size));
    const name = choices.find(free);
    if (name) placed.push(name);
  }
  return placed;
}

/** Below each of the most typical images. */
function imagePlaces(shots, size) {
  return shots.slice(0, 8).map((shot) => {
    const [x, y] = toScreen(shot);
    return { shot, x, y, below: y + size / 2 + NAME_HEIGHT / 2 + 4 };
  });
}

/** On the middle of the main part of a cluster's island, else below or above it. */
function islandPlaces(shots, size) {
  const points = shots.slice(0, Math.max(1, Math.ceil(0.8 * shots.length))).map(toScreen);
  const xs = points.map((point) => point[0]).sort((a, b) => a - b);
  const x = xs[xs.length >> 1];
  const ys = points.filter((point) => Math.abs(point[0] - x) < 1.5 * size).map((point) => point[1]);
  ys.sort((a, b) => a - b);
  const gap = size / 2 + NAME_HEIGHT / 2 + 2;
  return [ys[ys.length >> 1], ys[ys.length - 1] + gap, ys[0] - gap].map((below) => ({
    shot: -1,
    x,
    y: below,
    below,
  }));
}

/** With many clusters a name that was not chosen shrinks to its number. */
function shortName(cluster) {
  if (!edits.names.has(cluster) && ranked.length > 24) return String(cluster);
  const full = clusterLabel(cluster);
  return full.length > 26 ? `${full.slice(0, 25)}…` : full;
}

const inView = ({ x, y, half, below }, size) =>
  x > half && x < camera.width - half && y > NAME_HEIGHT / 2 && below < camera.height - NAME_HEIGHT / 2;

function nameCollides(name, other, size) {
  const across = Math.abs(name.x - other.x),
    least = spread.on ? 0 : size / 2,
    wide = Math.max(name.half, least) + Math.max(other.half, least) + 4;
  return across < wide && Math.abs(name.y - other.y) < (spread.on ? 0 : size + 4) + NAME_HEIGHT + 4;
}

function drawNames(context, names) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const { x, below, half, text, index } of names) {
    context.fillStyle = cssColor("--surface");
    context.strokeStyle = paletteColor(index);
    context.lineWidth = 1.5;
    context.beginPath();
    context.roundRect(x - half, below - NAME_HEIGHT / 2, 2 * half, NAME_HEIGHT, NAME_HEIGHT / 2);
    context.fill();
    context.stroke();
    context.fillStyle = cssColor("--ink");
    context.fillText(text, x, below + 0.5);
  }
}

/** The box or lasso being drawn. */
function drawOutline(context) {
  if (!map.outline || map.outline.length < 2) return;
  context.beginPath();
  map.outline.forEach(([x, y]) => context.lineTo(x, y));
  context.closePath();
  context.globalAlpha = 0.12;
  context.fillStyle = cssColor("--accent");
  context.fill();
  context.globalAlpha = 1;
  context.setLineDash([5, 4]);
  context.lineWidth = 1.5;
  context.strokeStyle = cssColor("--accent");
  context.stroke();
  context.setLineDash([]);
}

/** The image drawn topmost at a place of the screen, or -1. */
function imageAt(x, y) {
  let nearest = -1,
    least = 14;
  for (let i = map.drawn.length - 1; i >= 0; i--) {
    const item = map.drawn[i];
    if (item.isTile) {
      const [left, top, width, height] = tileBox(item);
      if (x >= left - 2 && y >= top - 2 && x <= left + width + 2 && y <= top + height + 2) return item.shot;
    }
    const distance = Math.hypot(item.x - x, item.y - y);
    if (distance < least) [nearest, least] = [item.shot, distance];
  }
  return nearest;
}
