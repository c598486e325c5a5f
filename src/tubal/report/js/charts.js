// Objective and sparsity during learning: curves as SVG, with their numbers in a table.

const FRAME = { width: 440, height: 215, left: 52, right: 14, top: 12, bottom: 32 };

// Fewer iterations than this say nothing about how the learning went.
const LEAST_ITERATIONS = 3;

function drawCharts() {
  const charts = [
    ["Objective", payload.objective, formatNumber],
    ["Share of non-zero coefficients", payload.sparsity, (value) => formatPercent(value, value < 0.1 ? 1 : 0)],
  ].filter(([, values]) => values.some((value) => value !== null));
  if (!charts.length) return;
  find("#learning-section").hidden = false;
  if (payload.nIterations < LEAST_ITERATIONS) {
    find("#learning-lead").textContent =
      `The atoms were learned in only ${formatCount(payload.nIterations, "iteration")}, too few for a curve: ` +
      "rough codes are enough here, because similar images decide the clusters.";
    return;
  }
  find("#charts").append(...charts.map(([title, values, format]) => chart(title, values, format)));
}

/** Round numbers that divide a range into about `count` parts. */
function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const ticks = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step)
    ticks.push(value);
  return ticks;
}

function chart(title, values, format) {
  const points = values.map((value, index) => [index + 1, value]).filter(([, value]) => value !== null);
  const first = format(points[0][1]),
    last = format(points[points.length - 1][1]);
  const svg = makeSvg("svg", {
    viewBox: `0 0 ${FRAME.width} ${FRAME.height}`,
    role: "img",
    "aria-label": `${title}: from ${first} to ${last} in ${formatCount(points.length, "iteration")}`,
    class: "chart",
  });
  const scale = chartScale(points);
  drawAxes(svg, scale, format);
  drawCurve(svg, scale, points, format);
  const scroll = { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, table of numbers` };
  return make(
    "figure",
    { class: "chart-box" },
    make(
      "figcaption",
      {},
      make("h3", {}, title),
      make("span", { class: "quiet-text" }, `${first} → ${last}`),
    ),
    svg,
    make(
      "details",
      {},
      make("summary", {}, "Show the numbers"),
      make("div", scroll, numberTable(title, points, format)),
    ),
  );
}

function numberTable(title, points, format) {
  const head = make("tr", {}, make("th", { scope: "col" }, "Iteration"), make("th", { scope: "col" }, title));
  const rows = points.map(([iteration, value]) =>
    make("tr", {}, make("th", { scope: "row" }, formatInteger(iteration)), make("td", {}, format(value))),
  );
  return make("table", {}, make("thead", {}, head), make("tbody", {}, rows));
}

/** The range of both axes, and the functions that turn values into positions in the drawing. */
function chartScale(points) {
  const numbers = points.map(([, value]) => value);
  let low = Math.min(...numbers),
    high = Math.max(...numbers);
  const margin = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
  const end = Math.max(2, points[points.length - 1][0]);
  const { width, height, left, right, top, bottom } = FRAME;
  const x = (iteration) => left + ((iteration - 1) / (end - 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - top - bottom);
  return { low, high, end, x, y };
}

function drawAxes(svg, { low, high, end, x, y }, format) {
  const { width, height, left, right } = FRAME;
  for (const tick of niceTicks(low, high, 4)) {
    svg.append(
      makeSvg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }),
      makeSvg("text", { x: left - 9, y: y(tick) + 4, "text-anchor": "end" }, format(tick)),
    );
  }
  for (const tick of niceTicks(1, end, 6).filter(Number.isInteger)) {
    svg.append(makeSvg("text", { x: x(tick), y: height - 10, "text-anchor": "middle" }, String(tick)));
  }
}

function drawCurve(svg, { low, x, y }, points, format) {
  const path = points
    .map(([iteration, value], i) => `${i ? "L" : "M"}${x(iteration).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  const [left, right] = [points[0][0], points[points.length - 1][0]].map((end) => x(end).toFixed(1));
  const floor = y(low).toFixed(1);
  svg.append(
    makeSvg("path", { d: `${path}L${right} ${floor}L${left} ${floor}z`, class: "area" }),
    makeSvg("path", { d: path, class: "line" }),
  );
  for (const [iteration, value] of points) {
    const title = makeSvg("title", {}, `iteration ${iteration}: ${format(value)}`);
    svg.append(makeSvg("circle", { cx: x(iteration), cy: y(value), r: 3, class: "dot" }, title));
  }
}
