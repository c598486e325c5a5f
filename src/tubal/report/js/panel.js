// One image: what is known of it, how atoms build it, term by term.

const TERMS_SHOWN = 8;
let playing = null;

function startPanel() {
  on("open", ({ shot }) => openImage(shot));
  find("#panel-close").addEventListener("click", closePanel);
  find("#panel").addEventListener("keydown", (event) => {
    if (event.key === "Escape") closePanel();
  });
}

function openImage(shot) {
  stopPlaying();
  map.opened = shot;
  map.cursor = shot;
  find("#panel").classList.add("is-open");
  find("#panel-close").hidden = false;
  find("#panel-empty").hidden = true;
  find("#panel-heading").replaceChildren(make("bdi", {}, nameOf(shot)));
  const body = find("#panel-full");
  body.hidden = false;
  const rows = atoms ? termsOf(shot) : [];
  body.replaceChildren(imageFacts(shot));
  if (rows.length) body.append(buildSection(shot, rows));
  const near = neighborSection(shot);
  if (near) body.append(near);
  find("#panel").scrollTop = 0;
  reveal(shot);
  scheduleMap();
  markOpened();
  announce(`${nameOf(shot)} opened, ${clusterLabel(clusterOf(shot))}.`);
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
  markOpened();
  // Focus returns to where the image was chosen.
  const back = find(`.thumb[data-shot="${was}"]`);
  if (find("#panel").contains(document.activeElement) || document.activeElement === document.body)
    (back || map.canvas).focus();
}

function imageFacts(shot) {
  const cluster = clusterOf(shot);
  const facts = make("dl", { class: "facts-grid" });
  const add = (name, ...value) =>
    facts.append(make("div", {}, make("dt", {}, name), make("dd", {}, ...value)));
  const jump = make("a", { href: `#cluster-${cluster}` }, clusterLabel(cluster));
  add("Cluster", swatch(clusterIndex.get(cluster)), jump);
  if (givenCodes) add("Given label", make("bdi", {}, givenOf(shot)));
  add("Confidence", percent(confidenceOf(shot)), shareBar(confidenceOf(shot)));
  const notes = marksOf(shot).filter((mark) => mark !== "near-duplicate");
  if (notes.length) add("Marked", notes.join(", "));
  const original = duplicateRow.get(rowOf[shot]);
  if (original !== undefined) add("Near-duplicate of", rowLink(original));
  // Where the image is rebuilt below it is drawn there, beside its reconstruction.
  const picture = atoms && termsOf(shot).length ? null : tileSpan(shot, 112);
  return make("div", { class: "image-facts" }, picture, facts);
}

function shareBar(share) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span", {}));
  bar.firstChild.style.width = percent(clamp(share, 0, 1)).replace(" ", "");
  return bar;
}

/** A row of the table as a button if it is shown in this page, else its bare name. */
function rowLink(row) {
  const name = make("bdi", {}, readable(P.names[row]));
  if (!shotOf.has(row)) return name;
  return button(name, () => emit("open", { shot: shotOf.get(row) }), { class: "link" });
}

/** Pixels of the thumbnail between 0 and 1, if they can be compared with a sum of atoms. */
function pixelsOf(shot) {
  const same =
    S.exact && S.height === atoms.height && S.width === atoms.width && S.channels === atoms.channels;
  if (!same) return null;
  const pixels = tileCanvas(shot).getContext("2d").getImageData(0, 0, S.width, S.height).data;
  const values = new Float32Array(atoms.size);
  for (let i = 0, p = 0; p < pixels.length; p += 4) {
    for (let c = 0; c < atoms.channels; c++) values[i++] = pixels[p + c] / 255;
  }
  return values;
}

