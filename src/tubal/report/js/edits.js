// The reader's changes: names of clusters, and merges. The clusters as found are never overwritten.

const foundClusters = payload.clusters.map(({ label }) => label);
const clusterIndex = new Map(foundClusters.map((cluster, index) => [cluster, index]));
const givenNames = new Map(payload.clusters.filter(({ name }) => name).map(({ label, name }) => [label, name]));
const edits = { names: new Map(), mergedInto: new Map(), history: [] };

/** The cluster to which a cluster as found now belongs. */
function currentCluster(found) {
  while (edits.mergedInto.has(found)) found = edits.mergedInto.get(found);
  return found;
}

const clusterOf = (image) => currentCluster(payload.labels[rowOf[image]]);
const hasName = (cluster) => edits.names.has(cluster) || givenNames.has(cluster);
const clusterName = (cluster) => edits.names.get(cluster) || givenNames.get(cluster) || `Cluster ${cluster}`;
const clusterLabel = (cluster) => safeText(clusterName(cluster));
const currentClusters = () => foundClusters.filter((cluster) => !edits.mergedInto.has(cluster));

function change(action) {
  edits.history.push({ names: new Map(edits.names), mergedInto: new Map(edits.mergedInto) });
  action();
  memberCache = null;
  emit("edited");
}

function renameCluster(cluster, text) {
  const name = text.trim();
  if (name === clusterName(cluster)) return;
  change(() => (name ? edits.names.set(cluster, name) : edits.names.delete(cluster)));
  announce(`Renamed to ${clusterLabel(cluster)}.`);
}

function mergeClusters(from, into) {
  const text = `${clusterLabel(from)} merged into ${clusterLabel(into)}.`;
  change(() => edits.mergedInto.set(from, into));
  announce(text);
}

function undoEdit() {
  const before = edits.history.pop();
  if (!before) return;
  edits.names = before.names;
  edits.mergedInto = before.mergedInto;
  memberCache = null;
  emit("edited");
  announce("Undone.");
}

/** The images of every cluster, most typical first. */
let memberCache = null;
function clusterMembers() {
  if (memberCache) return memberCache;
  memberCache = new Map(currentClusters().map((cluster) => [cluster, []]));
  for (const image of typicalOrder) memberCache.get(clusterOf(image)).push(image);
  return memberCache;
}

/** Counts over all images of a cluster, whether they are shown on this page or not. */
function clusterCounts(cluster) {
  const parts = payload.clusters.filter(({ label }) => currentCluster(label) === cluster);
  const sum = (valueOf) => parts.reduce((total, part) => total + valueOf(part), 0);
  const size = sum((part) => part.size);
  return {
    size,
    doubtful: sum((part) => part.doubtful),
    outliers: sum((part) => part.outliers),
    confidence: sum((part) => part.size * part.confidence) / size,
  };
}

/** A spreadsheet must not take a name for a formula. tubal removes the apostrophe when it reads the table. */
const tableCell = (text) => (/^[=+\-@\t\r\n']/.test(text) ? `'${text}` : text);
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The table as CSV text with the reader's changes: the given rows, or all of them. */
function tableText(rows) {
  const header = "file,cluster,confidence,outlier,near_duplicate_of,cluster_name,cluster_found";
  const lines = (rows || payload.names.map((_, row) => row)).map((row) => {
    const cluster = currentCluster(payload.labels[row]);
    const original = duplicateRow.has(row) ? payload.names[duplicateRow.get(row)] : "";
    return [
      payload.names[row],
      String(cluster),
      String(payload.confidence[row]),
      outlierRows.has(row) ? "true" : "false",
      original,
      clusterName(cluster),
      String(payload.labels[row]),
    ]
      .map((text) => quoted(tableCell(text)))
      .join(",");
  });
  return [header, ...lines].join("\r\n") + "\r\n";
}
