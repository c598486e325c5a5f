// Splitting one cluster: the two parts are shown first, then the reader decides.

function splitButton(cluster) {
  return button("Split", (event) => previewSplit(cluster, event.currentTarget), {
    class: "quiet split-button",
    "aria-label": `Split ${clusterLabel(cluster)}`,
    title: "Divide this cluster in two",
  });
}

async function previewSplit(cluster, opener) {
  const preview = await attempt(() => askServer(`split?cluster=${cluster}`));
  const card = find(`#cluster-${cluster}`);
  if (!preview || !card) return;
  const close = () => {
    box.remove();
    opener.focus();
  };
  const box = make(
    "section",
    { class: "split-preview", "aria-label": `Two parts of ${clusterLabel(cluster)}` },
    preview.parts.map((rows, part) => splitPart(rows, part)),
    make(
      "div",
      { class: "actions" },
      button("Split like this", () => act({ kind: "split", cluster }), { class: "primary split-now" }),
      button("Cancel", close),
    ),
  );
  find(".split-preview", card)?.remove();
  find(".facts", card).after(box);
  find(".split-now", box).focus();
  announce(`${clusterLabel(cluster)} would become ${preview.parts.map((rows) => rows.length).join(" and ")} images.`);
}

function splitPart(rows, part) {
  const images = rows.map((row) => imageOf.get(row));
  const shown = new Set(images);
  const typical = typicalOrder.filter((image) => shown.has(image)).slice(0, 8);
  const title = make("p", { class: "label" }, `Part ${part + 1}: ${formatCount(rows.length, "image")}`);
  return make("div", {}, title, thumbGrid(Array.from(typical), 36, { "aria-label": `Part ${part + 1}` }));
}
