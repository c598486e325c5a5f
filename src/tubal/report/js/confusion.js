// Clusters against given labels. Labels are only shown here; no cluster was found with their help.

function drawConfusion() {
  if (!givenCodes) return;
  find("#confusion-section").hidden = false;
  find("#confusion-lead").textContent =
    "Rows are the given labels, columns the clusters. Labels were compared afterwards, never used. " +
    "Choose a number to see its images.";
  drawScores();
  const counts = countCells();
  const columns = orderColumns(counts);
  const most = Math.max(1, ...counts.map((row) => Math.max(...row.values(), 0)));
  const head = make(
    "tr",
    {},
    make("td", {}),
    columns.map((cluster) =>
      make(
        "th",
        { scope: "col" },
        make(
          "span",
          { class: "column-name" },
          swatch(clusterIndex.get(cluster)),
          make("bdi", {}, clusterLabel(cluster)),
        ),
      ),
    ),
  );
  const body = P.trueLabels.names.map((name, code) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("bdi", {}, readable(name))),
      columns.map((cluster) => cell(code, cluster, counts[code].get(cluster) || 0, most)),
    ),
  );
  const table = make(
    "table",
    { class: "matrix" },
    make("caption", { class: "visually-hidden" }, "Number of images of each label in each cluster"),
    make("thead", {}, head),
    make("tbody", {}, body),
  );
  find("#confusion").replaceChildren(table);
  rove(table, "button");
  const first = find("button", table);
  if (first) first.tabIndex = 0;
}

function drawScores() {
  const box = find("#scores");
  const entries = Object.entries(P.scores);
  box.replaceChildren(
    ...entries.map(([name, value]) =>
      make("div", {}, make("dt", {}, scoreName(name)), make("dd", {}, scoreText(name, value))),
    ),
  );
  if (entries.length && edits.mergedInto.size) {
    box.append(
      make(
        "div",
        { class: "stale" },
        make("dt", {}, "Scores are those of the clusters as found,"),
        make("dd", {}, "before merging"),
      ),
    );
  }
}

const scoreName = (name) => (/^(nmi|ari|ami|acc)$/i.test(name) ? name.toUpperCase() : words(name));

/** Scores come as shares or in percent; a number of images is neither. */
function scoreText(name, value) {
  if (/images$/.test(name)) return whole(value);
  return Math.abs(value) <= 1 ? percent(value, 1) : `${value.toFixed(1)} %`;
}

function countCells() {
  const counts = P.trueLabels.names.map(() => new Map());
  for (let shot = 0; shot < nShots; shot++) {
    const row = counts[givenCodes[shot]],
      cluster = clusterOf(shot);
    row.set(cluster, (row.get(cluster) || 0) + 1);
  }
  return counts;
}

/** Give each row in turn the free column that suits it best, so that agreement lies on the diagonal. */
function orderColumns(counts) {
  const pairs = counts.flatMap((row, code) => [...row].map(([cluster, count]) => ({ code, cluster, count })));
  pairs.sort((a, b) => b.count - a.count);
  const placeOf = new Map(),
    takenRows = new Set();
  for (const { code, cluster } of pairs) {
    if (takenRows.has(code) || placeOf.has(cluster)) continue;
    placeOf.set(cluster, code);
    takenRows.add(code);
  }
  const place = (cluster) => (placeOf.has(cluster) ? placeOf.get(cluster) : Infinity);
  return liveClusters().sort((a, b) => place(a) - place(b) || a - b);
}

function cell(code, cluster, count, most) {
  if (!count) return make("td", { class: "zero" }, "·");
  const share = Math.sqrt(count / most);
  // A jump in the middle: every shade must carry its number, light or dark, with enough contrast.
  const strength = share > 0.7 ? 80 + 20 * ((share - 0.7) / 0.3) : 10 + 30 * (share / 0.7);
  const title = `Label ${readable(P.trueLabels.names[code])} in ${clusterLabel(cluster)}`;
  const choose = () => {
    const shots = [];
    for (let shot = 0; shot < nShots; shot++) {
      if (givenCodes[shot] === code && clusterOf(shot) === cluster) shots.push(shot);
    }
    setSelection(shots, `${title}: ${counted(count, "image")}`);
    find("#selection").scrollIntoView({ block: "center", behavior: reducedMotion() ? "auto" : "smooth" });
  };
  const node = make(
    "td",
    { class: share > 0.7 ? "strong" : "" },
    button(whole(count), choose, { tabindex: -1, "aria-label": `${title}: ${counted(count, "image")}` }),
  );
  node.style.setProperty("--strength", String(Math.round(strength)));
  return node;
}
