// Search by file name or cluster name. What is found is listed, and only it keeps its colour on the map.

const FOUND_SHOWN = 120;

function startSearch() {
  const field = find("#search");
  let timer = null;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(drawFound, 120);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    field.value = "";
    drawFound();
  });
  on("edited", drawFound);
}

/** Images whose file name, or the name of whose cluster, contains the text. */
function searchImages(text) {
  const wanted = text.toLowerCase();
  const clusters = new Set(currentClusters().filter((cluster) => clusterLabel(cluster).toLowerCase().includes(wanted)));
  const found = [];
  for (let image = 0; image < nImages; image++) {
    if (clusters.has(clusterOf(image)) || nameOf(image).toLowerCase().includes(wanted)) found.push(image);
  }
  return found;
}

function drawFound() {
  const text = find("#search").value.trim(),
    box = find("#found");
  box.hidden = !text;
  if (!text && !map.found) return;
  const images = text ? searchImages(text) : [];
  map.found = text ? new Set(images) : null;
  map.foundKey = text ? `${text} ${store.revision}` : "";
  scheduleMap();
  if (!text) return;
  const title = make("h3", {}, `${formatCount(images.length, "image")} found`);
  const all = button("Select all", () => setSelection(images), { id: "select-found" });
  const grid = thumbGrid(images.slice(0, FOUND_SHOWN), 44, { "aria-label": "Images found" });
  const more = images.length > FOUND_SHOWN ? make("p", { class: "hint" }, `The first ${FOUND_SHOWN} are shown.`) : null;
  const head = make("div", { class: "selection-head" }, title, images.length ? all : null);
  keepFocus(() => box.replaceChildren(...[head, grid, more].filter(Boolean)));
  markThumbs(box);
  announce(`${formatCount(images.length, "image")} found.`);
}
