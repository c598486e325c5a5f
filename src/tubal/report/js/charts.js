// Convergence and sparsity, drawn as SVG with their numbers in a table below.

function drawCharts() {
  const charts = [
    ["Objective", P.objective, compact],
    ["Share of code entries that are not zero", P.sparsity, (value) => percent(value, value < 0.1 ? 1 : 0)],
  ].filter(([, values]) => values.some((value) => value !== null));
  if (!charts.length) return;
  find("#learning-section").hidden = false;
  find("#charts").append(...charts.map(([title, values, format]) => chart(title, values, format)));
}

/** Round steps that divide a range into about `count` parts. */
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
  const numbers = points.map(([, value]) => value);
  const first = numbers[0],
    last = numbers[numbers.length - 1];
  const summary = `${title}: from ${format(first)} to ${format(last)} in ${counted(points.length, "pass", "passes")}`;
  const frame = { width: 440, height: 215, left: 52, right: 14, top: 12, bottom: 32 };
  const svg = makeSvg("svg", {
    viewBox: `0 0 ${frame.width} ${frame.height}`,
    role: "img",
    "aria-label": summary,
    class: "chart",
  });
  drawLine(svg, frame, points, format);
  const table = make(
    "table",
    {},
    make(
      "thead",
      {},
      make("tr", {}, make("th", { scope: "col" }, "Pass"), make("th", { scope: "col" }, title)),
    ),
    make(
      "tbody",
      {},
      points.map(([pass, value]) =>
        make("tr", {}, make("th", { scope: "row" }, whole(pass)), make("td", {}, format(value))),
      ),
    ),
  );
  return make(
    "figure",
    { class: "chart-box" },
    make(
      "figcaption",
      {},
      make("h3", {}, title),
      make("span", { class: "quiet-text" }, `${format(first)} → ${format(last)}`),
    ),
    svg,
    make(
      "details",
      {},
      make("summary", {}, "Numbers"),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, numbers` }, table),
    ),
  );
}

function drawLine(svg, frame, points, format) {
  const numbers = points.map(([, value]) => value);
  let low = Math.min(...numbers),
    high = Math.max(...numbers);
  const slack = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [low >= 0 ? Math.max(0, low - slack) : low - slack, high + slack];
  const lastPass = Math.max(2, points[points.length - 1][0]);
  const x = (pass) => frame.left + ((pass - 1) / (lastPass - 1)) * (frame.width - frame.left - frame.right);
  const y = (value) =>
    frame.height - frame.bottom - ((value - low) / (high - low)) * (frame.height - frame.top - frame.bottom);
  for (const tick of niceTicks(low, high, 4)) {
    svg.append(
      makeSvg("line", {
        x1: frame.left,
        x2: frame.width - frame.right,
        y1: y(tick),
        y2: y(tick),
        class: "grid",
      }),
    );
    svg.append(makeSvg("text", { x: frame.left - 9, y: y(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  for (const tick of niceTicks(1, lastPass, 6).filter(Number.isInteger)) {
    svg.append(makeSvg("text", { x: x(tick), y: frame.height - 10, "text-anchor": "middle" }, String(tick)));
  }
  const path = points
    .map(([pass, value], i) => `${i ? "L" : "M"}${x(pass).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  const floor = y(low).toFixed(1);
  svg.append(
    makeSvg("path", {
      d: `${path}L${x(points[points.length - 1][0]).toFixed(1)} ${floor}L${x(points[0][0]).toFixed(1)} ${floor}z`,
      class: "area",
    }),
  );
  svg.append(makeSvg("path", { d: path, class: "line" }));
  for (const [pass, value] of points) {
    svg.append(
      makeSvg(
        "circle",
        { cx: x(pass), cy: y(value), r: 3, class: "dot" },
        makeSvg("title", {}, `pass ${pass}: ${format(value)}`),
      ),
    );
  }
}
