// What the reader changed: names of clusters and merges. The clusters found are never overwritten.

const foundClusters = [...new Set(P.labels)].sort((a, b) => a - b);
const clusterIndex = new Map(foundClusters.map((cluster, index) => [cluster, index]));
const edits = { names: new Map(), mergedInto: new Map(), past: [] };

function currentCluster(found) {
  while (edits.mergedInto.has(found)) found = edits.mergedInto.get(found);
  return found;
}

const clusterOf = (shot) => currentCluster(P.labels[rowOf[shot]]);
const clusterName = (cluster) => edits.names.get(cluster) || `Cluster ${cluster}`;
const clusterLabel = (cluster) => readable(clusterName(cluster));
const liveClusters = () => foundClusters.filter((cluster) => !edits.mergedInto.has(cluster));

function change(action) {
  edits.past.push({ names: new Map(edits.names), mergedInto: new Map(edits.mergedInto) });
  action();
  membersNow = null;
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
  const before = edits.past.pop();
  if (!before) return;
  edits.names = before.names;
  edits.mergedInto = before.mergedInto;
  membersNow = null;
  emit("edited");
  announce("Undone.");
}

/** Members of every live cluster, most typical first: sure before doubtful, outliers last. */
let membersNow = null;
function clusterMembers() {
  if (membersNow) return membersNow;
  const members = new Map(liveClusters().map((cluster) => [cluster, []]));
  for (let shot = 0; shot < nShots; shot++) members.get(clusterOf(shot)).push(shot);
  for (const [cluster, shots] of members) members.set(cluster, typicalFirst(shots));
  membersNow = members;
  return members;
}

function typicalFirst(shots) {
  const median = (axis) => {
    const values = shots.map((shot) => embedding[2 * shot + axis]).sort((a, b) => a - b);
    return values[values.length >> 1];
  };
  const [x, y] = [median(0), median(1)];
  const away = new Map(shots.map((s) => [s, Math.hypot(embedding[2 * s] - x, embedding[2 * s + 1] - y)]));
  return [...shots].sort(
    (a, b) => isOutlier(a) - isOutlier(b) || confidenceOf(b) - confidenceOf(a) || away.get(a) - away.get(b),
  );
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The table of clusters with the reader's changes, one line for each row given (all when left out). */
function tableText(rows) {
  const header = "file,cluster,confidence,outlier,near_duplicate_of,cluster_name,cluster_found";
  const lines = (rows || P.names.map((_, row) => row)).map((row) => {
    const cluster = currentCluster(P.labels[row]);
    const original = duplicateRow.has(row) ? P.names[duplicateRow.get(row)] : "";
    return [
      P.names[row],
      String(cluster),
      String(P.confidence[row]),
      outlierRows.has(row) ? "true" : "false",
      original,
      clusterName(cluster),
      String(P.labels[row]),
    ]
      .map(quoted)
      .join(",");
  });
  return [header, ...lines].join("\r\n") + "\r\n";
}
