// Thumbnails, cut from the sprite sheets.

const S = P.sprites;
const GUTTER = 1;
const sheetBlobs = S.sheets.map((address) => {
  const [head, body] = address.split(",");
  return new Blob([bytesOf(body)], { type: head.slice(5, head.indexOf(";")) });
});
const sheetAddresses = sheetBlobs.map((blob) => URL.createObjectURL(blob));
let sheetPictures = [];

/** Decode all sheets once; drawing on canvases needs them, the style sheet does not. */
async function loadSheets() {
  sheetPictures = await Promise.all(sheetBlobs.map((blob) => createImageBitmap(blob)));
  sheetAddresses.forEach((address, index) => {
    const { width, height } = sheetPictures[index];
    document.documentElement.style.setProperty(`--sheet-${index}`, `url("${address}")`);
    S.sizes = S.sizes || [];
    S.sizes[index] = [width, height];
  });
}

function tileOf(shot) {
  const sheet = Math.floor(shot / S.perSheet),
    place = shot % S.perSheet;
  return {
    sheet,
    x: GUTTER + (place % S.columns) * S.pitch[1],
    y: GUTTER + Math.floor(place / S.columns) * S.pitch[0],
  };
}

function drawTile(context, shot, x, y, width, height) {
  const tile = tileOf(shot);
  context.drawImage(sheetPictures[tile.sheet], tile.x, tile.y, S.width, S.height, x, y, width, height);
}

/** Small pictures are shown as their pixels; large ones are smoothed. */
const crisp = (size) => size / Math.max(S.width, S.height) >= 1.5;

/** A span that shows one image with its longer side `size` pixels long. */
function tileSpan(shot, size) {
  const tile = tileOf(shot);
  const scale = size / Math.max(S.width, S.height);
  const [width, height] = S.sizes[tile.sheet];
  const span = make("span", { class: "tile", "aria-hidden": "true" });
  span.style.width = `${S.width * scale}px`;
  span.style.height = `${S.height * scale}px`;
  span.style.backgroundImage = `var(--sheet-${tile.sheet})`;
  span.style.backgroundSize = `${width * scale}px ${height * scale}px`;
  span.style.backgroundPosition = `${-tile.x * scale}px ${-tile.y * scale}px`;
  if (crisp(size)) span.style.imageRendering = "pixelated";
  return span;
}

/** A canvas with the image at its own resolution. */
function tileCanvas(shot) {
  const canvas = make("canvas", { width: S.width, height: S.height, "aria-hidden": "true" });
  drawTile(canvas.getContext("2d", { willReadFrequently: true }), shot, 0, 0, S.width, S.height);
  return canvas;
}

const marksOf = (shot) =>
  [
    isOutlier(shot) && "outlier",
    isDoubtful(shot) && "doubtful",
    duplicateRow.has(rowOf[shot]) && "near-duplicate",
  ].filter(Boolean);

/** A button that opens an image, with a mark when it is an outlier or doubtful. */
function thumbButton(shot, size, note) {
  const marks = marksOf(shot);
  const text = [nameOf(shot), ...marks, note].filter(Boolean).join(", ");
  const node = button(tileSpan(shot, size), () => emit("open", { shot }), {
    class: "thumb",
    "data-shot": shot,
    title: text,
    "aria-label": text,
    tabindex: -1,
  });
  const mark = marks.includes("outlier") ? "!" : marks.includes("doubtful") ? "?" : null;
  if (mark) {
    node.classList.add(mark === "!" ? "is-outlier" : "is-doubtful");
    node.append(make("span", { class: "mark", "aria-hidden": "true" }, mark));
  }
  return node;
}

/** Fill a container with thumbnails that are one tab stop together. */
function thumbGrid(shots, size, attributes) {
  const grid = make("div", { class: "thumbs", role: "group", ...attributes });
  grid.append(...shots.map((shot) => thumbButton(shot, size)));
  if (grid.firstElementChild) grid.firstElementChild.tabIndex = 0;
  rove(grid, ".thumb");
  return grid;
}
