// Every image at a place of its own: moved from its computed position to the nearest free cell of a grid,
// the most typical first, so that clusters become islands with their typical images in the middle.

const spread = { on: true, cell: 24 };

/** Let the map use the computed positions, or lay the grid for the room there is now. */
function arrange() {
  if (!spread.on) {
    positions.placed = positions.computed;
    return;
  }
  const [width, height] = roomAtRest();
  const grid = gridFor(width, height);
  const taken = new Uint8Array(grid.columns * grid.rows);
  const placed = new Float32Array(2 * nShots);
  // Computed positions keep away from the border: islands need room to grow.
  const inset = 0.8;
  for (const shot of foundOrder()) {
    const x = (0.5 + inset * positions.computed[2 * shot]) * grid.columns - 0.5;
    const y = (0.5 + inset * positions.computed[2 * shot + 1]) * grid.rows - 0.5;
    const [column, row] = nearestFree(taken, grid, x, y);
    taken[row * grid.columns + column] = 1;
    placed[2 * shot] = (((column + 0.5) / grid.columns - 0.5) * grid.columns * spread.cell) / width;
    placed[2 * shot + 1] = (((row + 0.5) / grid.rows - 0.5) * grid.rows * spread.cell) / height;
  }
  positions.placed = placed;
}

/** Square cells that fill about half the room, in any case one for every image. */
function gridFor(width, height) {
  let columns, rows;
  spread.cell = Math.min(46, width, height, Math.sqrt((0.48 * width * height) / nShots)) / 0.95;
  do {
    spread.cell *= 0.95;
    columns = Math.floor(width / spread.cell);
    rows = Math.floor(height / spread.cell);
  } while (columns * rows < nShots);
  return { columns, rows };
}

/** The order in which images claim a cell follows the clusters as found: merging moves nothing. */
let claimOrder = null;
function foundOrder() {
  if (!claimOrder) claimOrder = claims.slice();
  return claimOrder;
}

/** Search square rings around a point; a ring farther than the best cell found cannot hold a nearer one. */
function nearestFree(taken, { columns, rows }, x, y) {
  const middle = [clamp(Math.round(x), 0, columns - 1), clamp(Math.round(y), 0, rows - 1)];
  let best = null,
    least = Infinity;
  const consider = (column, row) => {
    if (column < 0 || row < 0 || column >= columns || row >= rows || taken[row * columns + column]) return;
    const distance = (column - x) ** 2 + (row - y) ** 2;
    if (distance < least) [best, least] = [[column, row], distance];
  };
  for (let ring = 0; ring < columns + rows && (!best || (ring - 1) ** 2 < least); ring++) {
    for (let step = -ring; step <= ring; step++) {
      consider(middle[0] + step, middle[1] - ring);
      consider(middle[0] + step, middle[1] + ring);
      consider(middle[0] - ring, middle[1] + step);
      consider(middle[0] + ring, middle[1] + step);
    }
  }
  return best;
}

function startLayouts() {
  const select = find("#layout");
  select.addEventListener("change", () => {
    spread.on = select.value === "spread";
    find("#size-field").hidden = spread.on;
    arrange();
    moved(resetCamera);
  });
  find("#size-field").hidden = spread.on;
}
