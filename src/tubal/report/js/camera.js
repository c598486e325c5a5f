// Positions of the images on the map, and how the view (its centre and zoom) turns them into screen positions.

const positions = (() => {
  // Scale the map to the unit square around zero; y grows downwards on a screen.
  const range = (axis) => {
    let low = Infinity,
      high = -Infinity;
    for (let i = axis; i < embedding.length; i += 2) {
      low = Math.min(low, embedding[i]);
      high = Math.max(high, embedding[i]);
    }
    return [low, high];
  };
  const [left, right] = range(0),
    [low, high] = range(1);
  // Images in a row have no height but rounding errors, which must not fill the map.
  const least = Math.max(right - left, high - low) / 20 || 1,
    spanX = Math.max(right - left, least),
    spanY = Math.max(high - low, least);
  const placed = new Float32Array(embedding.length);
  for (let i = 0; i < nImages; i++) {
    placed[2 * i] = (embedding[2 * i] - (left + right) / 2) / spanX;
    placed[2 * i + 1] = -(embedding[2 * i + 1] - (low + high) / 2) / spanY;
  }
  return { placed, exact: placed, aspect: spanX / spanY };
})();

const camera = { x: 0, y: 0, zoom: 1, width: 1, height: 1 };

/** Width and height of the whole map in pixels at the current zoom. */
function extent() {
  const [width, height] = unzoomedExtent();
  return [width * camera.zoom, height * camera.zoom];
}

/** Width and height of the map without zoom. Its axes have no meaning, so it may be stretched to fill the space. */
function unzoomedExtent() {
  const margin = spread.on ? 24 : 72,
    stretch = spread.on ? 3 : 1.8;
  let width = Math.max(40, camera.width - margin),
    height = Math.max(40, camera.height - margin);
  width = Math.min(width, height * positions.aspect * stretch);
  height = Math.min(height, (width / positions.aspect) * stretch);
  return [width, height];
}

function onScreen(x, y) {
  const [width, height] = extent();
  return [camera.width / 2 + (x - camera.x) * width, camera.height / 2 + (y - camera.y) * height];
}

const toScreen = (image) => onScreen(positions.placed[2 * image], positions.placed[2 * image + 1]);

/** Zoom by a factor and keep the point (x, y) of the screen in place. */
function zoomAt(factor, x, y) {
  const before = extent();
  camera.zoom = clamp(camera.zoom * factor, 0.6, 60);
  const after = extent();
  const dx = x - camera.width / 2,
    dy = y - camera.height / 2;
  camera.x += dx / before[0] - dx / after[0];
  camera.y += dy / before[1] - dy / after[1];
  limitCamera();
}

/** The image to zoom towards: of the selection, else the opened one, else the image in view nearest to the middle. */
function anchorImage() {
  const distance = (image) => {
    const [x, y] = toScreen(image);
    return Math.hypot(x - camera.width / 2, y - camera.height / 2);
  };
  const inView = (image) => {
    const [x, y] = toScreen(image);
    return x >= 0 && y >= 0 && x <= camera.width && y <= camera.height;
  };
  const all = Array.from({ length: nImages }, (_, image) => image).filter((image) => !isDimmed(image));
  const chosen = selection.size ? [...selection] : [map.opened, map.cursor].filter((image) => image >= 0).slice(0, 1);
  const visible = all.filter(inView);
  const choices = chosen.length ? chosen : visible.length ? visible : all;
  return choices.reduce((best, image) => (best < 0 || distance(image) < distance(best) ? image : best), -1);
}

/** Zoom in towards images, never into emptiness: the image nearest to the middle moves half-way there. */
function zoomToImages(factor) {
  const anchor = anchorImage();
  if (anchor < 0) return zoomAt(factor, camera.width / 2, camera.height / 2);
  reveal(anchor);
  zoomAt(factor, ...toScreen(anchor));
  const [x, y] = toScreen(anchor);
  return panBy((camera.width / 2 - x) / 2, (camera.height / 2 - y) / 2);
}

function panBy(dx, dy) {
  const [width, height] = extent();
  camera.x -= dx / width;
  camera.y -= dy / height;
  limitCamera();
}

/** Keep the centre of the view on the map. */
function limitCamera() {
  camera.x = clamp(camera.x, -0.5, 0.5);
  camera.y = clamp(camera.y, -0.5, 0.5);
}

function resetCamera() {
  Object.assign(camera, { x: 0, y: 0, zoom: 1 });
}

/** Move the view just far enough to show an image. */
function reveal(image) {
  const [x, y] = toScreen(image);
  const margin = 40;
  const outside = (value, size) =>
    value - clamp(value, Math.min(margin, size / 2), Math.max(size - margin, size / 2));
  panBy(-outside(x, camera.width), -outside(y, camera.height));
}
