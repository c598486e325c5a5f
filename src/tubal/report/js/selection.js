// Images selected with a box, a lasso, the space bar or a number in the table of labels.

const selection = new Set();
const SELECTION_SHOWN = 120;

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

/** Show the selection below the map; with a title even if it is empty. */
function showSelection(title) {
  const box = find("#selection");
  const images = [...selection];
  box.hidden = !images.length && !title;
  if (box.hidden) return;
  const heading = make("h3", {}, title || `${formatCount(images.length, "image")} selected`);
  const actions = make(
    "div",
    { class: "actions" },
    button("Download this list", () =>
      download("selection.csv", tableText(images.map((image) => rowOf[image]))),
    ),
    button("Clear", () => setSelection([])),
  );
  box.replaceChildren(make("div", { class: "selection-head" }, heading, actions), selectionSplit(images));
  box.append(thumbGrid(images.slice(0, SELECTION_SHOWN), 44, { "aria-label": "Selected images" }));
  if (images.length > SELECTION_SHOWN) {
    const note = `Only the first ${SELECTION_SHOWN} are shown here. The downloaded list contains all.`;
    box.append(make("p", { class: "hint" }, note));
  }
  if (title) announce(`${title}.`);
}

/** How many of the selected images each cluster has, largest first. */
function selectionSplit(images) {
  const counts = new Map();
  images.forEach((image) => counts.set(clusterOf(image), (counts.get(clusterOf(image)) || 0) + 1));
  const ordered = [...counts].sort((a, b) => b[1] - a[1]);
  return make(
    "ul",
    { class: "split" },
    ordered.map(([cluster, count]) =>
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
