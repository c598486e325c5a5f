// Clusters compared with given labels. The labels were not used to find the clusters.

function drawConfusion() {
  if (!givenLabels) return;
  find("#confusion-section").hidden = false;
  find("#confusion-lead").textContent =
    "Each row is a given label, each column a cluster, each number a count of images. " +
    "The labels were not used to find the clusters. Click a number to see its images.";
  drawScores();
  const table = confusionTable();
  find("#confusion").replaceChildren(table);
  rovingFocus(table, "button");
  const first = find("button", table);
  if (first) first.tabIndex = 0;
}

function confusionTable() {
  const counts = countCells();
  const columns = orderColumns(counts);
  const most = Math.max(1, ...counts.map((row) => Math.max(...row.values(), 0)));
  const body = payload.trueLabels.names.map((name, label) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("bdi", {}, safeText(name))),
      columns.map((cluster) => cell(label, cluster, counts[label].get(cluster) || 0, most)),
    ),
  );
  return make(
    "table",
    { class: "matrix" },
    make("caption", { class: "visually-hidden" }, "Number of images of each label in each cluster"),
    make("thead", {}, make("tr", {}, make("td", {}), columns.map(columnHead))),
    make("tbody", {}, body),
  );
}

const columnHead = (cluster) =>
  make(
    "th",
    { scope: "col" },
    make(
      "span",
      { class: "column-name" },
      swatch(clusterIndex.get(cluster)),
      make("bdi", {}, clusterLabel(cluster)),
    ),
  );

function drawScores() {
  const box = find("#scores");
  const entries = Object.entries(payload.scores);
  box.replaceChildren(
    ...entries.map(([name, value]) =>
      make("div", {}, make("dt", {}, scoreName(name)), make("dd", {}, scoreText(name, value))),
    ),
  );
  if (entries.length && store.canUndo) {
    box.append(
      make(
        "div",
        { class: "stale" },
        make("dt", {}, "These scores are for the clusters as found,"),
        make("dd", {}, "before your changes."),
      ),
    );
  }
}

const scoreName = (name) => (/^(nmi|ari|ami|acc)$/i.test(name) ? name.toUpperCase() : asWords(name));

/** Scores are shares or percentages; a score whose name ends in "images" is a count. */
function scoreText(name, value) {
  if (/images$/.test(name)) return formatInteger(value);
  return Math.abs(value) <= 1 ? formatPercent(value, 1) : `${value.toFixed(1)} %`;
}

/** For each label, the number of all its images in each cluster, whether shown on this page or not. */
function countCells() {
  const counts = payload.trueLabels.names.map(() => new Map());
  const add = (label, cluster, count) => counts[label].set(cluster, (counts[label].get(cluster) || 0) + count);
  if (!isSample) {
    for (let image = 0; image < nImages; image++) add(givenLabels[image], clusterOf(image), 1);
    return counts;
  }
  for (const [label, found, count] of payload.trueLabels.counts) add(label, currentCluster(found), count);
  // Images that were moved one by one are among those shown.
  for (let image = 0; image < nImages; image++) {
    const merged = currentCluster(foundLabels[rowOf[image]]);
    if (merged === clusterOf(image)) continue;
    add(givenLabels[image], merged, -1);
    add(givenLabels[image], clusterOf(image), 1);
  }
  return counts;
}

/** Order the columns so that large numbers lie on the diagonal: largest first, each takes its row's place. */
function orderColumns(counts) {
  const pairs = counts.flatMap((row, label) =>
    [...row].map(([cluster, count]) => ({ label, cluster, count })),
  );
  pairs.sort((a, b) => b.count - a.count);
  const placeOf = new Map(),
    takenRows = new Set();
  for (const { label, cluster } of pairs) {
    if (takenRows.has(label) || placeOf.has(cluster)) continue;
    placeOf.set(cluster, label);
    takenRows.add(label);
  }
  const place = (cluster) => (placeOf.has(cluster) ? placeOf.get(cluster) : Infinity);
  return currentClusters().sort((a, b) => place(a) - place(b) || a - b);
}

function cell(label, cluster, count, most) {
  if (!count) return make("td", { class: "zero" }, "·");
  const share = Math.sqrt(count / most);
  // No shades in the middle: neither dark nor light digits would have enough contrast there.
  const strength = share > 0.7 ? 80 + 20 * ((share - 0.7) / 0.3) : 10 + 30 * (share / 0.7);
  const title = `Label ${safeText(payload.trueLabels.names[label])} in ${clusterLabel(cluster)}`;
  const node = make(
    "td",
    { class: share > 0.7 ? "strong" : "" },
    button(formatInteger(count), () => selectCell(label, cluster, count, title), {
      tabindex: -1,
      "aria-label": `${title}: ${formatCount(count, "image")}`,
    }),
  );
  node.style.setProperty("--strength", String(Math.round(strength)));
  return node;
}

function selectCell(label, cluster, count, title) {
  const images = [];
  for (let image = 0; image < nImages; image++) {
    if (givenLabels[image] === label && clusterOf(image) === cluster) images.push(image);
  }
  const shown = images.length < count ? `, ${formatInteger(images.length)} of them shown on this page` : "";
  setSelection(images, `${title}: ${formatCount(count, "image")}${shown}`);
  find("#selection").scrollIntoView({ block: "center", behavior: reducedMotion() ? "auto" : "smooth" });
}
