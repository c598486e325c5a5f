// One card for each cluster: its name, what can be done with it, and its images.

const TYPICAL_SHOWN = 24;
const UNSURE_SHOWN = 12;
const THUMB = 46;
const opened = new Set();

function drawGalleries() {
  find("#clusters-lead").textContent = [
    "Most typical first. Marked with ? where the choice of cluster is in doubt",
    `(confidence below ${percent(P.doubtfulBelow)}), with ! for outliers.`,
    "Near-duplicates stand together in a frame.",
  ].join(" ");
  const cards = [...clusterMembers()].map(([cluster, shots]) => clusterCard(cluster, shots));
  find("#clusters").replaceChildren(...cards);
}

function clusterCard(cluster, shots) {
  const card = make("article", { class: "card", id: `cluster-${cluster}`, "data-cluster": cluster });
  card.append(cardHead(cluster, shots), cardFacts(cluster, shots), cardImages(cluster, shots));
  return card;
}

function cardHead(cluster, shots) {
  const id = `name-${cluster}`;
  const input = make("input", {
    id,
    class: "name",
    type: "text",
    maxlength: 80,
    spellcheck: "false",
    autocomplete: "off",
    "aria-label": `Name of cluster ${cluster}`,
    title: "Type to rename",
  });
  input.value = clusterName(cluster);
  input.addEventListener("change", () => renameCluster(cluster, input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.blur();
    if (event.key === "Escape") input.value = clusterName(cluster);
  });
  const heading = make(
    "h3",
    { class: "visually-hidden" },
    `${clusterLabel(cluster)}, ${counted(shots.length, "image")}`,
  );
  return make(
    "div",
    { class: "card-head" },
    heading,
    swatch(clusterIndex.get(cluster)),
    input,
    mergeMenu(cluster),
  );
}

/** A menu rather than dragging: it works the same by keyboard and touch. */
function mergeMenu(cluster) {
  const others = liveClusters().filter((other) => other !== cluster);
  if (!others.length) return null;
  const menu = make(
    "select",
    { class: "merge", "aria-label": `Merge ${clusterLabel(cluster)} into` },
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

function cardFacts(cluster, shots) {
  const doubtful = shots.filter(isDoubtful).length,
    outliers = shots.filter(isOutlier).length;
  const mean = shots.reduce((sum, shot) => sum + confidenceOf(shot), 0) / Math.max(1, shots.length);
  const facts = [counted(shots.length, "image"), `confidence ${percent(mean)}`];
  if (doubtful) facts.push(`${whole(doubtful)} doubtful`);
  if (outliers) facts.push(counted(outliers, "outlier"));
  const merged = foundClusters.filter((found) => found !== cluster && currentCluster(found) === cluster);
  if (merged.length) facts.push(`with ${merged.map((found) => `cluster ${found}`).join(", ")}`);
  return make("p", { class: "facts" }, facts.join(" · "));
}

/** Near-duplicates of the same cluster stand together, at the place of the most typical of them. */
function groupDuplicates(shots) {
  const root = (shot) => {
    let row = rowOf[shot];
    for (let step = 0; step < 50 && duplicateRow.has(row); step++) row = duplicateRow.get(row);
    return row;
  };
  const groups = new Map();
  for (const shot of shots) {
    const key = root(shot);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(shot);
  }
  return [...groups.values()];
}

function cardImages(cluster, shots) {
  const groups = groupDuplicates(shots);
  const box = make("div", { class: "card-images" });
  const all = opened.has(cluster) || shots.length <= TYPICAL_SHOWN + UNSURE_SHOWN;
  const typical = all ? groups : takeImages(groups, TYPICAL_SHOWN);
  box.append(groupGrid(typical, `Images of ${clusterLabel(cluster)}, most typical first`));
  if (all && shots.length <= TYPICAL_SHOWN + UNSURE_SHOWN) return box;
  if (!all) {
    const rest = groups.slice(typical.length).flat();
    const unsure = rest.filter((shot) => isDoubtful(shot) || isOutlier(shot)).slice(-UNSURE_SHOWN);
    if (unsure.length) {
      box.append(make("p", { class: "label" }, "Least sure"));
      box.append(
        groupGrid(
          unsure.map((shot) => [shot]),
          `Least sure images of ${clusterLabel(cluster)}`,
        ),
      );
    }
  }
  box.append(showAllButton(cluster, shots, all));
  return box;
}

function takeImages(groups, limit) {
  let taken = 0;
  const kept = groups.findIndex((group) => (taken += group.length) >= limit);
  return kept < 0 ? groups : groups.slice(0, kept + 1);
}

function groupGrid(groups, label) {
  const grid = make("div", { class: "thumbs", role: "group", "aria-label": label });
  for (const group of groups) {
    const thumbs = group.map((shot) => thumbButton(shot, THUMB));
    if (group.length === 1) grid.append(thumbs[0]);
    else
      grid.append(
        make(
          "span",
          { class: "duplicates", role: "group", "aria-label": `${group.length} near-duplicates` },
          thumbs,
        ),
      );
  }
  const first = find(".thumb", grid);
  if (first) first.tabIndex = 0;
  rove(grid, ".thumb");
  return grid;
}

function showAllButton(cluster, shots, all) {
  const label = all ? "Show fewer" : `Show all ${whole(shots.length)}`;
  return button(
    label,
    () => {
      if (all) opened.delete(cluster);
      else opened.add(cluster);
      find(`#cluster-${cluster} .card-images`).replaceWith(cardImages(cluster, shots));
      markOpened();
      find(`#cluster-${cluster} .show-all`).focus();
    },
    {
      class: "quiet show-all",
      "aria-expanded": String(all),
      "aria-label": `${label}: ${clusterLabel(cluster)}`,
    },
  );
}

/** Frame the thumbnails of the image in the panel. */
function markOpened() {
  document.querySelectorAll(".thumb.is-open").forEach((node) => node.classList.remove("is-open"));
  document
    .querySelectorAll(`.thumb[data-shot="${map.opened}"]`)
    .forEach((node) => node.classList.add("is-open"));
}
