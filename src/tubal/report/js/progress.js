// The page while tubal finds the clusters: what it is doing, and how far it is. Then the explorer takes its place.

function showProgress({ stage, done, total, text }) {
  const known = total > 0;
  find("#stage").textContent = safeText(text || stage || "");
  // A stage may count a picture more than once, so a share says more than a count.
  find("#stage-count").textContent = known ? formatPercent(clamp(done / total, 0, 1)) : "";
  const bar = find("#stage-bar");
  bar.classList.toggle("is-open-ended", !known);
  bar.firstElementChild.style.width = known ? `${(100 * clamp(done / total, 0, 1)).toFixed(1)}%` : "30%";
  if (known) bar.setAttribute("aria-valuenow", String(Math.round((100 * done) / total)));
  else bar.removeAttribute("aria-valuenow");
}

/** Nothing goes on: say why instead of what is being done. */
function endProgress(source, text) {
  source.close();
  ["#waiting-lead", "#stage-bar", "#stage-text"].forEach((part) => (find(part).hidden = true));
  showProblem(text);
}

function startProgress() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => (document.documentElement.dataset.theme = dark.matches ? "dark" : "light");
  dark.addEventListener("change", apply);
  apply();
  const source = listenToServer({
    progress: showProgress,
    problem: ({ error }) => endProgress(source, error),
    ready: () => location.reload(),
  });
  let lost = null;
  source.addEventListener("error", () => {
    lost ||= setTimeout(() => endProgress(source, "The server has stopped. Start it again with tubal open."), 4000);
  });
  source.addEventListener("open", () => {
    clearTimeout(lost);
    lost = null;
  });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

startProgress();
