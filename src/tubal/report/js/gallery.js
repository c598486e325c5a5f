// One card for each cluster: its name, what can be done with it, and its images.

const TYPICAL_SHOWN = 24;
const UNCERTAIN_SHOWN = 12;
const THUMB = 46;
const expandedClusters = new Set();
const gallery = { sort: "typical", cards: new Map() };

/** Draw the cards; a card that has not changed stays as it is, with its focus and its place. */
function drawGalleries() {
  find("#clusters-lead").textContent = [
    "The most typical images of each cluster come first.",
    "A ? marks an image that may belong to another cluster",
    `(confidence below ${formatPercent(payload.doubtfulBelow)}),`,
    "a ! marks an outlier, which is unlike all other images.",
    "Images in a common frame are nearly identical.",
  ].join(" ");
  const before = gallery.cards;
  gallery.cards = new Map();
  for (const [cluster, images] of orderedClusters()) {
    const key = cardKey(cluster, images);
    const known = before.get(cluster);
    // Images that were drawn before, and those of a new cluster, are drawn at once, so that they can move.
    const atOnce = known ? Boolean(find(".card-images", known.node)) : before.size > 0;
    const same = known && known.key === key;
    if (same) redrawMenu(known.node, cluster);
    gallery.cards.set(cluster, same ? known : { key, node: clusterCard(cluster, images, atOnce) });
  }
  keepFocus(() => find("#clusters").replaceChildren(...[...gallery.cards.values()].map(({ node }) => node)));
  markThumbs();
}

/** The clusters in the order of their cards; images left out come last. */
function orderedClusters() {
  const all = [...clusterMembers()].sort(([a], [b]) => (a === NOT_THESE) - (b === NOT_THESE));
  const doubt = (cluster) => clusterCounts(cluster).doubtful;
  return gallery.sort === "doubt" ? all.sort(([a], [b]) => doubt(b) - doubt(a)) : all;
}

/** What a card shows, as text: it is drawn again only if this changes. */
function cardKey(cluster, images) {
  const { size, doubtful, confidence } = clusterCounts(cluster);
  const marked = images.filter((image) => isDoubtful(image));
  const name = clusterName(cluster);
  return JSON.stringify([clusterIndex.get(cluster), name, size, doubtful, confidence, gallery.sort, images, marked]);
}

/** The menu of a card that stays names all other clusters, which may have changed. */
function redrawMenu(card, cluster) {
  const menu = find(".merge", card),
    again = mergeMenu(cluster);
  if (menu && again && menu.textContent !== again.textContent) keepFocus(() => menu.replaceWith(again));
}

function clusterCard(cluster, images, atOnce) {
  const card = make("article", { class: "card", id: `cluster-${cluster}`, "data-cluster": cluster });
  card.append(cardHead(cluster), cardFacts(cluster, images));
  if (isLive && !atOnce) whenNear(card, () => card.append(cardImages(cluster, images)));
  else card.append(cardImages(cluster, images));
  return card;
}

const waiting = new WeakMap();
const nearby = new IntersectionObserver(
  (entries) => {
    for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
      nearby.unobserve(target);
      waiting.get(target)();
      markThumbs(target);
    }
  },
  { rootMargin: "400px" },
);

/** Do something when an element comes near the window for the first time. */
function whenNear(node, action) {
  waiting.set(node, action);
  nearby.observe(node);
}

function cardHead(cluster) {
  const heading = make(
    "h3",
    { class: "visually-hidden" },
    `${clusterLabel(cluster)}, ${formatCount(clusterCounts(cluster).size, "image")}`,
  );
  const isOut = cluster === NOT_THESE;
  return make(
    "div",
    { class: "card-head" },
    heading,
    swatch(clusterIndex.get(cluster)),
    isOut ? make("span", { class: "name" }, clusterLabel(cluster)) : nameField(cluster),
    isOut ? null : mergeMenu(cluster),
    isLive && !isOut && clusterCounts(cluster).size > 1 ? splitButton(cluster) : null,
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
  input.defaultValue = clusterName(cluster);
  input.addEventListener("change", () => renameCluster(cluster, input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.blur();
    if (event.key === "Escape") input.value = clusterName(cluster);
  });
  return input;
}

/** A menu beside dragging: it works the same with mouse, keyboard and touch. */
function mergeMenu(cluster) {
  const others = currentClusters().filter((other) => other !== cluster && other !== NOT_THESE);
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
  menu.addEventListener("change", async () => {
    if (menu.value === "") return;
    const into = Number(menu.value);
    await mergeClusters(cluster, into);
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
  const merged = [...edits.mergedInto.keys()].filter((found) => currentCluster(found) === cluster);
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

function cardImages(cluster, members) {
  const byDoubt = gallery.sort === "doubt";
  const images = byDoubt ? [...members].sort((a, b) => confidenceOf(a) - confidenceOf(b)) : members;
  const groups = groupDuplicates(images);
  const box = make("div", { class: "card-images" });
  if (!images.length)
    box.append(make("p", { class: "quiet-text" }, "None of its images is part of the sample."));
  const fewImages = images.length <= TYPICAL_SHOWN + UNCERTAIN_SHOWN;
  const showAll = fewImages || expandedClusters.has(cluster);
  const first = showAll ? groups : firstGroups(groups, byDoubt ? TYPICAL_SHOWN + UNCERTAIN_SHOWN : TYPICAL_SHOWN);
  const order = byDoubt ? "least certain first" : "most typical first";
  box.append(groupGrid(first, `Images of ${clusterLabel(cluster)}, ${order}`));
  if (!showAll && !byDoubt) box.append(...uncertainImages(cluster, groups.slice(first.length).flat()));
  if (!fewImages) box.append(showAllButton(cluster, members, showAll));
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
      markThumbs();
      find(`#cluster-${cluster} .show-all`).focus();
    },
    {
      class: "quiet show-all",
      "aria-expanded": String(showsAll),
      "aria-label": `${label}: ${clusterLabel(cluster)}`,
    },
  );
}

/** Frame the thumbnails of the image that is open in the panel, and mark those of selected images. */
function markThumbs(root) {
  (root || document).querySelectorAll(".thumb").forEach((node) => {
    const image = Number(node.dataset.image);
    node.classList.toggle("is-open", image === map.opened);
    node.classList.toggle("is-selected", selection.has(image));
    if (selection.has(image)) node.setAttribute("aria-pressed", "true");
    else node.removeAttribute("aria-pressed");
  });
}

function startGallery() {
  find("#sort").addEventListener("change", (event) => {
    gallery.sort = event.target.value;
    drawGalleries();
  });
}
