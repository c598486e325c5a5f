// The slider over the number of clusters: every step is a cut of the tree, and the pile follows.

// Beyond twice the most plausible number a slider would be too coarse to be of use.
const LEAST_RANGE = 24;

function startSlider() {
  const slider = find("#k-slider");
  let timer = null;
  slider.addEventListener("input", () => {
    showSliderValue();
    clearTimeout(timer);
    timer = setTimeout(chooseClusters, 250);
  });
  on("edited", drawSlider);
  drawSlider();
}

async function chooseClusters() {
  const k = Number(find("#k-slider").value);
  if (k === store.nClusters) return;
  if (await act({ kind: "clusters", k })) announce(`${formatCount(currentClusters().length, "cluster")} now.`);
  else drawSlider();
}

function showSliderValue() {
  const slider = find("#k-slider"),
    k = Number(slider.value);
  find("#k-value").textContent = formatInteger(k);
  slider.setAttribute("aria-valuetext", formatCount(k, "cluster"));
}

/** The marks on the slider are the most plausible numbers. */
function drawSlider() {
  const { candidates, mostClusters, nClusters } = store;
  find("#k-field").hidden = !(mostClusters > 2);
  if (!(mostClusters > 2)) return;
  const slider = find("#k-slider");
  slider.min = "2";
  slider.max = String(Math.min(mostClusters, Math.max(LEAST_RANGE, 2 * Math.max(nClusters, ...candidates))));
  slider.value = String(nClusters);
  find("#k-marks").replaceChildren(...candidates.map((k) => make("option", { value: k })));
  showSliderValue();
}
