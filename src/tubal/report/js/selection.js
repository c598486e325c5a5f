// Images selected with a box, a lasso, the space bar or a cell of the confusion matrix.

const selection = new Set();
const SELECTION_SHOWN = 120;

function setSelection(shots, title) {
  selection.clear();
  shots.forEach((shot) => selection.add(shot));
  showSelection(title);
  scheduleMap();
}

function toggleSelected(shot) {
  if (!selection.delete(shot)) selection.add(shot);
  announce(
    `${nameOf(shot)} ${selection.has(shot) ? "selected" : "no longer selected"}, ${selection.size} in all.`,
  );
  showSelection();
  scheduleMap();
}

function showSelection(title) {
  const box = find("#selection");
  box.hidden = selection.size === 0;
  box.replaceChildren();
  if (!selection.size) return;
  const shots = [...selection];
  const heading = make("h3", {}, title || `${counted(shots.length, "image")} selected`);
  const actions = make(
    "div",
    { class: "actions" },
    button("Download this list", () =>
      download("selection.csv", tableText(shots.map((shot) => rowOf[shot]))),
    ),
    button("Clear", () => setSelection([])),
  );
  box.append(make("div", { class: "selection-head" }, heading, actions), selectionSplit(shots));
  box.append(thumbGrid(shots.slice(0, SELECTION_SHOWN), 44, { "aria-label": "Selected images" }));
  if (shots.length > SELECTION_SHOWN) {
    box.append(make("p", { class: "hint" }, `The first ${SELECTION_SHOWN} are drawn; the list holds all.`));
  }
  if (title) announce(`${title}: ${counted(shots.length, "image")}.`);
}

/** How the selected images fall into clusters, largest first. */
function selectionSplit(shots) {
  const counts = new Map();
  shots.forEach((shot) => counts.set(clusterOf(shot), (counts.get(clusterOf(shot)) || 0) + 1));
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
        make("b", {}, whole(count)),
      ),
    ),
  );
}
