// Thumbnails, cut out of the sprite sheets. A page that is a file holds all sheets; a live page fetches each sheet when
// one of its images is shown for the first time.

const sprites = payload.sprites;
const GUTTER = 1;
const nSheets = isLive ? sprites.nSheets : sprites.sheets.length;
// Sheets as bitmaps for the map. Large bitmaps take much memory, so only the last ones used are kept; a small copy of
// every sheet stays for drawing at small sizes.
const MOST_BITMAPS = 10;
const SMALL_TILE = 32;
const MOST_FETCHES = 4;
const sheets = Array.from({ length: nSheets }, () => ({ blob: null, small: null, large: null, wanted: false, used: 0 }));
const fetchQueue = [];
let fetching = 0,
  sheetClock = 0;

/** Make all sheets of a page in a file ready; a live page starts without any. */
async function loadSheets() {
  if (isLive) return;
  await Promise.all(
    sprites.sheets.map((address, number) => {
      const [head, body] = address.split(",");
      return keepSheet(number, new Blob([bytesOf(body)], { type: head.slice(5, head.indexOf(";")) }));
    }),
  );
}

/** Keep a sheet: as the background of elements on the page, and small enough to stay decoded. */
async function keepSheet(number, blob) {
  const sheet = sheets[number];
  sheet.blob = blob;
  const property = `--sheet-${number}`;
  document.documentElement.style.setProperty(property, `url("${URL.createObjectURL(blob)}")`);
  const scale = Math.min(1, SMALL_TILE / Math.max(sprites.width, sprites.height));
  if (!isLive || scale === 1) sheet.large = await createImageBitmap(blob);
  else {
    const [width, height] = sheetSize(number);
    const size = { resizeWidth: Math.round(width * scale), resizeHeight: Math.round(height * scale) };
    sheet.small = await createImageBitmap(blob, { ...size, resizeQuality: "medium" });
  }
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
  }
}

/** The bitmap to draw from at some size, with its scale; null while there is none. */
function bitmapOf(number, size) {
  const sheet = sheets[number];
  sheet.used = ++sheetClock;
  if (!sheet.blob) wantSheet(number);
  else if (!sheet.large && size > SMALL_TILE && !sheet.enlarging) enlarge(sheet);
  return sheet.large || sheet.small;
}

async function enlarge(sheet) {
  sheet.enlarging = true;
  sheet.large = await createImageBitmap(sheet.blob);
  sheet.enlarging = false;
  const large = sheets.filter((other) => other.large && other.small).sort((a, b) => b.used - a.used);
  for (const old of large.slice(MOST_BITMAPS)) {
    old.large.close();
    old.large = null;
  }
  emit("sheet", {});
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

/** Draw one image; returns false if its sheet has not come yet. */
function drawTile(context, image, x, y, width, height) {
  const tile = tileOf(image);
  const bitmap = bitmapOf(tile.sheet, Math.max(width, height));
  if (!bitmap) return false;
  const scale = bitmap === sheets[tile.sheet].small ? bitmap.width / sheetSize(tile.sheet)[0] : 1;
  context.drawImage(
    bitmap,
    tile.x * scale,
    tile.y * scale,
    sprites.width * scale,
    sprites.height * scale,
    x,
    y,
    width,
    height,
  );
  return true;
}

/** Strongly enlarged pictures keep sharp pixels; others are smoothed. */
const crisp = (size) => size / Math.max(sprites.width, sprites.height) >= 1.5;

/** A span that shows one image with its longer side `size` pixels long. */
function tileSpan(image, size) {
  const tile = tileOf(image);
  const scale = size / Math.max(sprites.width, sprites.height);
  const [width, height] = sheetSize(tile.sheet);
  wantSheet(tile.sheet);
  const span = make("span", { class: "tile", "aria-hidden": "true" });
  span.style.width = `${sprites.width * scale}px`;
  span.style.height = `${sprites.height * scale}px`;
  span.style.backgroundImage = `var(--sheet-${tile.sheet})`;
  span.style.backgroundSize = `${width * scale}px ${height * scale}px`;
  span.style.backgroundPosition = `${-tile.x * scale}px ${-tile.y * scale}px`;
  if (crisp(size)) span.style.imageRendering = "pixelated";
  return span;
}

/** A canvas with the image at its own resolution. Its sheet must be there. */
function tileCanvas(image) {
  const canvas = make("canvas", { width: sprites.width, height: sprites.height, "aria-hidden": "true" });
  drawTile(canvas.getContext("2d", { willReadFrequently: true }), image, 0, 0, sprites.width, sprites.height);
  return canvas;
}

/** Wait until an image can be drawn at its own resolution. */
async function tileReady(image) {
  const sheet = sheets[tileOf(image).sheet];
  wantSheet(tileOf(image).sheet);
  while (!sheet.blob) await new Promise((done) => events.addEventListener("sheet", done, { once: true }));
  if (!sheet.large) await enlarge(sheet);
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
