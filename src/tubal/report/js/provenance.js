// Where the page comes from: settings, versions, seed, hashes, times.

function drawProvenance() {
  const groups = [],
    loose = {};
  for (const [name, value] of Object.entries(P.provenance)) {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) groups.push([name, value]);
    else loose[name] = value;
  }
  if (Object.keys(loose).length) groups.unshift(["run", loose]);
  const box = find("#provenance");
  if (!groups.length) box.append(make("p", { class: "quiet-text" }, "Nothing was recorded."));
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
      make("dt", {}, make("bdi", {}, words(key))),
      make("dd", {}, make("bdi", {}, valueText(value))),
    );
  }
  return make("section", {}, make("h3", {}, words(name)), list);
}

const words = (key) => readable(key.replaceAll("_", " "));

function valueText(value) {
  if (value === null) return "none";
  if (typeof value === "number" && !Number.isInteger(value)) return compact(value);
  if (Array.isArray(value) && value.every((item) => typeof item !== "object"))
    return value.map(valueText).join(", ");
  if (typeof value === "object") return readable(JSON.stringify(value).replaceAll(",", ", "));
  return readable(String(value));
}
