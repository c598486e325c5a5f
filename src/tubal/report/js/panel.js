// The panel of the opened image: its cluster, the neighbours that decide it, and how atoms build it, term by term.

const TERMS_SHOWN = 8;
let playTimer = null,
  shownDetails = null;

function startPanel() {
  on("open", ({ image }) => openImage(image));
  find("#panel-close").addEventListener("click", closePanel);
  find("#panel").addEventListener("keydown", (event) => {
    if (event.key === "Escape") closePanel();
  });
}

function openImage(image) {
  stopPlaying();
  map.opened = image;
  map.cursor = image;
  find("#panel").classList.add("is-open");
  find("#panel-close").hidden = false;
  find("#panel-empty").hidden = true;
  find("#panel-heading").replaceChildren(make("bdi", {}, nameOf(image)));
  const body = find("#panel-full");
  body.hidden = false;
  body.replaceChildren(imageFacts(image));
  if (isLive) fetchDetails(image);
  else showDetails(image, embeddedDetails(image));
  find("#panel").scrollTop = 0;
  reveal(image);
  scheduleMap();
  markThumbs();
  announce(`${nameOf(image)} opened, ${clusterLabel(clusterOf(image))}.`);
}

/** Show the most similar images and the terms. */
function showDetails(image, details) {
  shownDetails = details;
  const hasTerms = atoms && details.terms && details.terms.length;
  find("#panel-full").append(
    neighborSection(image, details.neighbors),
    hasTerms ? buildSection(image, details) : nothingBuilt(details),
  );
}

/** Details of a live page come from the server; the reader may have opened another image meanwhile. */
async function fetchDetails(image) {
  const details = await attempt(() => askServer(`image/${rowOf[image]}`));
  if (!details) return;
  const shown = details.neighbors.map(({ row }) => tileReady(imageOf.get(row)));
  await Promise.all([tileReady(image), ...shown]);
  if (map.opened === image && find("#panel-full").children.length === 1) showDetails(image, details);
}

function closePanel() {
  stopPlaying();
  const was = map.opened;
  map.opened = -1;
  find("#panel").classList.remove("is-open");
  find("#panel-full").hidden = true;
  find("#panel-empty").hidden = false;
  find("#panel-close").hidden = true;
  find("#panel-heading").textContent = "Image";
  scheduleMap();
  markThumbs();
  // Return the focus to where the image was opened.
  const back = find(`.thumb[data-image="${was}"]`);
  if (find("#panel").contains(document.activeElement) || document.activeElement === document.body)
    (back || map.canvas).focus();
}

/** After a change of the clusters: the clusters of the image and of its neighbours. The picture stays. */
function redrawPanel() {
  if (map.opened < 0) return;
  const body = find("#panel-full");
  const facts = imageFacts(map.opened, find(".main-picture", body));
  keepFocus(() => {
    find(".image-facts", body).replaceWith(facts);
    find(".near", body)?.replaceWith(neighborSection(map.opened, shownDetails.neighbors));
  });
}

function imageFacts(image, picture) {
  const cluster = clusterOf(image);
  const facts = make("dl", { class: "facts-grid" });
  const add = (name, ...value) =>
    facts.append(make("div", {}, make("dt", {}, name), make("dd", {}, ...value)));
  const jump = make("a", { href: `#cluster-${cluster}` }, clusterLabel(cluster));
  add("Cluster", swatch(clusterIndex.get(cluster)), jump);
  if (givenLabels) add("Given label", make("bdi", {}, givenLabelOf(image)));
  add("Confidence", formatPercent(confidenceOf(image)), shareBar(confidenceOf(image)));
  if (isOutlier(image)) add("Outlier", "unlike all other images");
  if (isDoubtful(image)) add("Doubtful", "may belong to another cluster");
  const original = duplicateRow.get(rowOf[image]);
  if (original !== undefined) add("Nearly identical to", rowLink(original));
  return make("div", { class: "image-facts" }, picture || mainPicture(image), facts);
}

/** The original from the server or from beside the page, else the small copy, with the path as text. */
function mainPicture(image) {
  const path = pathText(originalOf(image)) || nameOf(image);
  const caption = make("figcaption", {}, make("bdi", {}, path));
  const figure = make("figure", { class: "main-picture" }, tileSpan(image, 112), caption);
  const address = isLive ? `picture/${rowOf[image]}` : originalOf(image);
  if (!address) return figure;
  const original = originalPicture(address, "");
  // The small copy stays until the original is there, and for good if it is not.
  original.addEventListener("load", () => figure.firstChild.replaceWith(original));
  return figure;
}

