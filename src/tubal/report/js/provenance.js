// How the report was made: settings, versions, seed, hashes, times.

function drawProvenance() {
  const groups = [],
    ungrouped = {};
  for (const [name, value] of Object.entries(payload.provenance)) {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) groups.push([name, value]);
    else ungrouped[name] = value;
  }
  if (Object.keys(ungrouped).length) groups.unshift(["run", ungrouped]);
  const box = find("#provenance");
  if (isLive) find("#provenance-lead").textContent = "How the clusters were found.";
  if (!groups.length) box.append(make("p", { class: "quiet-text" }, "No settings were recorded."));
  box.append(
    make(
      "div",
      { class: "provenance-groups" },
      groups.map(([name, values]) => provenanceGroup(name, values)),
    ),
  );
}

function provenanceGroup(name, values) {
  const list = make("dl", { class: "pairs" });
  for (const [key, value] of Object.entries(values)) {
    list.append(
      make("dt", {}, make("bdi", {}, asWords(key))),
      make("dd", {}, make("bdi", {}, valueText(value))),
    );
  }
  return make("section", {}, make("h3", {}, asWords(name)), list);
}

const asWords = (key) => safeText(key.replaceAll("_", " "));

function valueText(value) {
  if (value === null) return "none";
  if (typeof value === "number" && !Number.isInteger(value)) return formatNumber(value);
  if (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object"))
    return value.filter((item) => item !== null).map(valueText).join(", ") || "none";
  if (typeof value === "object") return safeText(JSON.stringify(value).replaceAll(",", ", "));
  return safeText(String(value));
}
