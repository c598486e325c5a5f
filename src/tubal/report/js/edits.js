// Changes on a page that is a file: they are kept in the page and can be downloaded as a table. The state is made
// by repeating all changes from the clusters as found, which are never overwritten.

const foundLabels = Int32Array.from(payload.labels);
const edits = { made: [], undone: [], mergedInto: new Map() };

const HISTORY_TEXT = {
  rename: ({ cluster, name }) => `Cluster ${cluster} named ${name || "nothing"}`,
  merge: ({ from, into }) => `Cluster ${from} merged into cluster ${into}`,
  move: ({ images, to }) => `${formatCount(images.length, "image")} moved to ${to === "out" ? "not these" : to}`,
};

function actLocally(change) {
  if (change.kind === "undo") edits.undone.push(edits.made.pop());
  else if (change.kind === "redo") edits.made.push(edits.undone.pop());
  else {
    edits.made.push({ ...change, time: Date.now() / 1000 });
    edits.undone = [];
  }
  showState(localState());
  return true;
}

/** The state after all changes. Counts are over all images of a cluster, also those that are not in the table. */
function localState() {
  const labels = foundLabels.slice(),
    names = new Map(payload.clusters.filter(({ name }) => name).map(({ label, name }) => [label, name]));
  const counts = new Map(payload.clusters.map((cluster) => [cluster.label, sumsOf(cluster)]));
  edits.mergedInto = new Map();
  for (const change of edits.made) repeat[change.kind](change, { labels, names, counts });
  const clusters = [...counts].filter(([, sums]) => sums.size > 0).map(([label, sums]) => meansOf(label, sums, names));
  return {
    revision: store.revision + 1,
    labels,
    confidence: payload.confidence,
    clusters,
    doubtful: payload.doubtful,
    nDoubtful: payload.clusters.reduce((sum, { doubtful }) => sum + doubtful, 0),
    nClusters: clusters.length,
    history: edits.made.map((change) => ({ text: HISTORY_TEXT[change.kind](change), time: change.time })),
    canUndo: edits.made.length > 0,
    canRedo: edits.undone.length > 0,
  };
}

const sumsOf = ({ size, doubtful, outliers, confidence }) => ({ size, doubtful, outliers, sum: size * confidence });
const meansOf = (label, { size, doubtful, outliers, sum }, names) => ({
  label,
  name: names.get(label) || null,
  size,
  doubtful,
  outliers,
  confidence: sum / size,
});

const repeat = {
  rename({ cluster, name }, { names }) {
    if (name) names.set(cluster, name);
    else names.delete(cluster);
  },
  merge({ from, into }, { labels, counts }) {
    labels.forEach((label, row) => label === from && (labels[row] = into));
    const source = counts.get(from),
      target = counts.get(into);
    for (const key of Object.keys(target)) target[key] += source[key];
    counts.delete(from);
    edits.mergedInto.set(from, into);
  },
  move({ images, to }, { labels, counts }) {
    const label = to === "out" ? NOT_THESE : to === "new" ? Math.max(...counts.keys(), ...foundLabels) + 1 : to;
    if (!counts.has(label)) counts.set(label, { size: 0, doubtful: 0, outliers: 0, sum: 0 });
    for (const row of images) {
      addRow(counts.get(labels[row]), row, -1);
      addRow(counts.get(label), row, 1);
      labels[row] = label;
    }
  },
};

function addRow(sums, row, sign) {
  sums.size += sign;
  sums.sum += sign * payload.confidence[row];
  if (outlierRows.has(row)) sums.outliers += sign;
  if (foundDoubtful.has(row)) sums.doubtful += sign;
}
const foundDoubtful = new Set(payload.doubtful);

/** The cluster to which a cluster as found belongs after merges. */
function currentCluster(found) {
  while (edits.mergedInto.has(found)) found = edits.mergedInto.get(found);
  return found;
}

/** A spreadsheet must not take a name for a formula. tubal removes the apostrophe when it reads the table. */
const tableCell = (text) => (/^[=+\-@\t\r\n']/.test(text) ? `'${text}` : text);
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The table as CSV text with the reader's changes: the given rows, or all of them. */
function tableText(rows) {
  const header = "file,cluster,confidence,outlier,near_duplicate_of,cluster_name,cluster_found";
  const lines = (rows || payload.names.map((_, row) => row)).map((row) => {
    const cluster = store.labels[row];
    const original = duplicateRow.has(row) ? payload.names[duplicateRow.get(row)] : "";
    return [
      payload.names[row],
      String(cluster),
      String(store.confidence[row]),
      outlierRows.has(row) ? "true" : "false",
      original,
      clusterName(cluster),
      String(foundLabels[row]),
    ]
      .map((text) => quoted(tableCell(text)))
      .join(",");
  });
  return [header, ...lines].join("\r\n") + "\r\n";
}
