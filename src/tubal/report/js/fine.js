// Fine sheets: on a live page the server reads pictures again from their files, several times as large as their tiles.
// One sheet is fetched at a time, after all small ones that are wanted, if one of its images is drawn larger than its
// tile. Fine sheets have the grid of the small ones, with every distance multiplied by `fineFactor`.

const fineFactor = (isLive && sprites.fine) || 1;
// A sheet that was drawn in the last moments (in milliseconds) is in use: it is not dropped for another one.
const IN_USE = 3000;
const fineSheets = Array.from({ length: nSheets }, () => ({ bitmap: null, used: 0, wanted: false, waiting: [] }));
const fineQueue = [];
let fetchingFine = false;

/** The fine sheet of an image drawn at `scale` pixels of the screen per pixel of its tile; null until it has come. */
function fineFor(image, scale) {
  const number = tileOf(image).sheet;
  // The small sheet comes first.
  if (fineFactor === 1 || scale < 1.01 || !sheets[number].kept) return null;
  fineSheets[number].used = performance.now();
  if (!fineSheets[number].bitmap) wantFine(number);
  return fineSheets[number].bitmap;
}

/** Draw something again when the fine sheet of an image has come; nothing if it is there, or not needed. */
function whenFine(image, scale, draw) {
  if (fineFactor > 1 && !fineFor(image, scale) && scale >= 1.01) fineSheets[tileOf(image).sheet].waiting.push(draw);
}

/** Draw one image from its fine sheet into a box, at `scale` pixels of the screen per pixel of its small tile. */
function drawFine(context, bitmap, image, box, scale) {
  const tile = tileOf(image);
  const place = [tile.x, tile.y, sprites.width, sprites.height].map((value) => value * fineFactor);
  context.imageSmoothingEnabled = true;
  // Pictures at less than half of their size need the better way, which takes longer.
  context.imageSmoothingQuality = scale < fineFactor / 2 ? "medium" : "low";
  context.drawImage(bitmap, ...place, ...box);
}

/** Ask for a fine sheet; the one asked for last comes first, since it is in view. */
function wantFine(number) {
  const sheet = fineSheets[number];
  if (sheet.wanted) return;
  sheet.wanted = true;
  fineQueue.push(number);
  fetchFine();
}

async function fetchFine() {
  if (fetchingFine || fetching || fetchQueue.length || !fineQueue.length) return;
  fetchingFine = true;
  const number = fineQueue.pop(),
    sheet = fineSheets[number];
  try {
    if (!makeRoom()) throw new Error("all fine sheets are in use");
    const answer = await fetch(`fine/${number}`);
    if (!answer.ok) throw new Error(String(answer.status));
    sheet.bitmap = await createImageBitmap(await answer.blob());
    sheet.waiting.splice(0).forEach((draw) => draw());
    emit("sheet", { number });
  } catch {
    // When one of its images is drawn again, it is asked for again.
    setTimeout(() => (sheet.wanted = false), 2000);
  } finally {
    fetchingFine = false;
    fetchFine();
  }
}

/** Drop the sheets that were not drawn for longest until one more fits; false if all of them are in use. */
function makeRoom() {
  const small = nImages * sprites.pitch[0] * sprites.pitch[1];
  const [width, height] = sheetSize(0);
  const most = Math.max(1, Math.floor((BITMAP_BYTES / 4 - small) / (width * height * fineFactor ** 2)));
  const kept = fineSheets.filter((sheet) => sheet.bitmap).sort((a, b) => a.used - b.used);
  while (kept.length >= most) {
    const oldest = kept.shift();
    if (performance.now() - oldest.used < IN_USE) return false;
    oldest.bitmap.close();
    Object.assign(oldest, { bitmap: null, wanted: false });
  }
  return true;
}
