// Motion in the galleries: when clusters split or merge, thumbnails fly from their old places to the new ones.

const MOTION_MS = 420;
const MOST_MOVING = 400;

/** Where the thumbnails in view are, by image. */
function thumbPlaces() {
  const places = new Map();
  for (const node of find("#clusters").querySelectorAll(".thumb")) {
    const box = node.getBoundingClientRect();
    if (box.bottom < 0 || box.top > innerHeight || places.size > MOST_MOVING) continue;
    places.set(node.dataset.image, box);
  }
  return places;
}

/** Draw something new and let what moved arrive from where it was. */
function withMotion(draw) {
  if (reducedMotion()) return draw();
  const before = thumbPlaces();
  draw();
  for (const node of find("#clusters").querySelectorAll(".thumb")) {
    const from = before.get(node.dataset.image);
    if (!from) continue;
    const to = node.getBoundingClientRect();
    const dx = from.left - to.left,
      dy = from.top - to.top;
    before.delete(node.dataset.image);
    if (Math.hypot(dx, dy) < 2) continue;
    const start = { transform: `translate(${dx}px, ${dy}px)`, zIndex: 3 };
    node.animate([start, { transform: "none", zIndex: 3 }], { duration: MOTION_MS, easing: "cubic-bezier(.2,.7,.2,1)" });
  }
  return undefined;
}
