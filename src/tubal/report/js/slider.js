// The slider over the number of clusters: every step is a cut of the tree, and the pile follows.

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

const chosenK = () => store.candidates[Number(find("#k-slider").value)];

async function chooseClusters() {
  const k = chosenK();
  if (k === store.nClusters) return;
  if (await act({ kind: "clusters", k })) announce(`${formatCount(currentClusters().length, "cluster")} now.`);
  else drawSlider();
}

function showSliderValue() {
  const k = chosenK();
  find("#k-value").textContent = formatInteger(k);
  find("#k-slider").setAttribute("aria-valuetext", formatCount(k, "cluster"));
}

function drawSlider() {
  const { candidates } = store;
  find("#k-field").hidden = candidates.length < 2;
  if (candidates.length < 2) return;
  const nearest = (best, k, place) =>
    Math.abs(k - store.nClusters) < Math.abs(candidates[best] - store.nClusters) ? place : best;
  const slider = find("#k-slider");
  slider.max = String(candidates.length - 1);
  slider.value = String(candidates.reduce(nearest, 0));
  showSliderValue();
}
