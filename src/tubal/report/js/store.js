// What the page knows of the present clusters: the label and confidence of every row, and counts of every cluster.
// A state comes from the local edits of a page in a file, or from the server of a live page; it always has the same
// form. The store keeps what follows from it: the colour of each cluster, its members, and what has just changed.

const NOT_THESE = -1;
const store = {
  revision: -1,
  labels: new Int32Array(0),
  confidence: new Float32Array(0),
  clusters: [],
  doubtful: new Set(),
  nDoubtful: 0,
  names: [],
  history: [],
  canUndo: false,
  canRedo: false,
  candidates: [],
  paletteIndex: new Map(),
  byLabel: new Map(),
  members: null,
};

const clusterOf = (image) => store.labels[rowOf[image]];
const confidenceOf = (image) => store.confidence[rowOf[image]];
const isDoubtful = (image) => store.doubtful.has(rowOf[image]);
const currentClusters = () => store.clusters.map(({ label }) => label);
const clusterCounts = (cluster) => store.byLabel.get(cluster);
const clusterIndex = { get: (cluster) => store.paletteIndex.get(cluster) };

const isNamed = (cluster) => Boolean(clusterCounts(cluster)?.name);
const clusterName = (cluster) =>
  clusterCounts(cluster)?.name || (cluster === NOT_THESE ? "Not these" : `Cluster ${cluster}`);
const clusterLabel = (cluster) => safeText(clusterName(cluster));

/** Take over a state; clusters keep their colours. Returns false if the page has a newer one already. */
function takeState(state) {
  if (state.revision < store.revision) return false;
  const before = store.labels;
  store.revision = state.revision;
  store.labels = state.labels;
  store.confidence = state.confidence;
  store.clusters = state.clusters;
  store.byLabel = new Map(state.clusters.map((cluster) => [cluster.label, cluster]));
  store.doubtful = new Set(state.doubtful);
  store.nDoubtful = state.nDoubtful;
  store.candidates = state.candidates || [];
  store.nClusters = state.k || state.nClusters;
  store.mostClusters = state.mostClusters || 0;
  store.history = state.history;
  store.canUndo = state.canUndo;
  store.canRedo = state.canRedo;
  store.members = null;
  store.names = allNames(state);
  store.paletteIndex = matchColors(before, state);
  return true;
}

/** Names to complete: those of clusters, then those used before. */
function allNames(state) {
  const names = state.clusters.map(({ name }) => name).filter(Boolean);
  return [...new Set([...names, ...(state.names || []), ...store.names])];
}

/** A cluster keeps the colour of the earlier cluster with which it shares most images; others take free colours. */
function matchColors(before, state) {
  const known = store.paletteIndex,
    found = new Map(),
    taken = new Set();
  for (const [from, to] of overlaps(before, state.labels)) {
    const index = known.get(from);
    if (index === undefined || taken.has(index) || found.has(to)) continue;
    found.set(to, index);
    taken.add(index);
  }
  let free = 0;
  for (const { label } of state.clusters) {
    if (found.has(label)) continue;
    while (taken.has(free)) free++;
    taken.add(free);
    found.set(label, free);
  }
  return found;
}

/** Pairs (earlier cluster, cluster) of some row, those with most rows in common first. */
function overlaps(before, labels) {
  if (before.length !== labels.length) return [];
  const counts = new Map(),
    base = 2 ** 24;
  for (let row = 0; row < labels.length; row++) {
    const key = (before[row] + 1) * base + labels[row] + 1;
    counts.set(key, (counts.get(key) || 0) + 1);
  }
  const ordered = [...counts].sort((a, b) => b[1] - a[1]);
  return ordered.map(([key]) => [Math.floor(key / base) - 1, (key % base) - 1]);
}

/** The images of every cluster, most typical first. */
function clusterMembers() {
  if (store.members) return store.members;
  store.members = new Map(currentClusters().map((cluster) => [cluster, []]));
  for (const image of typicalOrder) store.members.get(clusterOf(image))?.push(image);
  return store.members;
}

/** Which present clusters some images belong to, with their number, most first. */
function countByCluster(images) {
  const counts = new Map();
  images.forEach((image) => counts.set(clusterOf(image), (counts.get(clusterOf(image)) || 0) + 1));
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// --- changes: every one is an act, made by the reader's page alone or by the server -----------------------------

let acting = Promise.resolve();

/** Make one change after the other; returns true if it was made. */
function act(change) {
  acting = acting.then(() => (isLive ? actOnServer(change) : actLocally(change)));
  return acting;
}

/** Take over the state after a change and draw the page again. */
function showState(state) {
  if (takeState(state)) emit("edited");
}

const rowsOf = (images) => images.map((image) => rowOf[image]);

async function renameCluster(cluster, text) {
  const name = text.trim();
  if (name === clusterName(cluster)) return;
  if (await act({ kind: "rename", cluster, name })) announce(`Renamed to ${clusterLabel(cluster)}.`);
}

async function mergeClusters(from, into) {
  const text = `${clusterLabel(from)} merged into ${clusterLabel(into)}.`;
  if (await act({ kind: "merge", from, into })) announce(text);
}

/** Move images to a cluster, to "new" or to "out". */
async function moveImages(images, to) {
  const count = formatCount(images.length, "image");
  if (await act({ kind: "move", images: rowsOf(images), to })) {
    const where = to === "new" ? "a new cluster" : to === "out" ? "the images left out" : clusterLabel(to);
    announce(`${count} moved to ${where}.`);
  }
}

const undoEdit = async () => store.canUndo && (await act({ kind: "undo" })) && announce("Undone.");
const redoEdit = async () => store.canRedo && (await act({ kind: "redo" })) && announce("Done again.");
