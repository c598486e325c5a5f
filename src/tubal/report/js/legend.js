// The legend of the map: one button for each cluster or given label, which shows only its images.

function drawLegend() {
  const groups = map.colorBy === "given" ? labelGroups() : clusterGroups();
  const legend = find("#legend");
  const items = groups.filter((group) => group.images.length).map((group) => make("li", {}, legendButton(group)));
  // The focus stays on the same place of the legend.
  const at = [...legend.querySelectorAll("button")].indexOf(document.activeElement);
  legend.replaceChildren(...items);
  if (at >= 0) find("button", items[Math.min(at, items.length - 1)]).focus({ preventScroll: true });
  const first = find("button", legend);
  if (first) first.tabIndex = 0;
}

const clusterGroups = () =>
  [...clusterMembers()].map(([cluster, images]) => ({
    cluster,
    index: clusterIndex.get(cluster),
    name: clusterLabel(cluster),
    size: clusterCounts(cluster).size,
    images,
  }));

const labelGroups = () =>
  payload.trueLabels.names.map((name, label) => ({
    index: label,
    name: safeText(name),
    size: payload.trueLabels.counts.reduce((sum, [other, , count]) => sum + (other === label ? count : 0), 0),
    images: typicalOrder.filter((image) => givenLabels[image] === label),
  }));

function legendButton({ cluster, index, name, size, images }) {
  return button(
    [
      swatch(index),
      tileSpan(images[0], 26),
      make("bdi", { class: "legend-name" }, name),
      make("span", { class: "count" }, formatInteger(size)),
    ],
    (event) => {
      map.highlight = map.highlight === index ? null : index;
      const all = find("#legend").querySelectorAll("button");
      all.forEach((node) =>
        node.setAttribute("aria-pressed", String(node === event.currentTarget && map.highlight !== null)),
      );
      scheduleMap();
    },
    {
      class: "legend-item",
      "data-cluster": cluster,
      "aria-pressed": String(map.highlight === index),
      tabindex: -1,
      title: `Show only ${name}; click again to show all`,
    },
  );
}

function startLegend() {
  const select = find("#color-by");
  const choices = [["cluster", "cluster"], ...(givenLabels ? [["given", "given label"]] : [])];
  select.append(...choices.map(([value, label]) => make("option", { value }, label)));
  find("#color-field").hidden = choices.length < 2;
  select.addEventListener("change", () => {
    map.colorBy = select.value;
    map.highlight = null;
    colorImages();
    drawLegend();
    scheduleMap();
  });
  rovingFocus(find("#legend"), "button");
  drawLegend();
}
