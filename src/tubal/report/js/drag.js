// Dragging images with the mouse: onto the card or the legend entry of a cluster, onto "New cluster" or "Not these".
// One image is dragged, or the whole selection if the image is part of it. Touch and keyboard use the bar instead.

const drag = { images: [], start: null, ghost: null, target: null };

function startDragging() {
  document.addEventListener("pointerdown", (event) => {
    const thumb = event.target.closest(".thumb");
    if (!thumb || event.button !== 0 || event.pointerType === "touch" || event.shiftKey || event.ctrlKey) return;
    beginDrag(Number(thumb.dataset.image), event);
  });
  document.addEventListener("pointermove", moveDrag);
  document.addEventListener("pointerup", endDrag);
  document.addEventListener("pointercancel", cancelDrag);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancelDrag();
  });
  // After a drag the click that follows must not open the image.
  document.addEventListener(
    "click",
    (event) => {
      if (!drag.justEnded) return;
      event.stopPropagation();
      event.preventDefault();
    },
    true,
  );
}

function beginDrag(image, event) {
  drag.images = selection.has(image) ? [...selection] : [image];
  drag.start = [event.clientX, event.clientY];
}

function moveDrag(event) {
  if (!drag.start) return;
  const [x, y] = [event.clientX, event.clientY];
  if (!drag.ghost) {
    if (Math.hypot(x - drag.start[0], y - drag.start[1]) < 7) return;
    showGhost();
  }
  event.preventDefault();
  drag.ghost.style.transform = `translate(${x + 12}px, ${y + 12}px)`;
  setDropTarget(document.elementFromPoint(x, y));
  // Near the upper or lower edge the page scrolls along.
  if (y < 60) scrollBy(0, -14);
  else if (y > innerHeight - 60 && !drag.target) scrollBy(0, 14);
}

function showGhost() {
  const count = drag.images.length;
  drag.ghost = make("div", { class: "ghost", "aria-hidden": "true" }, tileSpan(drag.images[0], 44));
  if (count > 1) drag.ghost.append(make("b", {}, formatInteger(count)));
  document.body.append(drag.ghost);
  document.documentElement.classList.add("is-dragging");
  find("#drop-bar").hidden = false;
}

function setDropTarget(node) {
  const target = node && node.closest("[data-cluster], [data-drop]");
  if (target === drag.target) return;
  if (drag.target) drag.target.classList.remove("is-target");
  drag.target = target;
  if (target) target.classList.add("is-target");
}

function endDrag() {
  const { target, images, ghost } = drag;
  cancelDrag();
  if (!ghost) return;
  drag.justEnded = true;
  setTimeout(() => (drag.justEnded = false), 0);
  if (!target) return;
  const to = target.dataset.drop || Number(target.dataset.cluster);
  const moved = images.filter((image) => clusterOf(image) !== to);
  if (moved.length) moveImages(moved, to === NOT_THESE ? "out" : to);
}

function cancelDrag() {
  if (drag.target) drag.target.classList.remove("is-target");
  if (drag.ghost) drag.ghost.remove();
  Object.assign(drag, { images: [], start: null, ghost: null, target: null });
  document.documentElement.classList.remove("is-dragging");
  find("#drop-bar").hidden = true;
}
