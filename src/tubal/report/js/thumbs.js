// Thumbnails, cut out of the sprite sheets. A page that is a file holds all sheets; a live page fetches each sheet when
// one of its images is shown for the first time.

const sprites = payload.sprites;
const GUTTER = 1;
const nSheets = isLive ? sprites.nSheets : sprites.sheets.length;
// All sheets stay decoded for drawing, reduced if they would take more memory than this together. The full resolution
// is kept for the last few sheets from which an image was opened.
const BITMAP_BYTES = 256e6;
const MOST_LARGE = 10;
const MOST_FETCHES = 4;
const sheets = Array.from({ length: nSheets }, () => ({ blob: null, kept: null, large: null, wanted: false, waiting: [] }));
const keptScale = isLive
  ? Math.min(1, Math.sqrt(BITMAP_BYTES / (4 * nImages * sprites.pitch[0] * sprites.pitch[1])))
  : 1;
const fetchQueue = [];
let fetching = 0;

/** Make all sheets of a page in a file ready; a live page starts without any. */
async function loadSheets() {
  if (isLive) return;
  await Promise.all(
    sprites.sheets.map((address, number) => {
      const [head, body] = address.split(",");
      const blob = new Blob([bytesOf(body)], { type: head.slice(5, head.indexOf(";")) });
      document.documentElement.style.setProperty(`--sheet-${number}`, `url("${URL.createObjectURL(blob)}")`);
      return keepSheet(number, blob);
    }),
  );
}

async function keepSheet(number, blob) {
  const sheet = sheets[number];
  sheet.blob = blob;
  const [width, height] = sheetSize(number).map((side) => Math.max(1, Math.round(side * keptScale)));
  const size = keptScale < 1 ? { resizeWidth: width, resizeHeight: height, resizeQuality: "medium" } : {};
  sheet.kept = await createImageBitmap(blob, size);
  sheet.waiting.splice(0).forEach((draw) => draw());
}

/** Width and height of a sheet in pixels. */
function sheetSize(number) {
  const count = Math.min(sprites.perSheet, nImages - number * sprites.perSheet);
  const columns = Math.min(sprites.columns, count);
  return [columns * sprites.pitch[1], Math.ceil(count / columns) * sprites.pitch[0]];
}

/** Ask for a sheet that is not there yet; the sheet asked for last comes first, since it is in view. */
function wantSheet(number) {
  const sheet = sheets[number];
  if (sheet.wanted || !isLive) return;
  sheet.wanted = true;
  fetchQueue.push(number);
  fetchSheets();
}

async function fetchSheets() {
  if (fetching >= MOST_FETCHES || !fetchQueue.length) return;
  fetching++;
  const number = fetchQueue.pop();
  try {
    const answer = await fetch(`sheet/${number}`);
    if (!answer.ok) throw new Error(String(answer.status));
    await keepSheet(number, await answer.blob());
    emit("sheet", { number });
  } catch {
    // A later request for one of its images tries again.
    setTimeout(() => (sheets[number].wanted = false), 2000);
  } finally {
    fetching--;
    fetchSheets();
    fetchFine();
  }
}

/** Wait until an image can be drawn at its own resolution. */
async function tileReady(image) {
  const number = tileOf(image).sheet,
    sheet = sheets[number];
  wantSheet(number);
  if (!sheet.kept) await new Promise((done) => sheet.waiting.push(done));
  if (keptScale === 1 || sheet.large) return;
  sheet.large = await createImageBitmap(sheet.blob);
  const large = sheets.filter((other) => other.large && other !== sheet);
  for (const old of large.slice(0, Math.max(0, large.length + 1 - MOST_LARGE))) {
    old.large.close();
    old.large = null;
  }
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

/** Draw one image, if its sheet is there; else ask for it. A unit of the context has `ratio` pixels of the screen. */
function drawTile(context, image, x, y, width, height, ratio = 1) {
  const scale = (width * ratio) / sprites.width,
    fine = fineFor(image, scale);
  if (fine) drawFine(context, fine, image, [x, y, width, height], scale);
  else drawSmall(context, image, x, y, width, height);
}

/** Draw one image from its small sheet. */
function drawSmall(context, image, x, y, width, height) {
  const tile = tileOf(image),
    sheet = sheets[tile.sheet];
  if (!sheet.kept) return wantSheet(tile.sheet);
  const bitmap = sheet.large || sheet.kept;
  const scale = sheet.large ? 1 : keptScale;
  const [left, top, across, down] = [tile.x, tile.y, sprites.width, sprites.height].map((value) => value * scale);
  return context.drawImage(bitmap, left, top, across, down, x, y, width, height);
}

/** Strongly enlarged pictures keep sharp pixels; others are smoothed. */
const crisp = (size) => size / Math.max(sprites.width, sprites.height) >= 1.5;

/** An element that shows one image with its longer side `size` pixels long. */
function tileSpan(image, size) {
  const scale = size / Math.max(sprites.width, sprites.height);
  const node = isLive ? tilePicture(image, scale) : tileBackground(image, scale);
  node.style.width = `${sprites.width * scale}px`;
  node.style.height = `${sprites.height * scale}px`;
  return node;
}

/** A part of a sheet as background: nothing has to be drawn. */
function tileBackground(image, scale) {
  const tile = tileOf(image);
  const [width, height] = sheetSize(tile.sheet);
  const span = make("span", { class: "tile", "aria-hidden": "true" });
  span.style.backgroundImage = `var(--sheet-${tile.sheet})`;
  span.style.backgroundSize = `${width * scale}px ${height * scale}px`;
  span.style.backgroundPosition = `${-tile.x * scale}px ${-tile.y * scale}px`;
  if (crisp(scale * Math.max(sprites.width, sprites.height))) span.style.imageRendering = "pixelated";
  return span;
}

/**
 * A small canvas, drawn when the sheet has come, and again when its fine sheet has come. Backgrounds would keep every
 * sheet in memory a second time.
 */
function tilePicture(image, scale) {
  const ratio = scale * (window.devicePixelRatio || 1);
  const canvas = make("canvas", { class: "tile", "aria-hidden": "true" });
  const draw = () => {
    const fine = fineFor(image, ratio);
    const density = Math.min(fine ? fineFactor : 1, ratio);
    canvas.width = Math.max(1, Math.round(sprites.width * density));
    canvas.height = Math.max(1, Math.round(sprites.height * density));
    const isCrisp = !fine && crisp(scale * Math.max(sprites.width, sprites.height));
    canvas.style.imageRendering = isCrisp ? "pixelated" : "";
    drawTile(canvas.getContext("2d"), image, 0, 0, canvas.width, canvas.height);
  };
  const drawAgain = () => canvas.isConnected && draw();
  const number = tileOf(image).sheet;
  if (!sheets[number].kept) sheets[number].waiting.push(drawAgain);
  draw();
  whenFine(image, ratio, drawAgain);
  return canvas;
}

/** A canvas with the image at its own resolution. Its sheet must be there. */
function tileCanvas(image) {
  const canvas = make("canvas", { width: sprites.width, height: sprites.height, "aria-hidden": "true" });
  drawSmall(canvas.getContext("2d", { willReadFrequently: true }), image, 0, 0, sprites.width, sprites.height);
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
