// Start: draw everything once, then react to the reader's changes.

function drawSummary() {
  const sum = (name) => store.clusters.reduce((total, cluster) => total + cluster[name], 0);
  const nClusters = currentClusters().filter((cluster) => cluster !== NOT_THESE || !isLive).length;
  const parts = [formatCount(payload.nTotal, "image"), formatCount(nClusters, "cluster")];
  if (sum("doubtful")) parts.push(`${formatInteger(sum("doubtful"))} doubtful`);
  if (sum("outliers")) parts.push(formatCount(sum("outliers"), "outlier"));
  if (payload.nDuplicates) parts.push(formatCount(payload.nDuplicates, "near-duplicate"));
  find("#title").textContent = safeText(payload.title);
  document.title = safeText(payload.title);
  find("#summary").replaceChildren(...parts.map((part) => make("span", {}, part)));
  if (isSample) drawSampleNotice();
}

function drawSampleNotice() {
  const notice = find("#sampled");
  notice.hidden = false;
  const listed = payload.names.length >= payload.nTotal ? "all images" : "only the images shown on this page";
  notice.textContent = [
    `This page shows ${formatInteger(nImages)} of ${formatInteger(payload.nTotal)} images:`,
    "a sample of every cluster in proportion to its size.",
    `All counts are for the whole collection. The CSV file lists ${listed}.`,
  ].join(" ");
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    const theme = chosen || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    setColorVariables();
    find("#theme").setAttribute("aria-pressed", String(theme === "dark"));
    scheduleMap();
  };
  find("#theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}

function drawSectionLinks() {
  const links = [
    ["map", "Map"],
    ["clusters", "Clusters"],
    ["duplicates", "Near-duplicates"],
    ["atoms", "Atoms"],
    ["learning", "Learning"],
    ["confusion", "Labels"],
    ["provenance", "About"],
  ];
  const shown = links.filter(([id]) => find(`#${id}-section:not([hidden])`));
  const anchors = shown.map(([id, label]) => make("a", { href: `#${id}-section` }, label));
  find("#sections").append(...anchors);
  const mark = (hash) =>
    anchors.forEach((link) => {
      if (link.hash === hash) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  // The current link is that of the section in the upper part of the window.
  const watch = new IntersectionObserver(
    (entries) =>
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => mark(`#${entry.target.id}`)),
    { rootMargin: "-15% 0px -75% 0px" },
  );
  shown.forEach(([id]) => watch.observe(find(`#${id}-section`)));
  // At the end of the page it is the last one, whose section may be too short to get that far up.
  addEventListener(
    "scroll",
    () => {
      const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 4;
      if (end && scrollY > 0) mark(anchors[anchors.length - 1].hash);
    },
    { passive: true },
  );
}

/** Draw again what a change of the clusters changes; the reader's place and selection stay. */
function drawEdited() {
  rememberColors();
  orderImages();
  drawSummary();
  drawLegend();
  withMotion(drawGalleries);
  drawConfusion();
  if (selection.size) showSelection();
  drawEditState();
  redrawPanel();
  markThumbs();
  scheduleMap();
}

function drawEditState() {
  const count = store.history.length;
  find("#undo").hidden = !store.canUndo && !isLive;
  find("#redo").hidden = !store.canRedo && !isLive;
  find("#undo").disabled = !store.canUndo;
  find("#redo").disabled = !store.canRedo;
  const local = count ? `${formatCount(count, "change")} not downloaded yet` : "";
  find("#edit-state").textContent = isLive ? (count ? "All changes saved" : "") : local;
}

function startEditing() {
  on("edited", drawEdited);
  find("#undo").addEventListener("click", undoEdit);
  find("#redo").addEventListener("click", redoEdit);
  find("#download").addEventListener("click", () => {
    download("labels-edited.csv", tableText());
    if (store.history.length) find("#edit-state").textContent = "Downloaded";
  });
  drawEditState();
}

/** Start the parts that need a server. */
function startLiveParts() {
  document.documentElement.dataset.live = "true";
  startLive();
  startSlider();
  startAsking();
  startHistory();
  startExports();
  startDuplicates();
}

async function start() {
  takeState(isLive ? unpackState(payload.state) : localState());
  startTheme();
  drawSummary();
  await loadSheets();
  orderImages();
  startLegend();
  startMapInput();
  startLayouts();
  startPanel();
  resizeMap();
  drawMap();
  startGallery();
  startSearch();
  startSelecting();
  startKeys();
  drawGalleries();
  drawAtoms();
  drawCharts();
  drawConfusion();
  drawProvenance();
  startEditing();
  if (isLive) startLiveParts();
  drawSectionLinks();
  new ResizeObserver(resizeMap).observe(find("#map-frame"));
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
