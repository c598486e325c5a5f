// "Ask me": one picture at a time. The reader says what it is with a key, a click or a name, and the pile follows.

// More names than this take two columns.
const FEW_NAMES = 4;
const asking = { question: null, skipped: [], busy: false, most: 0, answers: 0, serial: 0 };

function startAsking() {
  find("#ask").hidden = false;
  find("#side").dataset.view = "ask";
  find("#side-tabs").hidden = false;
  find("#tab-ask").addEventListener("click", () => showSide("ask"));
  find("#tab-image").addEventListener("click", () => showSide("image"));
  on("open", () => showSide("image"));
  find("#ask-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = find("#ask-name").value.trim();
    if (name) answer({ name });
  });
  find("#ask-skip").addEventListener("click", skipQuestion);
  find("#ask-undo").addEventListener("click", undoEdit);
  find("#ask-show").addEventListener("click", () => asking.question && emit("open", { image: askedImage() }));
  document.addEventListener("keydown", askKey);
  on("edited", () => {
    drawDoubt();
    fetchQuestion();
  });
  drawDoubt();
  fetchQuestion();
}

/** Which of the two views beside the map is shown; a small screen shows both. */
function showSide(view) {
  find("#side").dataset.view = view;
  find("#tab-ask").setAttribute("aria-pressed", String(view === "ask"));
  find("#tab-image").setAttribute("aria-pressed", String(view === "image"));
}

const askedImage = () => imageOf.get(asking.question.image);

/** Keys 1 to 9 answer, S skips; not while the reader types a text or looks at another view. */
function askKey(event) {
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (!narrow() && find("#side").dataset.view !== "ask") return;
  const choice = asking.question && asking.question.names && asking.question.names[Number(event.key) - 1];
  if (choice && /^[1-9]$/.test(event.key)) answer(choice);
  else if (event.key.toLowerCase() === "s" && find("#ask").contains(event.target)) skipQuestion();
  else return;
  event.preventDefault();
}

async function fetchQuestion() {
  const serial = ++asking.serial;
  const question = await attempt(() => askServer(`question?skip=${asking.skipped.join()}`));
  // A later request has overtaken this one.
  if (!question || serial !== asking.serial) return;
  asking.question = question;
  drawQuestion();
}

/** Say that the picture has a name, or that it belongs to a cluster without one. */
async function answer({ name, cluster }) {
  if (asking.busy || !asking.question || asking.question.image === null) return;
  asking.busy = true;
  const images = [asking.question.image];
  const change = name ? { kind: "name", images, name } : { kind: "move", images, to: cluster };
  const text = `${nameOf(askedImage())}: ${name ? safeText(name) : clusterLabel(cluster)}.`;
  const done = await act(change);
  asking.busy = false;
  if (!done) return;
  asking.answers++;
  drawDoubt();
  find("#ask-name").value = "";
  announce(`${text} ${doubtText()}`);
  // The focus stays in the text field, or goes to the card, where the keys work.
  if (document.activeElement !== find("#ask-name") && find("#side").dataset.view === "ask")
    find("#ask").focus({ preventScroll: true });
}

function skipQuestion() {
  if (!asking.question || asking.question.image === null) return;
  asking.skipped.push(asking.question.image);
  fetchQuestion();
}

function doubtText() {
  const all = formatInteger(nImages);
  if (!store.canUndo) return `None of the ${all} images has a name yet.`;
  if (!store.nDoubtful) return "Every image probably has the right name.";
  return `About ${formatCount(store.nDoubtful, "image")} of ${all} may still have the wrong name.`;
}

/** The bar fills up as the expected number of wrong names falls: before the first answer, that of half the images. */
function drawDoubt() {
  asking.most = Math.max(asking.most, store.nDoubtful, Math.round(nImages / 2));
  const share = asking.most ? 1 - store.nDoubtful / asking.most : 1;
  const bar = find("#doubt-bar");
  bar.firstElementChild.style.width = `${(100 * share).toFixed(1)}%`;
  bar.setAttribute("aria-valuenow", String(asking.most - store.nDoubtful));
  bar.setAttribute("aria-valuemax", String(asking.most));
  bar.setAttribute("aria-valuetext", doubtText());
  find("#doubt-text").textContent = doubtText();
  find("#answer-text").textContent = asking.answers ? formatCount(asking.answers, "answer") : "";
  find("#ask-undo").disabled = !store.canUndo;
  find("#known-names").replaceChildren(...store.names.map((name) => make("option", { value: name })));
}

function drawQuestion() {
  const { image, names, enough } = asking.question;
  const some = image !== null && image !== undefined;
  find("#ask-body").hidden = !some;
  find("#ask-done").hidden = some && !enough;
  find("#ask-done").textContent = some
    ? "You can stop here: more answers would change little."
    : asking.skipped.length
      ? "Only images that you skipped are left."
      : "Nothing is left to ask.";
  map.asked = some ? imageOf.get(image) : -1;
  scheduleMap();
  if (!some) return;
  drawAskedPicture(imageOf.get(image));
  drawLikelyNames(names);
}

/** Clusters without names need an explanation. Many names take two columns, as long as none of them is cut. */
function drawLikelyNames(names) {
  const list = find("#ask-names"),
    anyNamed = names.some(({ name }) => name);
  find("#ask-hint").hidden = anyNamed || !names.length;
  find("#ask-name").placeholder = anyNamed ? "Another name…" : "Its name…";
  list.classList.toggle("is-dense", names.length > FEW_NAMES);
  list.classList.remove("is-single");
  keepFocus(() => list.replaceChildren(...names.map(nameItem)));
  const isCut = (label) => label.scrollWidth > label.clientWidth;
  if (![...list.querySelectorAll(".ask-label")].some(isCut)) return;
  list.classList.remove("is-dense");
  list.classList.add("is-single");
}

/** The small copy at once, then the original. */
function drawAskedPicture(image) {
  const figure = find("#ask-picture");
  if (figure.dataset.image === String(image)) return;
  figure.dataset.image = String(image);
  const original = originalPicture(`picture/${rowOf[image]}`, `Image ${nameOf(image)}`);
  figure.replaceChildren(tileSpan(image, 168));
  original.addEventListener("load", () => {
    if (figure.dataset.image === String(image)) figure.replaceChildren(original);
  });
  find("#ask-file").textContent = nameOf(image);
}

function nameItem(choice, place) {
  const { name, cluster, chance } = choice;
  const known = cluster !== null && cluster !== undefined && store.byLabel.has(cluster);
  const typical = known ? (clusterMembers().get(cluster) || []).filter((image) => image !== askedImage()) : [];
  const label = name ? safeText(name) : clusterLabel(cluster);
  const node = button(
    [
      make("kbd", { "aria-hidden": "true" }, String(place + 1)),
      known ? swatch(clusterIndex.get(cluster)) : null,
      make("bdi", { class: "ask-label" }, label),
      make("span", { class: "ask-examples", "aria-hidden": "true" }, typical.slice(0, 3).map((i) => tileSpan(i, 26))),
      chance >= 0.01 ? make("span", { class: "ask-chance" }, formatPercent(chance)) : null,
    ],
    () => answer(choice),
    { class: "ask-choice", id: `ask-${place + 1}`, "aria-keyshortcuts": String(place + 1) },
  );
  node.style.setProperty("--chance", String(clamp(chance, 0, 1)));
  return make("li", {}, node);
}
