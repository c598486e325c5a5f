// The map: as many thumbnails as fit without overlap, and a coloured mark for every other image.

const map = {
  canvas: find("#map"),
  context: find("#map").getContext("2d"),
  background: make("canvas"),
  colorBy: "cluster",
  size: 28,
  cursor: -1,
  opened: -1,
  highlight: null,
  outline: null,
  drawn: [],
  scheduled: false,
};

/** The palette entry of an image: that of its given label or of its cluster. */
const groupIndex = (image) =>
  map.colorBy === "given" ? givenLabels[image] : clusterIndex.get(clusterOf(image));
const isDimmed = (image) => map.highlight !== null && groupIndex(image) !== map.highlight;

/** The order in which images take places on the map: the most typical images of all clusters come first. */
let drawOrder = [];
let clustersBySize = [];
function orderImages() {
  clustersBySize = [...clusterMembers()].map(([cluster, images]) => ({ cluster, images }));
  clustersBySize.sort((a, b) => b.images.length - a.images.length);
  const ranks = clustersBySize.flatMap(({ images }) =>
    images.map((image, rank) => [rank / images.length, image]),
  );
  drawOrder = ranks.sort((a, b) => a[0] - b[0]).map(([, image]) => image);
}

const isImportant = (image) => image >= 0 && (image === map.opened || image === map.cursor);

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
  arrangeImages();
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
  const { tiles, marks } = chooseTiles(names);
  drawHalos(context);
  marks.forEach((item) => drawMark(context, item));
  tiles.forEach((item) => drawThumb(context, item));
  map.drawn = [...marks, ...tiles];
  drawNames(context, names);
  tiles.filter((item) => isImportant(item.image)).forEach((item) => drawThumb(context, item));
  drawRings(context);
  drawOutline(context);
}

/** Choose the images drawn as pictures: those that find a free place, the opened and named ones first. */
function chooseTiles(names) {
  const size = thumbSize(),
    tiles = [],
    marks = [];
  const takePlace = freePlaces(size * 1.12);
  const covered = (x, y) =>
    names.some(
      (name) =>
        Math.abs(name.x - x) < name.half + size / 2 && Math.abs(name.below - y) < NAME_HEIGHT / 2 + size / 2,
    );
  const important = [map.opened, map.cursor].filter(isImportant);
  const named = new Set(names.map((name) => name.image).filter((image) => image >= 0));
  for (const image of new Set([...important, ...named, ...drawOrder])) {
    const [x, y] = toScreen(image);
    if (x < -size || y < -size || x > camera.width + size || y > camera.height + size) continue;
    const wanted = !isDimmed(image) && (isImportant(image) || named.has(image) || !covered(x, y));
    const isTile = spread.on || (wanted && takePlace(x, y));
    // On a dense grid the opened image is enlarged, so that it can be found.
    const shown = spread.on && isImportant(image) ? Math.max(size, 38) : size;
    (isTile ? tiles : marks).push({ image, x, y, size: shown, isTile });
  }
  // The first ones are drawn last, on top of the others.
  return { tiles: tiles.reverse(), marks };
}

/** A function that takes the square of this size around a point, or returns false if it is not free. */
function freePlaces(size) {
  const taken = new Map();
  const key = (column, row) => column * 4096 + row;
  return (x, y) => {
    const column = Math.floor(x / size),
      row = Math.floor(y / size);
    for (let c = column - 1; c <= column + 1; c++) {
      for (let r = row - 1; r <= row + 1; r++) {
        const other = taken.get(key(c, r));
        if (other && Math.abs(other[0] - x) < size && Math.abs(other[1] - y) < size) return false;
      }
    }
    taken.set(key(column, row), [x, y]);
    return true;
  };
}

const halos = new Map();

/** A soft disc of one colour, drawn once and reused. */
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

/** Colour the background around the images of a cluster. One common layer keeps overlapping discs pale. */
function drawHalos(context) {
  const radius = spread.on ? 1.9 * spread.cell * camera.zoom : clamp(30 * Math.sqrt(camera.zoom), 30, 110);
  const layer = map.background;
  layer.width = Math.ceil(camera.width / 2);
  layer.height = Math.ceil(camera.height / 2);
  const soft = layer.getContext("2d");
  soft.scale(0.5, 0.5);
  soft.globalAlpha = 0.35;
  for (const image of drawOrder) {
    const [x, y] = toScreen(image);
    if (
      isDimmed(image) ||
      x < -radius ||
      y < -radius ||
      x > camera.width + radius ||
      y > camera.height + radius
    )
      continue;
    soft.drawImage(haloOf(paletteColor(groupIndex(image))), x - radius, y - radius, 2 * radius, 2 * radius);
  }
  context.globalAlpha = document.documentElement.dataset.theme === "dark" ? 0.26 : 0.2;
  context.imageSmoothingEnabled = true;
  context.drawImage(layer, 0, 0, camera.width, camera.height);
  context.globalAlpha = 1;
}