/** An original picture; tiny ones keep sharp pixels. */
function originalPicture(address, alt) {
  const original = make("img", { alt, decoding: "async" });
  original.addEventListener("load", () => {
    if (Math.max(original.naturalWidth, original.naturalHeight) < 100) original.classList.add("is-tiny");
  });
  original.src = address;
  return original;
}

/** The path in an address, readable; bytes that are no text stay escaped. */
function pathText(address) {
  const path = address.replace(/^\.\//, "");
  try {
    return safeText(decodeURIComponent(path));
  } catch {
    return path;
  }
}

function shareBar(share) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span", {}));
  bar.firstChild.style.width = formatPercent(clamp(share, 0, 1)).replace(" ", "");
  return bar;
}

/** A button that opens the image of a row, or just its name if it is not shown on this page. */
function rowLink(row) {
  const name = make("bdi", {}, safeText(payload.names[row]));
  if (!imageOf.has(row)) return name;
  return button(name, () => emit("open", { image: imageOf.get(row) }), { class: "link" });
}

/** The pixels of an image between 0 and 1, or null if they cannot be compared with a sum of atoms. */
function pixelsOf(image) {
  const sameShape = ["height", "width", "channels"].every((side) => sprites[side] === atoms[side]);
  if (!sprites.exact || !sameShape) return null;
  const pixels = tileCanvas(image).getContext("2d").getImageData(0, 0, sprites.width, sprites.height).data;
  const values = new Float32Array(atoms.size);
  for (let i = 0, p = 0; p < pixels.length; p += 4) {
    for (let c = 0; c < atoms.channels; c++) values[i++] = pixels[p + c] / 255;
  }
  return values;
}

/** A section of the panel: a heading, a sentence about what it shows, and its content. */
function panelSection(kind, label, title, hint, ...content) {
  const heading = make("h3", {}, title);
  return make("section", { class: kind, "aria-label": label }, heading, make("p", { class: "hint" }, hint), ...content);
}

function atomsSection(hint, ...content) {
  return panelSection("build", "How atoms build the image", "Built from shifted atoms", hint, ...content);
}

/** Why there is nothing to show of how atoms build the image. */
function nothingBuilt(details) {
  const reason = !atoms
    ? "This report was made without atoms, so it cannot show what the image is built from."
    : !details.terms
      ? "This report was made without codes, so it cannot show which atoms build the image."
      : "No atom is needed for this image: it is blank, or unlike every atom.";
  return atomsSection(reason);
}

/** How atoms build the image, with a slider that adds their terms one at a time. */
function buildSection(image, details) {
  const rows = details.terms;
  const slider = make("input", {
    type: "range",
    min: 0,
    max: rows.length,
    value: rows.length,
    id: "term-slider",
    "aria-label": "Number of terms",
  });
  const pictures = buildPictures(image, details);
  const list = make("ol", { class: "terms is-short", "aria-label": "Terms, largest first" });
  const update = () => {
    const count = Number(slider.value);
    pictures.draw(count);
    [...list.children].forEach((item, index) => item.classList.toggle("is-off", index >= count));
  };
  const showUpTo = (count) => {
    stopPlaying();
    slider.value = String(count);
    update();
  };
  slider.addEventListener("input", update);
  list.append(...rows.map((term, index) => termItem(term, index, rows, () => showUpTo(index + 1))));
  update();
  const play = button("Play", () => playTerms(slider, play), { id: "play-terms", title: "Add the terms one by one" });
  return atomsSection(
    buildNote(details),
    pictures.node,
    make("div", { class: "player" }, play, slider),
    list,
    showAllTerms(list, rows),
  );
}

function buildNote({ terms: rows, nTerms: total, explained: share }) {
  const whole = total === 1 ? "Its one term explains" : `All ${formatInteger(total)} terms together explain`;
  const explained = share === null ? "" : `${whole} ${formatPercent(share, 1)} of it.`;
  const cut = total > rows.length ? `Shown are the ${rows.length} largest of ${formatInteger(total)} terms.` : "";
  return [
    "The image is approximated by a sum of terms: each is an atom, shifted and multiplied by a coefficient.",
    explained,
    safeText(payload.termsNote),
    cut,
  ]
    .filter(Boolean)
    .join(" ");
}

