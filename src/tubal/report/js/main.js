// Start: draw everything once, then follow the reader.

function drawSummary() {
  const parts = [counted(P.nTotal, "image"), counted(liveClusters().length, "cluster")];
  const doubtful = P.confidence.filter(
    (value, row) => value < P.doubtfulBelow && !outlierRows.has(row),
  ).length;
  if (doubtful) parts.push(`${whole(doubtful)} doubtful`);
  if (outlierRows.size) parts.push(counted(outlierRows.size, "outlier"));
  if (duplicateRow.size) parts.push(counted(duplicateRow.size, "near-duplicate"));
  find("#title").textContent = readable(P.title);
  document.title = readable(P.title);
  find("#summary").replaceChildren(...parts.map((part) => make("span", {}, part)));
  if (nShots >= P.nTotal) return;
  const notice = find("#sampled");
  notice.hidden = false;
  const full =
    P.names.length >= P.nTotal ? "The CSV holds all images." : "The CSV holds the images of this page only.";
  const share = "each cluster in proportion to its size and with its most typical image";
  notice.textContent = `This page shows ${whole(nShots)} of ${whole(P.nTotal)} images, ${share}. ${full}`;
}

function drawLegend() {
  const given = map.colorBy === "given";
  const groups = given
    ? P.trueLabels.names.map((name, code) => ({ index: code, name: readable(name), shots: byGiven(code) }))
    : [...clusterMembers()].map(([cluster, shots]) => ({
        index: clusterIndex.get(cluster),
        name: clusterLabel(cluster),
        shots,
      }));
  const legend = find("#legend");
  legend.replaceChildren(
    ...groups.filter((group) => group.shots.length).map((group) => make("li", {}, legendButton(group))),
  );
  rove(legend, "button");
  const first = find("button", legend);
  if (first) first.tabIndex = 0;
}

const byGiven = (code) => typicalFirst([...Array(nShots).keys()].filter((shot) => givenCodes[shot] === code));

function legendButton({ index, name, shots }) {
  const pressed = map.highlight === index;
  return button(
    [
      swatch(index),
      tileSpan(shots[0], 26),
      make("bdi", { class: "legend-name" }, name),
      make("span", { class: "count" }, whole(shots.length)),
    ],
    (event) => {
      map.highlight = map.highlight === index ? null : index;
      const all = find("#legend").querySelectorAll("button");
      all.forEach((node) =>
        node.setAttribute("aria-pressed", String(node === event.currentTarget && map.highlight !== null)),
      );
      scheduleMap();
    },
    { class: "legend-item", "aria-pressed": String(pressed), tabindex: -1, title: `Show only ${name}` },
  );
}

function startColouring() {
  const select = find("#color-by");
  const choices = [["cluster", "cluster"], ...(givenCodes ? [["given", "given label"]] : [])];
  select.append(...choices.map(([value, label]) => make("option", { value }, label)));
  find("#color-field").hidden = choices.length < 2;
  select.addEventListener("change", () => {
    map.colorBy = select.value;
    map.highlight = null;
    drawLegend();
    scheduleMap();
  });
  find("#map-size").addEventListener("input", (event) => {
    map.size = Number(event.target.value);
    scheduleMap();
  });
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    const theme = chosen || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    shareColors();
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
    ["atoms", "Atoms"],
    ["learning", "Learning"],
    ["confusion", "Labels"],
    ["provenance", "Provenance"],
  ];
  const shown = links.filter(([id]) => !find(`#${id}-section`).hidden);
  const anchors = shown.map(([id, label]) => make("a", { href: `#${id}-section` }, label));
  find("#sections").append(...anchors);
  const mark = (hash) =>
    anchors.forEach((link) => {
      if (link.hash === hash) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  // The link of the section in the upper part of the window is the current one.
  const watch = new IntersectionObserver(
    (entries) =>
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => mark(`#${entry.target.id}`)),
    { rootMargin: "-15% 0px -75% 0px" },
  );
  shown.forEach(([id]) => watch.observe(find(`#${id}-section`)));
  // The last section is often too short to reach the upper part.
  addEventListener(
    "scroll",
    () => {
      const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 4;
      if (end && scrollY > 0) mark(anchors[anchors.length - 1].hash);
    },
    { passive: true },
  );
}

function drawEdited() {
  orderClaims();
  drawSummary();
  drawLegend();
  drawGalleries();
  drawConfusion();
  if (selection.size) showSelection();
  const count = edits.past.length;
  find("#undo").hidden = !count;
  find("#edit-state").textContent = count ? `${counted(count, "change")}, not yet downloaded` : "";
  if (map.opened >= 0) find("#panel-full .image-facts").replaceWith(imageFacts(map.opened));
  markOpened();
  scheduleMap();
}

async function start() {
  startTheme();
  drawSummary();
  await loadSheets();
  orderClaims();
  startColouring();
  drawLegend();
  startMapInput();
  startLayouts();
  startPanel();
  resizeMap();
  drawMap();
  drawGalleries();
  drawAtoms();
  drawCharts();
  drawConfusion();
  drawProvenance();
  drawSectionLinks();
  new ResizeObserver(resizeMap).observe(find("#map-frame"));
  on("edited", drawEdited);
  find("#undo").addEventListener("click", undoEdit);
  find("#download").addEventListener("click", () => {
    download("labels-edited.csv", tableText());
    if (edits.past.length) find("#edit-state").textContent = "Downloaded";
  });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