function drawMark(context, { image, x, y }) {
  const index = groupIndex(image);
  context.globalAlpha = isDimmed(image) ? 0.22 : 1;
  traceMark(context, paletteShape(index), x, y, 3.2);
  if (isOutlier(image)) {
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
  const scale = size / Math.max(sprites.width, sprites.height);
  const width = sprites.width * scale,
    height = sprites.height * scale;
  return [x - width / 2, y - height / 2, width, height];
}

/** In the spread layout there is no room for rings around selected images; the others are faded instead. */
const isFaded = (image) => spread.on && selection.size > 0 && !selection.has(image) && !isImportant(image);

function drawThumb(context, item) {
  const index = groupIndex(item.image);
  const [x, y, width, height] = tileBox(item);
  const edge = spread.on ? clamp(item.size / 11, 0.75, 4) : clamp(item.size / 12, 1.5, 3);
  context.globalAlpha = isDimmed(item.image) ? 0.15 : isFaded(item.image) ? 0.25 : 1;
  context.imageSmoothingEnabled = !crisp(item.size);
  context.fillStyle = paletteColor(index);
  context.fillRect(x - edge, y - edge, width + 2 * edge, height + 2 * edge);
  drawTile(context, item.image, x, y, width, height);
  if (isOutlier(item.image)) {
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
    if (selection.has(item.image) && !spread.on) ring(item, cssColor("--ink"), 4, 1.5);
    if (item.image === map.opened) ring(item, cssColor("--accent"), 5, 3);
    if (item.image === map.cursor && document.activeElement === map.canvas)
      ring(item, cssColor("--focus"), 9, 2.5);
  }
}

const NAME_HEIGHT = 20;

/** Find places for the names of clusters, largest cluster first: on the cluster, or below a typical image. */
function placeNames(context) {
  if (map.colorBy === "given") return [];
  const size = thumbSize(),
    placed = [];
  context.font = `600 12px ${cssColor("--sans")}`;
  for (const { cluster, images } of clustersBySize) {
    if (!images.length || isDimmed(images[0])) continue;
    const text = shortName(cluster);
    const half = context.measureText(text).width / 2 + 8;
    const base = { half, text, index: clusterIndex.get(cluster) };
    const choices = (spread.on ? placesOnCluster(images, size) : placesBelowImages(images, size)).map((place) => ({
      ...base,
      ...place,
    }));
    const free = (name) => inView(name, size) && !placed.some((other) => nameCollides(name, other, size));
    const name = choices.find(free);
    if (name) placed.push(name);
  }
  return placed;
}

/** Places below each of the most typical images of a cluster. */
function placesBelowImages(images, size) {
  return images.slice(0, 8).map((image) => {
    const [x, y] = toScreen(image);
    return { image, x, y, below: y + size / 2 + NAME_HEIGHT / 2 + 4 };
  });
}

/** Places in the middle of a cluster, below it and above it; its least typical fifth is left out. */
function placesOnCluster(images, size) {
  const points = images.slice(0, Math.max(1, Math.ceil(0.8 * images.length))).map(toScreen);
  const xs = points.map((point) => point[0]).sort((a, b) => a - b);
  const x = xs[xs.length >> 1];
  const ys = points.filter((point) => Math.abs(point[0] - x) < 1.5 * size).map((point) => point[1]);
  ys.sort((a, b) => a - b);
  const gap = size / 2 + NAME_HEIGHT / 2 + 2;
  return [ys[ys.length >> 1], ys[ys.length - 1] + gap, ys[0] - gap].map((below) => ({
    image: -1,
    x,
    y: below,
    below,
  }));
}

/** The name of a cluster; with many clusters just its number, unless somebody named it. */
function shortName(cluster) {
  if (!hasName(cluster) && clustersBySize.length > 24) return String(cluster);
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

/** Draw the box or lasso that selects images. */
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

/** The topmost image at a point of the screen, or -1. */
function imageAt(x, y) {
  let nearest = -1,
    least = 14;
  for (let i = map.drawn.length - 1; i >= 0; i--) {
    const item = map.drawn[i];
    if (item.isTile) {
      const [left, top, width, height] = tileBox(item);
      if (x >= left - 2 && y >= top - 2 && x <= left + width + 2 && y <= top + height + 2) return item.image;
    }
    const distance = Math.hypot(item.x - x, item.y - y);
    if (distance < least) [nearest, least] = [item.image, distance];
  }
  return nearest;
}
