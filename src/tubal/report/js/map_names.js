// The names of clusters on the map.

const NAME_HEIGHT = 20;

/** Find places for the names of clusters, largest cluster first: on the cluster, or below a typical image. */
function placeNames(context) {
  if (map.colorBy === "given") return [];
  const size = thumbSize(),
    placed = [];
  context.font = `600 12px ${cssColor("--sans")}`;
  const above = [map.opened, map.cursor, map.asked].filter((image) => spread.on && isImportant(image)).map(toScreen);
  for (const { cluster, images } of clustersBySize) {
    if (!images.length || (map.highlight !== null && isDimmed(images[0]))) continue;
    const text = shortName(cluster);
    const half = context.measureText(text).width / 2 + 8;
    const base = { half, text, index: clusterIndex.get(cluster) };
    const choices = (spread.on ? placesOnCluster(cluster, images, size) : placesBelowImages(images, size)).map(
      (place) => ({ ...base, ...place }),
    );
    const free = (name) => inView(name, size) && !placed.some((other) => nameCollides(name, other, size));
    const name = choices.find((place) => free(place) && !isCovered(place, above)) || choices.find(free);
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

/** Places in the middle of a cluster, below it and above it. */
function placesOnCluster(cluster, images, size) {
  const middle = middleOf(cluster, images);
  const gap = size / 2 + NAME_HEIGHT / 2 + 2;
  const at = (y) => onScreen(middle.x, y);
  const [x, y] = at(middle.y);
  return [y, at(middle.bottom)[1] + gap, at(middle.top)[1] - gap].map((below) => ({ image: -1, x, y: below, below }));
}

const middles = { key: null, found: new Map() };

/** The middle of a cluster and its upper and lower end there, on the map; its least typical fifth is left out. */
function middleOf(cluster, images) {
  const key = `${store.revision} ${spread.cell}`;
  if (middles.key !== key || middles.placed !== positions.placed)
    Object.assign(middles, { key, placed: positions.placed, found: new Map() });
  if (middles.found.has(cluster)) return middles.found.get(cluster);
  const kept = images.slice(0, Math.max(1, Math.ceil(0.8 * images.length)));
  const { placed } = positions;
  const xs = Float32Array.from(kept, (image) => placed[2 * image]).sort();
  const x = xs[xs.length >> 1];
  const near = (1.26 * spread.cell) / unzoomedExtent()[0];
  const column = kept.filter((image) => Math.abs(placed[2 * image] - x) <= near);
  const ys = Float32Array.from(column, (image) => placed[2 * image + 1]).sort();
  const found = { x, y: ys[ys.length >> 1], top: ys[0], bottom: ys[ys.length - 1] };
  middles.found.set(cluster, found);
  return found;
}

/** The name of a cluster; with many clusters just its number, unless it was renamed. */
function shortName(cluster) {
  if (!isNamed(cluster) && clustersBySize.length > 24) return String(cluster);
  const full = clusterLabel(cluster);
  return full.length > 26 ? `${full.slice(0, 25)}…` : full;
}

const inView = ({ x, half, y, below }) =>
  x > half && x < camera.width - half && y > NAME_HEIGHT / 2 && below < camera.height - NAME_HEIGHT / 2;

function nameCollides(name, other, size) {
  const across = Math.abs(name.x - other.x),
    least = spread.on ? 0 : size / 2,
    wide = Math.max(name.half, least) + Math.max(other.half, least) + 4;
  return across < wide && Math.abs(name.y - other.y) < (spread.on ? 0 : size + 4) + NAME_HEIGHT + 4;
}

/** Enlarged images lie above the names: a name beside them can be read. */
const isCovered = ({ x, below, half }, above) =>
  above.some(([left, top]) => Math.abs(left - x) < half + 24 && Math.abs(top - below) < NAME_HEIGHT / 2 + 24);

function drawNames(context, names) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `600 12px ${cssColor("--sans")}`;
  const [surface, ink] = [cssColor("--surface"), cssColor("--ink")];
  for (const { x, below, half, text, index } of names) {
    context.fillStyle = surface;
    context.strokeStyle = paletteColor(index);
    context.lineWidth = 1.5;
    context.beginPath();
    context.roundRect(x - half, below - NAME_HEIGHT / 2, 2 * half, NAME_HEIGHT, NAME_HEIGHT / 2);
    context.fill();
    context.stroke();
    context.fillStyle = ink;
    context.fillText(text, x, below + 0.5);
  }
}
