// Pointer, wheel and keyboard on the map.

const pointers = new Map();
let dragMode = "pan";
let pressed = null;

function pointerPosition(event) {
  const box = map.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function startMapInput() {
  const canvas = map.canvas;
  canvas.addEventListener("pointerdown", pointerDown);
  canvas.addEventListener("pointermove", pointerMove);
  canvas.addEventListener("pointerup", pointerUp);
  canvas.addEventListener("pointercancel", pointerCancel);
  canvas.addEventListener("pointerleave", () => showTip(-1));
  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("keydown", mapKey);
  canvas.addEventListener("focus", scheduleMap);
  canvas.addEventListener("blur", scheduleMap);
  canvas.addEventListener("dblclick", (event) => moveView(() => zoomAt(2, ...pointerPosition(event))));
  const middle = (factor) => () => moveView(() => zoomAt(factor, camera.width / 2, camera.height / 2));
  find("#zoom-in").addEventListener("click", () => moveView(() => zoomToImages(1.5)));
  find("#zoom-out").addEventListener("click", middle(1 / 1.5));
  find("#zoom-fit").addEventListener("click", () => moveView(resetCamera));
  startDragModes();
}

/** Change the view, then draw the map again. */
function moveView(action) {
  action();
  showTip(-1);
  scheduleMap();
}

function startDragModes() {
  const modes = [
    ["pan", "Move", "Drag to move the map"],
    ["box", "Box", "Drag a box around images to select them"],
    ["lasso", "Lasso", "Draw a line around images to select them"],
  ];
  const group = find("#map-mode");
  const choose = (mode) => {
    dragMode = mode;
    map.canvas.dataset.mode = mode;
    [...group.children].forEach((item) =>
      item.setAttribute("aria-pressed", String(item.dataset.mode === mode)),
    );
  };
  group.append(
    ...modes.map(([mode, label, title]) =>
      button(label, () => choose(mode), { "data-mode": mode, title }),
    ),
  );
  choose("pan");
}

function pointerDown(event) {
  if (event.button !== 0) return;
  map.canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, pointerPosition(event));
  pressed = {
    start: pointerPosition(event),
    travelled: 0,
    add: event.shiftKey || event.ctrlKey || event.metaKey,
    touch: event.pointerType === "touch",
  };
  // A selected image is carried away; anything else moves the map.
  const under = dragMode === "pan" && !pressed.touch && !pressed.add ? imageAt(...pressed.start) : -1;
  pressed.carries = selection.has(under);
  if (pressed.carries) beginDrag(under, event);
  if (dragMode !== "pan") map.outline = [pressed.start];
}

function pointerMove(event) {
  const place = pointerPosition(event);
  const before = pointers.get(event.pointerId);
  if (!before || !pressed) {
    if (event.pointerType !== "touch") showTip(imageAt(...place), place);
    return;
  }
  pressed.travelled += Math.hypot(place[0] - before[0], place[1] - before[1]);
  pointers.set(event.pointerId, place);
  if (pressed.carries) return;
  map.panning = pointers.size < 2 && dragMode === "pan" && !pressed.touch;
  if (pointers.size === 2) pinch(event.pointerId, before, place);
  else if (dragMode === "pan" && !pressed.touch) panBy(place[0] - before[0], place[1] - before[1]);
  else if (dragMode === "lasso") map.outline.push(place);
  else if (dragMode === "box") map.outline = boxOutline(pressed.start, place);
  showTip(-1);
  scheduleMap();
}

const boxOutline = ([x, y], [right, bottom]) => [
  [x, y],
  [right, y],
  [right, bottom],
  [x, bottom],
];