/** The image, the sum of the first terms and, where they can be compared, their difference. */
function buildPictures(image, { terms: rows, nTerms, norm }) {
  const wanted = pixelsOf(image);
  const top = wanted ? 1 : largestMagnitude(rebuild(rows, rows.length, norm));
  const original = tileCanvas(image);
  original.className = "picture";
  const canvas = make("canvas", { class: "picture", role: "img", id: "rebuilt" });
  const residual = make("canvas", { class: "picture", "aria-hidden": "true" });
  const caption = make("figcaption", {}),
    error = make("figcaption", {});
  const draw = (count) => {
    const built = rebuild(rows, count, norm);
    paint(canvas, built, atoms, top);
    canvas.setAttribute("aria-label", `Sum of ${formatCount(count, "term")}`);
    caption.textContent = termCaption(count, rows.length, nTerms);
    if (wanted) error.textContent = `unexplained ${formatPercent(paintResidual(residual, wanted, built), 1)}`;
  };
  const node = make(
    "div",
    { class: "pictures" },
    make("figure", {}, original, make("figcaption", {}, "image")),
    make("figure", {}, canvas, caption),
    wanted ? make("figure", {}, residual, error) : null,
  );
  return { node, draw };
}

function showAllTerms(list, rows) {
  if (rows.length <= TERMS_SHOWN) return null;
  const more = button(
    `Show all ${rows.length} terms`,
    () => {
      list.classList.remove("is-short");
      more.hidden = true;
      find(".term", list.children[TERMS_SHOWN]).focus();
    },
    { class: "quiet" },
  );
  return make("div", {}, more);
}

/** The page may hold only the largest terms of a code; then its last term is not "all". */
function termCaption(count, carried, total) {
  if (count < carried) return formatCount(count, "term");
  return carried < total ? `${count} of ${formatInteger(total)} terms` : `all ${formatCount(count, "term")}`;
}

/** Paint the difference between the image and the sum; return its share of the image's squared pixels. */
function paintResidual(canvas, wanted, built) {
  const rest = wanted.map((value, i) => value - built[i]);
  const energy = (values) => values.reduce((sum, value) => sum + value * value, 0);
  paint(canvas, rest, atoms, 1);
  return energy(rest) / (energy(wanted) || 1);
}

function termItem(term, index, rows, onchoose) {
  const canvas = make("canvas", { class: "term-canvas", "aria-hidden": "true" });
  const sign = term.coefficient < 0 ? -1 : 1;
  const values = shifted(term.atom, term.dy, term.dx).map((value) => sign * value);
  paint(canvas, values, atoms, largestMagnitude(values));
  const bar = make(
    "span",
    { class: "bar", "aria-hidden": "true" },
    make("span", { class: sign < 0 ? "is-negative" : "" }),
  );
  const share = Math.abs(term.coefficient) / largestMagnitude(rows.map((row) => row.coefficient));
  bar.firstChild.style.width = `${100 * share}%`;
  const text = make(
    "span",
    { class: "term-text" },
    make("span", {}, shiftText(term.dy, term.dx)),
    make("span", { class: "number" }, formatNumber(term.coefficient)),
  );
  const choose = button(
    [canvas, make("span", { class: "visually-hidden" }, `Up to term ${index + 1}: `), text, bar],
    onchoose,
    { class: "term" },
  );
  const link = button(`Atom ${term.atom}`, () => showAtom(term.atom, term.dy, term.dx), {
    class: "link",
    "aria-label": `Show atom ${term.atom} with this shift`,
    title: "Show this atom with this shift",
  });
  return make("li", {}, choose, link);
}

function stopPlaying() {
  clearInterval(playTimer);
  playTimer = null;
  const play = find("#play-terms");
  if (play) play.textContent = "Play";
}

function playTerms(slider, play) {
  if (playTimer) return stopPlaying();
  if (Number(slider.value) >= Number(slider.max)) slider.value = "0";
  play.textContent = "Pause";
  const step = () => {
    slider.value = String(Number(slider.value) + 1);
    slider.dispatchEvent(new Event("input"));
    if (Number(slider.value) >= Number(slider.max)) stopPlaying();
  };
  slider.dispatchEvent(new Event("input"));
  // Nine seconds in all, within limits: few terms are shown longer, many terms do not take minutes.
  playTimer = setInterval(step, clamp(9000 / Number(slider.max), 120, 700));
  return undefined;
}
