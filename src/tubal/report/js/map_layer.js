// The layer of the map: as many pictures as fit, and a coloured mark for every other image. Far out, where pictures
// would be too small to show anything, every image is a square of its colour.

const layer = { canvas: make("canvas"), halos: make("canvas"), key: "", x: 0, y: 0, marginX: 0, marginY: 0, names: [] };
let sheetsSeen = 0;
on("sheet", () => {
  sheetsSeen++;
  scheduleMap();
});

/** Everything the layer depends on but its place. */
function layerKey() {
  return [
    camera.zoom,
    camera.width,
    camera.height,
    map.ratio,
    store.revision,
    map.colorBy,
    map.highlight,
    map.foundKey,
    map.size,
    spread.on,
    map.opened,
    map.cursor,
    map.asked,
    selectionVersion,
    document.documentElement.dataset.theme,
    // A picture that comes while the map is dragged is drawn afterwards; among dots there is none.
    map.panning || isDotted() ? 0 : sheetsSeen,
    changeShare(),
  ].join();
}

/** How far the view has moved since the layer was drawn. */
function layerOffset() {
  const [width, height] = extent();
  return [(layer.x - camera.x) * width, (layer.y - camera.y) * height];
}

/** While the map is dragged the layer need not be in place: it only has to cover the view. */
function layerIsValid() {
  if (layer.key !== layerKey() || layer.placed !== positions.placed) return false;
  const [dx, dy] = layerOffset();
  if (!map.panning) return dx === 0 && dy === 0 && layer.marginX === 0;
  return Math.abs(dx) <= layer.marginX && Math.abs(dy) <= layer.marginY;
}

function drawLayer() {
  layer.key = layerKey();
  Object.assign(layer, { x: camera.x, y: camera.y, placed: positions.placed });
  layer.marginX = map.panning ? Math.round(camera.width / 2) : 0;
  layer.marginY = map.panning ? Math.round(camera.height / 2) : 0;
  const width = Math.round((camera.width + 2 * layer.marginX) * map.ratio),
    height = Math.round((camera.height + 2 * layer.marginY) * map.ratio);
  if (layer.canvas.width !== width || layer.canvas.height !== height) Object.assign(layer.canvas, { width, height });
  const context = layer.canvas.getContext("2d", { alpha: false });
  context.setTransform(map.ratio, 0, 0, map.ratio, layer.marginX * map.ratio, layer.marginY * map.ratio);
  context.fillStyle = cssColor("--map");
  context.fillRect(-layer.marginX, -layer.marginY, width, height);
  layer.names = placeNames(context);
  if (isDotted()) drawDots(context);
  else drawPictures(context);
}

/** The places of images on the screen, for loops over many images. */
function screenScale() {
  const [width, height] = extent();
  return {
    width,
    height,
    left: camera.width / 2 - camera.x * width,
    top: camera.height / 2 - camera.y * height,
  };
}

function drawDots(context) {
  const size = thumbSize(),
    { width, height, left, top } = screenScale(),
    { placed } = positions,
    groups = new Map();
  map.drawn = [];
  const reach = 2 * size;
  for (const image of drawOrder) {
    const x = left + placed[2 * image] * width,
      y = top + placed[2 * image + 1] * height;
    if (x < -layer.marginX - reach || x > camera.width + layer.marginX + reach) continue;
    if (y < -layer.marginY - reach || y > camera.height + layer.marginY + reach) continue;
    const important = isImportant(image);
    map.drawn.push({ image, x, y, size: important ? 38 : size, isTile: important });
    const faded = isDimmed(image) ? 1 : isFaded(image) ? 2 : 0;
    const key = 4 * map.palette[image] + faded;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(x, y);
  }
  for (const [key, points] of groups) {
    context.fillStyle = paletteColor(key >> 2);
    context.globalAlpha = [1, 0.1, 0.25][key & 3];
    for (let i = 0; i < points.length; i += 2) {
      context.fillRect(points[i] - size / 2, points[i + 1] - size / 2, size, size);
    }
  }
  context.globalAlpha = 1;
}

function drawPictures(context) {
  const { tiles, marks } = chooseTiles(layer.names);
  drawHalos(context, [...marks, ...tiles]);
  marks.forEach((item) => drawMark(context, item));
  tiles.forEach((item) => drawThumb(context, item));
  map.drawn = [...marks, ...tiles];
}

