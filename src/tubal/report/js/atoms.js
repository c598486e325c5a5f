// The atoms, each with a slider that shifts it.

const ATOMS_SHOWN = 48;
// From this share on, an image counts as approximately the sum of its terms.
const WELL_EXPLAINED = 0.75;
const atomCards = [];
let shiftTimer = null;

function drawAtoms() {
  if (!atoms) {
    find("#atoms-lead").textContent = "This report was made without atoms, so there are none to show.";
    return;
  }
  const axes = shiftAxes();
  const usage = atomUsage();
  find("#atoms-lead").textContent = atomsLead(axes, usage);
  const order = [...usage.keys()].sort(
    (a, b) => Boolean(usage[b].images) - Boolean(usage[a].images) || usage[b].weight - usage[a].weight,
  );
  atomTools(axes);
  const list = find("#atoms");
  const show = (indices) => list.append(...indices.map((index) => atomCard(index, usage[index], axes)));
  show(order.slice(0, ATOMS_SHOWN));
  const more = find("#atoms-more");
  if (order.length <= ATOMS_SHOWN) return;
  more.hidden = false;
  more.textContent = `Show all ${formatInteger(order.length)}`;
  more.addEventListener("click", () => {
    more.hidden = true;
    show(order.slice(ATOMS_SHOWN));
    find("input", list.children[ATOMS_SHOWN]).focus();
  });
}

/** What atoms are, and how well they explain the images. "Every image" is said only where it holds for every image. */
function atomsLead(axes, usage) {
  const way = axes.down && axes.across ? "in both directions" : axes.down ? "vertically" : "sideways";
  const sentences = ["Atoms are the patterns from which the images are built.", sumSentence(way)];
  sentences.push("What is shifted out on one side comes back in on the other. Use the sliders to shift the atoms.");
  const unused = terms ? usage.filter((atom) => !atom.images).length : 0;
  if (terms) sentences.push("Those used most come first.");
  if (unused) sentences.push(`${formatCount(unused, "atom is", "atoms are")} used by no image${onThisPage()}.`);
  if (atoms.signed) sentences.push("Orange shows negative values.");
  return sentences.join(" ");
}

const onThisPage = () => (isSample ? " on this page" : "");

function sumSentence(way) {
  const number = formatCount(atoms.count, "atom");
  if (!terms) return `There are ${number}; this report does not say which image uses which.`;
  const shares = Array.from({ length: nImages }, (_, image) => explainedOf(image));
  const known = shares.filter((share) => share !== null).sort((a, b) => a - b);
  const always = terms.counts.every((count) => count > 0) && (!known.length || known[0] >= WELL_EXPLAINED);
  const sum = `approximately a weighted sum of a few of these ${number}, each shifted ${way}`;
  const typical = known.length
    ? `; in a typical image the terms explain ${formatPercent(known[known.length >> 1])} of it`
    : "";
  return always ? `Every image is ${sum}${typical}.` : `Most images are ${sum}${typical}; some are explained badly.`;
}

/** For each atom: the number of images shown that use it, and the sum of its coefficients' sizes. */
function atomUsage() {
  const usage = Array.from({ length: atoms.count }, () => ({ images: 0, weight: 0 }));
  if (!terms) return usage;
  for (let image = 0; image < nImages; image++) {
    const seen = new Set();
    for (let t = terms.offsets[image]; t < terms.offsets[image + 1]; t++) {
      usage[terms.atom[t]].weight += Math.abs(terms.coefficient[t]);
      seen.add(terms.atom[t]);
    }
    seen.forEach((atom) => usage[atom].images++);
  }
  return usage;
}

function atomCard(index, usage, axes) {
  const canvas = make("canvas", { class: "atom-canvas", role: "img", "aria-label": `Atom ${index}` });
  const shift = { dy: 0, dx: 0 };
  const top = largestMagnitude(atoms.values[index]);
  const readout = make("span", { class: "readout" });
  const draw = () => {
    paint(canvas, shifted(index, shift.dy, shift.dx), atoms, top);
    readout.textContent = shiftText(shift.dy, shift.dx);
  };
  const sliders = [];
  if (axes.across)
    sliders.push(
      shiftSlider(`Shift atom ${index} across`, atoms.width, (value) => {
        shift.dx = value;
        draw();
      }),
    );
  if (axes.down)
    sliders.push(
      shiftSlider(`Shift atom ${index} down`, atoms.height, (value) => {
        shift.dy = value;
        draw();
      }),
    );
  draw();
  const used = terms ? usageText(usage.images) : "";
  const item = make(
    "li",
    { class: "atom", id: `atom-${index}`, tabindex: -1 },
    canvas,
    make("div", { class: "atom-text" }, make("b", {}, `Atom ${index}`), make("span", {}, used)),
    sliders,
    readout,
  );
  atomCards.push({ index, sliders });
  return item;
}

function usageText(count) {
  if (!count) return `no image${onThisPage()} uses this atom`;
  const share = count / nImages;
  return share < 0.01 ? `in ${formatCount(count, "image")}` : `in ${formatPercent(share)} of images`;
}

function shiftSlider(label, size, onshift) {
  const slider = make("input", {
    type: "range",
    min: 0,
    max: size - 1,
    value: 0,
    step: 1,
    "aria-label": label,
  });
  slider.addEventListener("input", () => {
    onshift(Number(slider.value));
    slider.setAttribute("aria-valuetext", `${slider.value} of ${size} pixels`);
  });
  return slider;
}

/** Shift an atom by a share of its width (or of its height, if it moves only vertically). */
function setShift(card, share) {
  for (const slider of card.sliders.slice(0, 1)) {
    const size = Number(slider.max) + 1;
    const value = String(modulo(Math.round(share * size), size));
    if (slider.value === value) continue;
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
  }
}

function atomTools(axes) {
  const size = axes.across ? atoms.width : atoms.height;
  const all = make("input", { type: "range", min: 0, max: size - 1, value: 0, id: "shift-all" });
  all.addEventListener("input", () => atomCards.forEach((card) => setShift(card, Number(all.value) / size)));
  const play = button("Animate", () => (shiftTimer ? stop() : start()), {
    id: "animate-atoms",
    title: "Shift all atoms continuously",
    "aria-pressed": "false",
  });
  const stop = () => {
    clearInterval(shiftTimer);
    shiftTimer = null;
    play.textContent = "Animate";
    play.setAttribute("aria-pressed", "false");
  };
  const start = () => {
    // The reader asked for this motion; it is slower if the system asks for less motion.
    shiftTimer = setInterval(
      () => {
        all.value = String(modulo(Number(all.value) + 1, size));
        all.dispatchEvent(new Event("input"));
      },
      (reducedMotion() ? 9000 : 2600) / size,
    );
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
  };
  find("#atoms-tools").append(make("label", { class: "field grow" }, "Shift all atoms ", all), play);
}

/** Scroll to an atom and shift it as given; the terms of an image link here. */
function showAtom(index, dy, dx) {
  const more = find("#atoms-more");
  if (!find(`#atom-${index}`) && !more.hidden) more.click();
  const card = atomCards.find((other) => other.index === index);
  const axes = shiftAxes();
  const values = [axes.across && modulo(dx, atoms.width), axes.down && modulo(dy, atoms.height)].filter(
    (v) => v !== false,
  );
  card.sliders.forEach((slider, i) => {
    slider.value = String(values[i]);
    slider.dispatchEvent(new Event("input"));
  });
  const node = find(`#atom-${index}`);
  node.scrollIntoView({ block: "center", behavior: reducedMotion() ? "auto" : "smooth" });
  card.sliders[0].focus({ preventScroll: true });
}
