// One card for each cluster: its name, what can be done with it, and its images.

const TYPICAL_SHOWN = 24;
const UNCERTAIN_SHOWN = 12;
const THUMB = 46;
const expandedClusters = new Set();

function drawGalleries() {
  find("#clusters-lead").textContent = [
    "The most typical images of each cluster come first.",
    "A ? marks an image that may belong to another cluster",
    `(confidence below ${formatPercent(payload.doubtfulBelow)}),`,
    "a ! marks an outlier, which is unlike all other images.",
    "Images in a common frame are nearly identical.",
  ].join(" ");
  const cards = [...clusterMembers()].map(([cluster, images]) => clusterCard(cluster, images));
  find("#clusters").replaceChildren(...cards);
}

function clusterCard(cluster, images) {
  const card = make("article", { class: "card", id: `cluster-${cluster}`, "data-cluster": cluster });
  card.append(cardHead(cluster), cardFacts(cluster, images), cardImages(cluster, images));
  return card;
}

function cardHead(cluster) {
  const heading = make(
    "h3",
    { class: "visually-hidden" },
    `${clusterLabel(cluster)}, ${formatCount(clusterCounts(cluster).size, "image")}`,
  );
  return make(
    "div",
    { class: "card-head" },
    heading,
    swatch(clusterIndex.get(cluster)),
    nameField(cluster),
    mergeMenu(cluster),
  );
}

function nameField(cluster) {
  const input = make("input", {
    id: `name-${cluster}`,
    class: "name",
    type: "text",
    maxlength: 80,
    spellcheck: "false",
    autocomplete: "off",
    "aria-label": `Name of cluster ${cluster}`,
    title: "Type to rename this cluster",
  });
  input.value = clusterName(cluster);
  input.addEventListener("change", () => renameCluster(cluster, input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.blur();
    if (event.key === "Escape") input.value = clusterName(cluster);
  });
  return input;
}

/** A menu instead of dragging: it works the same with mouse, keyboard and touch. */
function mergeMenu(cluster) {
  const others = currentClusters().filter((other) => other !== cluster);
  if (!others.length) return null;
  const menu = make(
    "select",
    {
      class: "merge",
      "aria-label": `Merge ${clusterLabel(cluster)} into`,
      title: "Add the images of this cluster to another one",
    },
    make("option", { value: "" }, "Merge into…"),
  );
  menu.append(...others.map((other) => make("option", { value: other }, clusterLabel(other))));
  menu.addEventListener("change", () => {
    if (menu.value === "") return;
    const into = Number(menu.value);
    mergeClusters(cluster, into);
    const target = find(`#name-${into}`);
    if (target) target.focus();
  });
  return menu;
}

function cardFacts(cluster, images) {
  const counts = clusterCounts(cluster);
  const facts = [formatCount(counts.size, "image")];
  if (images.length < counts.size) facts.push(`${formatInteger(images.length)} in the sample`);
  facts.push(`mean confidence ${formatPercent(counts.confidence)}`);
  if (counts.doubtful) facts.push(`${formatInteger(counts.doubtful)} doubtful`);
  if (counts.outliers) facts.push(formatCount(counts.outliers, "outlier"));
  const merged = foundClusters.filter((found) => found !== cluster && currentCluster(found) === cluster);
  if (merged.length) facts.push(`includes ${merged.map((found) => `cluster ${found}`).join(", ")}`);
  return make("p", { class: "facts" }, facts.join(" · "));
}

/** Put near-duplicates of the same cluster together, at the place of the most typical of them. */
function groupDuplicates(images) {
  const original = (image) => {
    let row = rowOf[image];
    for (let step = 0; step < 50 && duplicateRow.has(row); step++) row = duplicateRow.get(row);
    return row;
  };
  const groups = new Map();
  for (const image of images) {
    const key = original(image);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(image);
  }
  return [...groups.values()];
}

function cardImages(cluster, images) {
  const groups = groupDuplicates(images);
  const box = make("div", { class: "card-images" });
  if (!images.length)
    box.append(make("p", { class: "quiet-text" }, "None of its images is part of the sample."));
  const fewImages = images.length <= TYPICAL_SHOWN + UNCERTAIN_SHOWN;
  const showAll = fewImages || expandedClusters.has(cluster);
  const typical = showAll ? groups : firstGroups(groups, TYPICAL_SHOWN);
  box.append(groupGrid(typical, `Images of ${clusterLabel(cluster)}, most typical first`));
  if (!showAll) box.append(...uncertainImages(cluster, groups.slice(typical.length).flat()));
  if (!fewImages) box.append(showAllButton(cluster, images, showAll));
  return box;
}

/** As many groups as are needed for `limit` images. */
function firstGroups(groups, limit) {
  let taken = 0;
  const last = groups.findIndex((group) => (taken += group.length) >= limit);
  return last < 0 ? groups : groups.slice(0, last + 1);
}

/** The images with the lowest confidence among those that are marked. */
function uncertainImages(cluster, images) {
  const marked = images.filter((image) => isDoubtful(image) || isOutlier(image));
  const uncertain = marked.sort((a, b) => confidenceOf(a) - confidenceOf(b)).slice(0, UNCERTAIN_SHOWN);
  if (!uncertain.length) return [];
  return [
    make("p", { class: "label" }, "Least certain"),
    groupGrid(
      uncertain.map((image) => [image]),
      `Least certain images of ${clusterLabel(cluster)}`,
    ),
  ];
}

function groupGrid(groups, label) {
  const grid = make("div", { class: "thumbs", role: "group", "aria-label": label });
  for (const group of groups) {
    const thumbs = group.map((image) => thumbButton(image, THUMB));
    if (group.length === 1) grid.append(thumbs[0]);
    else
      grid.append(
        make(
          "span",
          { class: "duplicates", role: "group", "aria-label": `${group.length} nearly identical images` },
          thumbs,
        ),
      );
  }
  const first = find(".thumb", grid);
  if (first) first.tabIndex = 0;
  rovingFocus(grid, ".thumb");
  return grid;
}

function showAllButton(cluster, images, showsAll) {
  const label = showsAll ? "Show fewer" : `Show all ${formatInteger(images.length)}`;
  return button(
    label,
    () => {
      if (showsAll) expandedClusters.delete(cluster);
      else expandedClusters.add(cluster);
      find(`#cluster-${cluster} .card-images`).replaceWith(cardImages(cluster, images));
      markOpened();
      find(`#cluster-${cluster} .show-all`).focus();
    },
    {
      class: "quiet show-all",
      "aria-expanded": String(showsAll),
      "aria-label": `${label}: ${clusterLabel(cluster)}`,
    },
  );
}

/** Frame the thumbnails of the image that is open in the panel. */
function markOpened() {
  document.querySelectorAll(".thumb.is-open").forEach((node) => node.classList.remove("is-open"));
  document
    .querySelectorAll(`.thumb[data-image="${map.opened}"]`)
    .forEach((node) => node.classList.add("is-open"));
}