/** Choose the images drawn as pictures: those that find a free place, the opened and named ones first. */
function chooseTiles(names) {
  const size = thumbSize(),
    tiles = [],
    marks = [],
    { width, height, left, top } = screenScale(),
    { placed } = positions;
  const takePlace = freePlaces(size * 1.12);
  const covered = (x, y) =>
    names.some(
      (name) =>
        Math.abs(name.x - x) < name.half + size / 2 && Math.abs(name.below - y) < NAME_HEIGHT / 2 + size / 2,
    );
  const important = [map.opened, map.cursor, map.asked].filter(isImportant);
  const named = new Set(names.map((name) => name.image).filter((image) => image >= 0));
  for (const image of new Set([...important, ...named, ...drawOrder])) {
    const x = left + placed[2 * image] * width,
      y = top + placed[2 * image + 1] * height;
    if (x < -size - layer.marginX || x > camera.width + size + layer.marginX) continue;
    if (y < -size - layer.marginY || y > camera.height + size + layer.marginY) continue;
    const wanted = spread.on || (!isDimmed(image) && (isImportant(image) || named.has(image) || !covered(x, y)));
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
  const key = (column, row) => column * 8192 + row;
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

const haloPictures = new Map();

/** A soft disc of one colour, drawn once and reused. */
function haloOf(color) {
  if (!haloPictures.has(color)) {
    const canvas = make("canvas", { width: 128, height: 128 });
    const context = canvas.getContext("2d");
    const gradient = context.createRadialGradient(64, 64, 0, 64, 64, 64);
    gradient.addColorStop(0, `${color}ff`);
    gradient.addColorStop(0.5, `${color}55`);
    gradient.addColorStop(1, `${color}00`);
    context.fillStyle = gradient;
    context.fillRect(0, 0, 128, 128);
    haloPictures.set(color, canvas);
  }
  return haloPictures.get(color);
}

// So many discs cover everything; they would only cost time.
const MOST_HALOS = 4000;

/** Colour the background around the images of a cluster. One common layer keeps overlapping discs pale. */
function drawHalos(context, items) {
  if (items.length > MOST_HALOS) return;
  const radius = spread.on ? 1.9 * spread.cell * camera.zoom : clamp(30 * Math.sqrt(camera.zoom), 30, 110);
  const { halos, marginX, marginY } = layer;
  const width = camera.width + 2 * marginX,
    height = camera.height + 2 * marginY;
  halos.width = Math.ceil(width / 2);
  halos.height = Math.ceil(height / 2);
  const soft = halos.getContext("2d");
  soft.setTransform(0.5, 0, 0, 0.5, marginX / 2, marginY / 2);
  soft.globalAlpha = 0.35;
  for (const { image, x, y } of items) {
    if (!isDimmed(image))
      soft.drawImage(haloOf(paletteColor(groupIndex(image))), x - radius, y - radius, 2 * radius, 2 * radius);
  }
  context.globalAlpha = document.documentElement.dataset.theme === "dark" ? 0.26 : 0.2;
  context.imageSmoothingEnabled = true;
  context.drawImage(halos, -marginX, -marginY, width, height);
  context.globalAlpha = 1;
}

const MARK_SIDE = 12;
const markPictures = new Map();

/** The mark of a palette entry, drawn once for each colour; outliers have only an outline. */
function markOf(index, hollow) {
  const key = [paletteColor(index), paletteShape(index), hollow, map.ratio].join();
  if (markPictures.has(key)) return markPictures.get(key);
  const canvas = make("canvas", { width: MARK_SIDE * map.ratio, height: MARK_SIDE * map.ratio });
  const context = canvas.getContext("2d");
  context.scale(map.ratio, map.ratio);
  traceMark(context, paletteShape(index), MARK_SIDE / 2, MARK_SIDE / 2, 3.2);
  context.lineWidth = 1.5;
  context.fillStyle = context.strokeStyle = paletteColor(index);
  if (hollow) context.stroke();
  else context.fill();
  markPictures.set(key, canvas);
  return canvas;
}

function drawMark(context, { image, x, y }) {
  context.globalAlpha = isDimmed(image) ? 0.22 : 1;
  const picture = markOf(groupIndex(image), isOutlier(image));
  context.drawImage(picture, x - MARK_SIDE / 2, y - MARK_SIDE / 2, MARK_SIDE, MARK_SIDE);
  context.globalAlpha = 1;
}

/** In the spread layout there is no room for rings around selected images; the others are faded instead. */
const isFaded = (image) => spread.on && selection.size > 0 && !selection.has(image) && !isImportant(image);

function drawThumb(context, item) {
  const share = changedShare(item.image);
  const grown = share < 1 ? { ...item, size: item.size * (1 + 0.3 * Math.sin(Math.PI * share)) } : item;
  const [x, y, width, height] = tileBox(grown);
  const edge = spread.on ? clamp(item.size / 11, 0.75, 4) : clamp(item.size / 12, 1.5, 3);
  context.globalAlpha = isDimmed(item.image) ? 0.15 : isFaded(item.image) ? 0.25 : 1;
  context.imageSmoothingEnabled = !crisp(item.size);
  const frame = (color) => {
    context.fillStyle = color;
    context.fillRect(x - edge, y - edge, width + 2 * edge, height + 2 * edge);
  };
  if (share < 1) {
    frame(paletteColor(change.palette[item.image]));
    context.globalAlpha *= share;
  }
  frame(paletteColor(groupIndex(item.image)));
  context.globalAlpha = isDimmed(item.image) ? 0.15 : isFaded(item.image) ? 0.25 : 1;
  drawTile(context, item.image, x, y, width, height, map.ratio);
  if (isOutlier(item.image)) drawOutlierFrame(context, [x, y, width, height], edge);
  context.globalAlpha = 1;
}

function drawOutlierFrame(context, [x, y, width, height], edge) {
  context.setLineDash([3, 3]);
  context.strokeStyle = cssColor("--map");
  context.lineWidth = edge;
  context.strokeRect(x - edge / 2, y - edge / 2, width + edge, height + edge);
  context.setLineDash([]);
}

// --- a change of clusters: for a moment, images on the way from one colour to another are a little larger --------

const CHANGE_MS = 450;
const change = { start: -Infinity, palette: new Int16Array(nImages) };

/** Remember the colours before the clusters change. */
function rememberColors() {
  change.palette.set(map.palette);
  change.start = reducedMotion() ? -Infinity : performance.now();
}

const changeShare = () => Math.min(1, (performance.now() - change.start) / CHANGE_MS);
const changedShare = (image) => (change.palette[image] === map.palette[image] ? 1 : changeShare());