function buildSection(shot, rows) {
  const wanted = pixelsOf(shot);
  const total = terms.counts[shot];
  const top = wanted ? 1 : largest(rebuild(shot, rows, rows.length));
  const canvas = make("canvas", { class: "picture", role: "img", id: "rebuilt" });
  const left = make("canvas", { class: "picture", "aria-hidden": "true" });
  const caption = make("figcaption", {}),
    error = make("figcaption", {});
  const list = make("ol", { class: "terms is-short", "aria-label": "Terms, largest first" });
  const slider = make("input", {
    type: "range",
    min: 0,
    max: rows.length,
    value: rows.length,
    id: "term-slider",
    "aria-label": "Number of terms",
  });
  const update = () => {
    const count = Number(slider.value);
    const built = rebuild(shot, rows, count);
    paint(canvas, built, atoms, top);
    canvas.setAttribute("aria-label", `Rebuilt from ${counted(count, "term")}`);
    caption.textContent = termCaption(count, rows.length, total);
    if (wanted) error.textContent = `${percent(remainder(left, wanted, built))} left over`;
    [...list.children].forEach((item, index) => item.classList.toggle("is-off", index >= count));
  };
  slider.addEventListener("input", update);
  list.append(
    ...rows.map((term, index) =>
      termItem(term, index, rows, () => {
        stopPlaying();
        slider.value = String(index + 1);
        update();
      }),
    ),
  );
  update();
  const original = tileCanvas(shot);
  original.className = "picture";
  const pictures = make(
    "div",
    { class: "pictures" },
    make("figure", {}, original, make("figcaption", {}, "image")),
    make("figure", {}, canvas, caption),
    wanted ? make("figure", {}, left, error) : null,
  );
  const more =
    rows.length > TERMS_SHOWN
      ? button(
          `Show all ${rows.length} terms`,
          () => {
            list.classList.remove("is-short");
            more.hidden = true;
            find(".term", list.children[TERMS_SHOWN]).focus();
          },
          { class: "quiet" },
        )
      : null;
  const play = button("Play", () => playTerms(slider, play), { id: "play-terms" });
  const cut = total > rows.length ? `The ${rows.length} largest of ${whole(total)} terms.` : "";
  const note = [readable(P.termsNote), cut].filter(Boolean).join(" ");
  return make(
    "section",
    { class: "build", "aria-label": "How it is built" },
    make("h3", {}, "Built from shifted atoms"),
    pictures,
    make("div", { class: "player" }, play, slider),
    note ? make("p", { class: "hint" }, note) : null,
    list,
    more && make("div", {}, more),
  );
}

/** Codes may have more terms than the page carries; then even its last term is not "all". */
function termCaption(count, carried, total) {
  if (count < carried) return counted(count, "term");
  return carried < total ? `${count} of ${whole(total)} terms` : `all ${counted(count, "term")}`;
}

/** Paint what is still missing and return its share of the image's length. */
function remainder(canvas, wanted, built) {
  const rest = wanted.map((value, i) => value - built[i]);
  const length = (values) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  paint(canvas, rest, atoms, 1);
  return length(rest) / (length(wanted) || 1);
}

function termItem(term, index, rows, onchoose) {
  const canvas = make("canvas", { class: "term-canvas", "aria-hidden": "true" });
  const sign = term.coefficient < 0 ? -1 : 1;
  const values = shifted(term.atom, term.dy, term.dx).map((value) => sign * value);
  paint(canvas, values, atoms, largest(values));
  const bar = make(
    "span",
    { class: "bar", "aria-hidden": "true" },
    make("span", { class: sign < 0 ? "is-negative" : "" }),
  );
  bar.firstChild.style.width = `${(100 * Math.abs(term.coefficient)) / largest(rows.map((row) => row.coefficient))}%`;
  const text = make(
    "span",
    { class: "term-text" },
    make("span", {}, `${shiftText(term.dy, term.dx)}`),
    make("span", { class: "number" }, compact(term.coefficient)),
  );
  const choose = button(
    [canvas, make("span", { class: "visually-hidden" }, `Up to term ${index + 1}: `), text, bar],
    onchoose,
    { class: "term" },
  );
  const link = button(`Atom ${term.atom}`, () => showAtom(term.atom, term.dy, term.dx), {
    class: "link",
    "aria-label": `Show atom ${term.atom} at this shift`,
  });
  return make("li", {}, choose, link);
}

function stopPlaying() {
  clearInterval(playing);
  playing = null;
  const play = find("#play-terms");
  if (play) play.textContent = "Play";
}

function playTerms(slider, play) {
  if (playing) return stopPlaying();
  if (Number(slider.value) >= Number(slider.max)) slider.value = "0";
  play.textContent = "Pause";
  const step = () => {
    slider.value = String(Number(slider.value) + 1);
    slider.dispatchEvent(new Event("input"));
    if (Number(slider.value) >= Number(slider.max)) stopPlaying();
  };
  slider.dispatchEvent(new Event("input"));
  // Large terms come first and deserve a longer look; many terms should not take minutes.
  playing = setInterval(step, clamp(9000 / Number(slider.max), 120, 700));
  return undefined;
}
