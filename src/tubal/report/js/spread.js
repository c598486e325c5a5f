// The layout without overlaps: every image is moved from its exact position to the nearest free cell of a grid, the
// most typical ones first, so that they end up in the middle of their clusters.

const spread = { on: true, cell: 24 };

/** Set the positions for the chosen layout and the current size of the map. */
function arrangeImages() {
  if (!spread.on) {
    positions.placed = positions.exact;
    return;
  }
  const [width, height] = unzoomedExtent();
  const grid = gridFor(width, height);
  const taken = new Uint8Array(grid.columns * grid.rows),
    full = new Uint16Array(taken.length);
  const placed = new Float32Array(2 * nImages);
  // Keep exact positions away from the border: clusters grow when their images are moved apart.
  const inset = 0.8;
  for (const image of placementOrder()) {
    const x = (0.5 + inset * positions.exact[2 * image]) * grid.columns - 0.5;
    const y = (0.5 + inset * positions.exact[2 * image + 1]) * grid.rows - 0.5;
    const cell = nearestFreeCell(taken, full, grid, x, y);
    taken[cell] = 1;
    const column = cell % grid.columns,
      row = Math.floor(cell / grid.columns);
    placed[2 * image] = (((column + 0.5) / grid.columns - 0.5) * grid.columns * spread.cell) / width;
    placed[2 * image + 1] = (((row + 0.5) / grid.rows - 0.5) * grid.rows * spread.cell) / height;
  }
  positions.placed = placed;
}

/** Square cells, at least one for every image; the images fill about half of the map. */
function gridFor(width, height) {
  let columns, rows;
  spread.cell = Math.min(46, width, height, Math.sqrt((0.48 * width * height) / nImages)) / 0.95;
  do {
    spread.cell *= 0.95;
    columns = Math.floor(width / spread.cell);
    rows = Math.floor(height / spread.cell);
  } while (columns * rows < nImages);
  return { columns, rows };
}

/** The order in which images take cells. It stays that of the clusters as found, so that merging moves no image. */
let firstOrder = null;
function placementOrder() {
  if (!firstOrder) firstOrder = drawOrder.slice();
  return firstOrder;
}

/** Search square rings around a point, until a farther ring cannot hold a nearer cell than the best found.

    `full` holds, for every cell, a number of rings around it that are known to be taken: they are not searched again.
    A cell beside one with many full rings has nearly as many. */
function nearestFreeCell(taken, full, { columns, rows }, x, y) {
  const middleX = clamp(Math.round(x), 0, columns - 1),
    middleY = clamp(Math.round(y), 0, rows - 1);
  const cell = middleY * columns + middleX;
  let first = full[cell];
  for (const [dx, dy] of BESIDE) {
    const column = middleX + dx,
      row = middleY + dy;
    if (column < 0 || row < 0 || column >= columns || row >= rows) continue;
    first = Math.max(first, full[row * columns + column] - Math.max(Math.abs(dx), Math.abs(dy)));
  }
  let best = -1,
    least = Infinity,
    allTaken = true;
  const consider = (column, row) => {
    if (column < 0 || row < 0 || column >= columns || row >= rows || taken[row * columns + column]) return;
    allTaken = false;
    const distance = (column - x) ** 2 + (row - y) ** 2;
    if (distance < least) [best, least] = [row * columns + column, distance];
  };
  for (let ring = first; ring < columns + rows && (best < 0 || (ring - 1) ** 2 < least); ring++) {
    for (let step = -ring; step <= ring; step++) {
      consider(middleX + step, middleY - ring);
      consider(middleX + step, middleY + ring);
      consider(middleX - ring, middleY + step);
      consider(middleX + ring, middleY + step);
    }
    if (allTaken) full[cell] = ring + 1;
  }
  return best;
}

const BESIDE = [-4, -2, -1, 0, 1, 2, 4].flatMap((dx) => [-4, -2, -1, 0, 1, 2, 4].map((dy) => [dx, dy]));

function startLayouts() {
  const select = find("#layout");
  find("#map-size").addEventListener("input", (event) => {
    map.size = Number(event.target.value);
    scheduleMap();
  });
  select.addEventListener("change", () => {
    spread.on = select.value === "spread";
    find("#size-field").hidden = spread.on;
    arrangeImages();
    moveView(resetCamera);
  });
  find("#size-field").hidden = spread.on;
}