/** Move and zoom the map with two fingers. */
function pinch(id, before, place) {
  const [, other] = [...pointers].find(([key]) => key !== id);
  const apart = (point) => Math.max(1, Math.hypot(point[0] - other[0], point[1] - other[1]));
  panBy((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
  zoomAt(apart(place) / apart(before), (place[0] + other[0]) / 2, (place[1] + other[1]) / 2);
}

function pointerUp(event) {
  if (!pointers.has(event.pointerId)) return;
  const wasPinch = pointers.size > 1;
  pointers.delete(event.pointerId);
  map.panning = false;
  if (!pressed || wasPinch) return;
  const { travelled, add, touch } = pressed;
  // In a selecting mode a tap selects, since a finger has no Ctrl key.
  if (travelled < 6) clickMap(pointerPosition(event), add || (touch && dragMode !== "pan"));
  else if (dragMode !== "pan" && map.outline.length > 2) selectInside(map.outline, add);
  pressed = null;
  map.outline = null;
  scheduleMap();
}

function pointerCancel(event) {
  map.panning = false;
  pointers.delete(event.pointerId);
  pressed = null;
  map.outline = null;
  scheduleMap();
}

function clickMap(place, add) {
  const image = imageAt(...place);
  if (image < 0) return;
  map.cursor = image;
  if (add) toggleSelected(image);
  else emit("open", { image });
}

function selectInside(outline, add) {
  const inside = [];
  for (let image = 0; image < nImages; image++) {
    if (!isDimmed(image) && contains(outline, toScreen(image))) inside.push(image);
  }
  setSelection(add ? [...selection, ...inside] : inside);
}

/** Even-odd rule: a point is inside if a ray from it crosses the outline an odd number of times. */
function contains(outline, [x, y]) {
  let inside = false;
  for (let i = 0, j = outline.length - 1; i < outline.length; j = i++) {
    const [ax, ay] = outline[i],
      [bx, by] = outline[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

function wheel(event) {
  // The wheel scrolls the page as usual, unless the map has the focus.
  if (document.activeElement !== map.canvas && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  moveView(() => zoomAt(Math.exp(-clamp(event.deltaY, -200, 200) / 300), ...pointerPosition(event)));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function mapKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const middle = [camera.width / 2, camera.height / 2];
  const actions = {
    "+": () => zoomToImages(1.4),
    "=": () => zoomToImages(1.4),
    "-": () => zoomAt(1 / 1.4, ...middle),
    0: resetCamera,
    Home: resetCamera,
    Enter: () => map.cursor >= 0 && emit("open", { image: map.cursor }),
    " ": () => map.cursor >= 0 && toggleSelected(map.cursor),
    Escape: () => setSelection([]),
  };
  const arrow = ARROWS[event.key];
  if (!arrow && !actions[event.key]) return;
  event.preventDefault();
  if (arrow && event.shiftKey) panBy(-80 * arrow[0], -80 * arrow[1]);
  else if (arrow) moveCursor(arrow);
  else actions[event.key]();
  scheduleMap();
}

/** Go to the nearest image in the direction of an arrow key. */
function moveCursor([dx, dy]) {
  if (map.cursor < 0) map.cursor = map.opened >= 0 ? map.opened : drawOrder[0];
  else map.cursor = nextInDirection(map.cursor, dx, dy);
  reveal(map.cursor);
  const image = map.cursor;
  announce([nameOf(image), clusterLabel(clusterOf(image)), ...flagsOf(image)].join(", "));
}

/** The image with the smallest distance, where distance across the direction counts twice. */
function nextInDirection(from, dx, dy) {
  const { placed } = positions;
  let best = from,
    least = Infinity;
  for (let image = 0; image < nImages; image++) {
    const x = placed[2 * image] - placed[2 * from],
      y = placed[2 * image + 1] - placed[2 * from + 1];
    const along = x * dx + y * dy,
      across = Math.abs(x * dy) + Math.abs(y * dx);
    if (image === from || isDimmed(image) || along <= 0 || across > 1.5 * along) continue;
    const cost = along + 2 * across;
    if (cost < least) [best, least] = [image, cost];
  }
  return best;
}

/** Show what is known of an image beside the pointer; -1 hides it. */
function showTip(image, place) {
  const tip = find("#map-tip");
  map.canvas.classList.toggle("over-image", image >= 0);
  tip.hidden = image < 0;
  if (image < 0) return;
  const lines = [make("strong", {}, nameOf(image)), clusterLabel(clusterOf(image))];
  if (givenLabels) lines.push(`given label ${givenLabelOf(image)}`);
  lines.push([`confidence ${formatPercent(confidenceOf(image))}`, ...flagsOf(image)].join(", "));
  tip.replaceChildren(
    tileSpan(image, 56),
    make(
      "span",
      { class: "map-tip-text" },
      lines.map((line) => make("span", {}, line)),
    ),
  );
  const left =
    place[0] + 18 + tip.offsetWidth > camera.width ? place[0] - 18 - tip.offsetWidth : place[0] + 18;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${clamp(place[1] + 14, 4, Math.max(4, camera.height - tip.offsetHeight - 4))}px`;
}
