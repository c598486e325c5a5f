// The map: what is in view, the layer of images, and what is drawn over it. The layer is drawn again only when
// something in it changes; while the reader drags the map it is moved as a whole, so that panning stays smooth.

const map = {
  canvas: find("#map"),
  context: find("#map").getContext("2d"),
  colorBy: "cluster",
  size: 28,
  cursor: -1,
  opened: -1,
  asked: -1,
  highlight: null,
  found: null,
  outline: null,
  drawn: [],
  scheduled: false,
  panning: false,
  palette: new Int16Array(nImages),
};

/** The palette entry of an image: that of its given label or of its cluster. */
const groupIndex = (image) => map.palette[image];
const isDimmed = (image) =>
  (map.highlight !== null && map.palette[image] !== map.highlight) || (map.found !== null && !map.found.has(image));

function colorImages() {
  for (let image = 0; image < nImages; image++) {
    map.palette[image] = map.colorBy === "given" ? givenLabels[image] : clusterIndex.get(clusterOf(image));
  }
}

/** The order in which images take places on the map: the most typical images of all clusters come first. */
let drawOrder = [];
let clustersBySize = [];
function orderImages() {
  clustersBySize = [...clusterMembers()].map(([cluster, images]) => ({ cluster, images }));
  clustersBySize.sort((a, b) => b.images.length - a.images.length);
  const ranks = new Float64Array(nImages);
  clustersBySize.forEach(({ images }) => images.forEach((image, rank) => (ranks[image] = rank / images.length)));
  drawOrder = clustersBySize.flatMap(({ images }) => images).sort((a, b) => ranks[a] - ranks[b]);
  colorImages();
}

const isImportant = (image) =>
  image >= 0 && (image === map.opened || image === map.cursor || image === map.asked);

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
  const width = Math.max(50, frame.width),
    height = Math.max(50, frame.height),
    ratio = window.devicePixelRatio || 1;
  if (width === camera.width && height === camera.height && map.ratio === ratio) return;
  Object.assign(camera, { width, height });
  map.ratio = ratio;
  map.canvas.width = Math.round(width * ratio);
  map.canvas.height = Math.round(height * ratio);
  map.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  arrangeImages();
  scheduleMap();
}

/** The longer side of a picture on the map. Below DOT_SIZE it would show nothing: a square of its colour does. */
const DOT_SIZE = 7;
function thumbSize() {
  if (spread.on) return clamp(0.84 * spread.cell * camera.zoom, 1.5, 220);
  return clamp(map.size * Math.pow(camera.zoom, 0.4), 10, 120);
}

const isDotted = () => spread.on && thumbSize() < DOT_SIZE;

function drawMap() {
  const context = map.context;
  if (!map.ratio) return;
  if (!layerIsValid()) drawLayer();
  const [dx, dy] = layerOffset();
  context.fillStyle = cssColor("--map");
  context.fillRect(0, 0, camera.width, camera.height);
  // The layer has the pixels of the screen: drawing it at whole pixels copies them.
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  const place = (offset, margin) => Math.round((offset - margin) * map.ratio);
  context.drawImage(layer.canvas, place(dx, layer.marginX), place(dy, layer.marginY));
  context.restore();
  context.save();
  context.translate(dx, dy);
  drawNames(context, layer.names);
  const important = map.drawn.filter((item) => isImportant(item.image));
  important.filter((item) => item.isTile).forEach((item) => drawThumb(context, item));
  drawRings(context, important);
  context.restore();
  drawOutline(context);
  if (changeShare() < 1) scheduleMap();
}

function tileBox({ x, y, size }) {
  const scale = size / Math.max(sprites.width, sprites.height);
  const width = sprites.width * scale,
    height = sprites.height * scale;
  return [x - width / 2, y - height / 2, width, height];
}

function drawRings(context, important) {
  const ring = (item, color, gap, weight) => {
    const [x, y, width, height] = item.isTile ? tileBox(item) : [item.x - 3, item.y - 3, 6, 6];
    context.strokeStyle = color;
    context.lineWidth = weight;
    context.beginPath();
    context.roundRect(x - gap, y - gap, width + 2 * gap, height + 2 * gap, 4);
    context.stroke();
  };
  const focused = document.activeElement === map.canvas;
  const ringed = selection.size && !spread.on ? map.drawn : important;
  const [ink, accent, focus, asked] = ["--ink", "--accent", "--focus", "--negative"].map(cssColor);
  for (const item of ringed) {
    if (selection.has(item.image) && !spread.on) ring(item, ink, 4, 1.5);
    if (item.image === map.asked) ring(item, asked, 4, 3);
    if (item.image === map.opened) ring(item, accent, 5, 3);
    if (item.image === map.cursor && focused) ring(item, focus, 9, 2.5);
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
function imageAt(screenX, screenY) {
  const [dx, dy] = layerOffset();
  const x = screenX - dx,
    y = screenY - dy;
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
