// Where the map looks: positions of images, and the way from them to the screen.

const positions = (() => {
  // Fit the map into the unit square around zero, keeping proportions; y grows downwards on a screen.
  const range = (axis) => {
    let low = Infinity, high = -Infinity;
    for (let i = axis; i < embedding.length; i += 2) {
      low = Math.min(low, embedding[i]);
      high = Math.max(high, embedding[i]);
    }
    return [low, high];
  };
  const [left, right] = range(0), [low, high] = range(1);
  const spanX = right - left || 1, spanY = high - low || 1;
  const span = Math.max(spanX, spanY);
  const placed = new Float32Array(embedding.length);
  for (let i = 0; i < nShots; i++) {
    placed[2 * i] = (embedding[2 * i] - (left + right) / 2) / span;
    placed[2 * i + 1] = -(embedding[2 * i + 1] - (low + high) / 2) / span;
  }
  return { placed, width: spanX / span, height: spanY / span };
})();

const camera = { x: 0, y: 0, zoom: 1, width: 1, height: 1 };

const pixelsPerUnit = () => {
  const margin = 64;
  const fit = Math.min((camera.width - margin) / positions.width, (camera.height - margin) / positions.height);
  return Math.max(20, Math.min(fit, 4 * Math.max(camera.width, camera.height))) * camera.zoom;
};

function onScreen(x, y) {
  const scale = pixelsPerUnit();
  return [camera.width / 2 + (x - camera.x) * scale, camera.height / 2 + (y - camera.y) * scale];
}

const toScreen = (shot) => onScreen(positions.placed[2 * shot], positions.placed[2 * shot + 1]);

/** Zoom by a factor, keeping the point of the screen under the pointer where it is. */
function zoomAt(factor, x, y) {
  const before = pixelsPerUnit();
  camera.zoom = clamp(camera.zoom * factor, 0.6, 60);
  const after = pixelsPerUnit();
  const dx = x - camera.width / 2, dy = y - camera.height / 2;
  camera.x += dx / before - dx / after;
  camera.y += dy / before - dy / after;
  keepInSight();
}

function panBy(dx, dy) {
  const scale = pixelsPerUnit();
  camera.x -= dx / scale;
  camera.y -= dy / scale;
  keepInSight();
}

/** The middle of the view never leaves the images. */
function keepInSight() {
  camera.x = clamp(camera.x, -positions.width / 2, positions.width / 2);
  camera.y = clamp(camera.y, -positions.height / 2, positions.height / 2);
}

function resetCamera() {
  Object.assign(camera, { x: 0, y: 0, zoom: 1 });
}

/** Move just enough that an image can be seen. */
function reveal(shot) {
  const [x, y] = toScreen(shot);
  const margin = 40;
  const outside = (value, size) => value - clamp(value, Math.min(margin, size / 2), Math.max(size - margin, size / 2));
  panBy(-outside(x, camera.width), -outside(y, camera.height));
}
