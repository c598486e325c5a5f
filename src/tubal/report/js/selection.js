// Selected images: with a box or a lasso on the map, with a click and Ctrl or Shift, with the space bar, with a long
// touch, or with a number in the table of labels.

const selection = new Set();
const SELECTION_SHOWN = 120;
const LONG_TOUCH_MS = 450;
let selectionVersion = 0;
let lastThumb = null;

function setSelection(images, title) {
  selection.clear();
  images.forEach((image) => selection.add(image));
  showSelection(title);
  scheduleMap();
}

function toggleSelected(image) {
  if (!selection.delete(image)) selection.add(image);
  announce(
    `${nameOf(image)} ${selection.has(image) ? "selected" : "no longer selected"}, ${selection.size} in total.`,
  );
  showSelection();
  scheduleMap();
}

/** Show the selection; clusters that the reader looks at stay where they are, although the list above them changes. */
function showSelection(title) {
  selectionVersion++;
  markThumbs();
  drawSelectionBar();
  const below = find("#clusters-section"),
    before = below.getBoundingClientRect().top;
  listSelection(title);
  const moved = below.getBoundingClientRect().top - before;
  if (moved && before < innerHeight / 2) scrollBy({ top: moved, behavior: "instant" });
}

/** List the selected images below the map; with a title even if there are none. */
function listSelection(title) {
  const box = find("#selection");
  const images = [...selection];
  box.hidden = !images.length && !title;
  if (box.hidden) return;
  const heading = make("h3", {}, title || `${formatCount(images.length, "image")} selected`);
  const actions = make(
    "div",
    { class: "actions" },
    button("Download this list", () => download("selection.csv", tableText(rowsOf(images)))),
    button("Clear", () => setSelection([])),
  );
  const grid = thumbGrid(images.slice(0, SELECTION_SHOWN), 44, { "aria-label": "Selected images" });
  keepFocus(() =>
    box.replaceChildren(make("div", { class: "selection-head" }, heading, actions), selectionSplit(images), grid),
  );
  if (images.length > SELECTION_SHOWN) {
    const note = `Only the first ${SELECTION_SHOWN} are shown here. The downloaded list contains all.`;
    box.append(make("p", { class: "hint" }, note));
  }
  if (title) announce(`${title}.`);
}

/** How many of the selected images each cluster has, largest first. */
function selectionSplit(images) {
  return make(
    "ul",
    { class: "split" },
    countByCluster(images).map(([cluster, count]) =>
      make(
        "li",
        {},
        swatch(clusterIndex.get(cluster)),
        `${clusterLabel(cluster)} `,
        make("b", {}, formatInteger(count)),
      ),
    ),
  );
}

// --- thumbnails ------------------------------------------------------------------------------------------------

/** The thumbnails from one to another, in the order of the page. */
function thumbsBetween(from, to) {
  const scope = to.closest(".card, .selection, .found") || document;
  const all = [...scope.querySelectorAll(".thumb")];
  const ends = [all.indexOf(from), all.indexOf(to)].sort((a, b) => a - b);
  return ends[0] < 0 ? [to] : all.slice(ends[0], ends[1] + 1);
}

/** Click with Ctrl or Shift, or any touch while images are selected: select instead of opening. Returns true then. */
function clickSelects(event, thumb) {
  const image = Number(thumb.dataset.image);
  const touched = event.pointerType === "touch" && selection.size > 0;
  if (!event.shiftKey && !event.ctrlKey && !event.metaKey && !touched) return false;
  if (event.shiftKey && lastThumb) {
    const images = thumbsBetween(lastThumb, thumb).map((node) => Number(node.dataset.image));
    setSelection([...selection, ...images]);
    announce(`${formatCount(selection.size, "image")} selected.`);
  } else toggleSelected(image);
  lastThumb = thumb;
  return true;
}

function thumbKey(event) {
  const thumb = event.target.closest(".thumb");
  if (!thumb) return;
  const card = thumb.closest(".card");
  if (event.key === " ") toggleSelected(Number(thumb.dataset.image));
  else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey) && card)
    setSelection(clusterMembers().get(Number(card.dataset.cluster)));
  else return;
  lastThumb = thumb;
  event.preventDefault();
}

/** A long touch selects; after it the touch must not open the image as well. */
function startLongTouch() {
  let timer = null,
    held = false;
  const stop = () => clearTimeout(timer);
  document.addEventListener("pointerdown", (event) => {
    const thumb = event.target.closest(".thumb");
    held = false;
    if (!thumb || event.pointerType !== "touch") return;
    timer = setTimeout(() => {
      held = true;
      toggleSelected(Number(thumb.dataset.image));
    }, LONG_TOUCH_MS);
  });
  ["pointerup", "pointercancel", "scroll"].forEach((name) => document.addEventListener(name, stop, true));
  document.addEventListener("contextmenu", (event) => held && event.preventDefault());
  document.addEventListener(
    "click",
    (event) => {
      const thumb = event.target.closest(".thumb");
      if (!thumb || !(held || clickSelects(event, thumb))) {
        if (thumb) lastThumb = thumb;
        return;
      }
      held = false;
      event.stopPropagation();
      event.preventDefault();
    },
    true,
  );
}

function startSelecting() {
  startLongTouch();
  startDragging();
  document.addEventListener("keydown", thumbKey);
  drawSelectionBar();
}
