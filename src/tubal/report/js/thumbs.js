// Thumbnails, cut out of the sprite sheets.

const sprites = payload.sprites;
const GUTTER = 1;
const sheetBlobs = sprites.sheets.map((address) => {
  const [head, body] = address.split(",");
  return new Blob([bytesOf(body)], { type: head.slice(5, head.indexOf(";")) });
});
const sheetAddresses = sheetBlobs.map((blob) => URL.createObjectURL(blob));
let sheetPictures = [];

/** Decode all sheets once, for drawing on canvases; elements on the page use them as background images. */
async function loadSheets() {
  sheetPictures = await Promise.all(sheetBlobs.map((blob) => createImageBitmap(blob)));
  sheetAddresses.forEach((address, index) =>
    document.documentElement.style.setProperty(`--sheet-${index}`, `url("${address}")`),
  );
}

/** Where an image lies on its sheet. */
function tileOf(image) {
  const sheet = Math.floor(image / sprites.perSheet),
    place = image % sprites.perSheet;
  return {
    sheet,
    x: GUTTER + (place % sprites.columns) * sprites.pitch[1],
    y: GUTTER + Math.floor(place / sprites.columns) * sprites.pitch[0],
  };
}

function drawTile(context, image, x, y, width, height) {
  const tile = tileOf(image);
  const sheet = sheetPictures[tile.sheet];
  context.drawImage(sheet, tile.x, tile.y, sprites.width, sprites.height, x, y, width, height);
}

/** Strongly enlarged pictures keep sharp pixels; others are smoothed. */
const crisp = (size) => size / Math.max(sprites.width, sprites.height) >= 1.5;

/** A span that shows one image with its longer side `size` pixels long. */
function tileSpan(image, size) {
  const tile = tileOf(image);
  const scale = size / Math.max(sprites.width, sprites.height);
  const { width, height } = sheetPictures[tile.sheet];
  const span = make("span", { class: "tile", "aria-hidden": "true" });
  span.style.width = `${sprites.width * scale}px`;
  span.style.height = `${sprites.height * scale}px`;
  span.style.backgroundImage = `var(--sheet-${tile.sheet})`;
  span.style.backgroundSize = `${width * scale}px ${height * scale}px`;
  span.style.backgroundPosition = `${-tile.x * scale}px ${-tile.y * scale}px`;
  if (crisp(size)) span.style.imageRendering = "pixelated";
  return span;
}

/** A canvas with the image at its own resolution. */
function tileCanvas(image) {
  const canvas = make("canvas", { width: sprites.width, height: sprites.height, "aria-hidden": "true" });
  drawTile(canvas.getContext("2d", { willReadFrequently: true }), image, 0, 0, sprites.width, sprites.height);
  return canvas;
}

const flagsOf = (image) =>
  [
    isOutlier(image) && "outlier",
    isDoubtful(image) && "doubtful",
    duplicateRow.has(rowOf[image]) && "near-duplicate",
  ].filter(Boolean);

/** A button that opens an image, with a ! for outliers and a ? for doubtful images. */
function thumbButton(image, size, note) {
  const flags = flagsOf(image);
  const text = [nameOf(image), ...flags, note].filter(Boolean).join(", ");
  const node = button(tileSpan(image, size), () => emit("open", { image }), {
    class: "thumb",
    "data-image": image,
    title: text,
    "aria-label": text,
    tabindex: -1,
  });
  const mark = flags.includes("outlier") ? "!" : flags.includes("doubtful") ? "?" : null;
  if (mark) {
    node.classList.add(mark === "!" ? "is-outlier" : "is-doubtful");
    node.append(make("span", { class: "mark", "aria-hidden": "true" }, mark));
  }
  return node;
}

/** A group of thumbnails that is one tab stop. */
function thumbGrid(images, size, attributes) {
  const grid = make("div", { class: "thumbs", role: "group", ...attributes });
  grid.append(...images.map((image) => thumbButton(image, size)));
  if (grid.firstElementChild) grid.firstElementChild.tabIndex = 0;
  rovingFocus(grid, ".thumb");
  return grid;
}
