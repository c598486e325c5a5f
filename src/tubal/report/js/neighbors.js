// The neighbours of an image in the graph, each as it is and brought onto the image.

function neighborSection(shot) {
  const items = [];
  for (let j = 0; j < nNeighbors; j++) {
    const row = neighborRows[shot * nNeighbors + j];
    if (row >= 0) items.push(neighborItem(shot, row, j));
  }
  if (!items.length) return null;
  const lead = alignments ? "As it is, and turned, scaled and moved so that it lies on this image." : null;
  return make(
    "section",
    { class: "near", "aria-label": "Neighbours" },
    make("h3", {}, "Nearest neighbours"),
    lead && make("p", { class: "hint" }, lead),
    make("ul", { class: "neighbors" }, items),
  );
}

function neighborItem(shot, row, j) {
  const place = shot * nNeighbors + j;
  const distance = `distance ${compact(neighborDistances[place])}`;
  if (!shotOf.has(row))
    return make(
      "li",
      { class: "absent" },
      make("bdi", {}, readable(P.names[row])),
      make("span", {}, distance, ", not drawn in this sample"),
    );
  const other = shotOf.get(row);
  const change = alignments && alignments.subarray(4 * place, 4 * place + 4);
  const thumb = thumbButton(other, 56, distance);
  thumb.tabIndex = 0;
  const moved = change && !isIdentity(change) ? alignedCanvas(other, change) : null;
  const cluster = clusterOf(other);
  const text = make(
    "div",
    { class: "neighbor-text" },
    make("bdi", { class: "neighbor-name" }, nameOf(other)),
    make("span", {}, swatch(clusterIndex.get(cluster)), clusterLabel(cluster)),
    make("span", { class: "quiet-text" }, distance),
    change ? make("span", { class: "quiet-text" }, alignmentText(change)) : null,
  );
  return make("li", {}, thumb, moved, text);
}

const isIdentity = ([turn, scale, dy, dx]) => !turn && Math.abs(scale - 1) < 1e-6 && !dy && !dx;

/** Alignments count pixels of the images that were compared, which have the atoms' size. */
const pixelScale = () => (atoms ? S.width / atoms.width : 1);

/** The neighbour moved as the graph moved it: bilinear between pixels, its border continued outwards. */
function alignedCanvas(shot, [turn, scale, dy, dx]) {
  const canvas = tileCanvas(shot);
  canvas.className = "aligned";
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const from = context.getImageData(0, 0, S.width, S.height);
  const to = context.createImageData(S.width, S.height);
  const unit = pixelScale();
  const cos = Math.cos((turn * Math.PI) / 180) / scale,
    sin = Math.sin((turn * Math.PI) / 180) / scale;
  const middleX = (S.width - 1) / 2,
    middleY = (S.height - 1) / 2;
  for (let y = 0; y < S.height; y++) {
    for (let x = 0; x < S.width; x++) {
      const across = x - middleX - dx * unit,
        down = y - middleY - dy * unit;
      const pixel = pixelBetween(
        from,
        cos * across - sin * down + middleX,
        sin * across + cos * down + middleY,
      );
      to.data.set(pixel, 4 * (y * S.width + x));
    }
  }
  context.putImageData(to, 0, 0);
  const size = 56 / Math.max(S.width, S.height);
  canvas.style.width = `${S.width * size}px`;
  canvas.style.height = `${S.height * size}px`;
  return canvas;
}

function pixelBetween({ data, width, height }, x, y) {
  x = clamp(x, 0, width - 1);
  y = clamp(y, 0, height - 1);
  const left = Math.floor(x),
    top = Math.floor(y);
  const right = Math.min(left + 1, width - 1),
    bottom = Math.min(top + 1, height - 1);
  const at = (column, row, channel) => data[4 * (row * width + column) + channel];
  const between = (low, high, share) => low + (high - low) * share;
  return [0, 1, 2]
    .map((channel) =>
      between(
        between(at(left, top, channel), at(right, top, channel), x - left),
        between(at(left, bottom, channel), at(right, bottom, channel), x - left),
        y - top,
      ),
    )
    .concat(255);
}

function alignmentText([turn, scale, dy, dx]) {
  const parts = [];
  const near = (value) => Number(value.toFixed(2));
  if (turn) parts.push(`turned ${near(Math.abs(turn))}° ${turn > 0 ? "left" : "right"}`);
  if (Math.abs(scale - 1) > 1e-6) parts.push(`scaled ×${near(scale)}`);
  if (dx) parts.push(`${near(Math.abs(dx))} px ${dx > 0 ? "right" : "left"}`);
  if (dy) parts.push(`${near(Math.abs(dy))} px ${dy > 0 ? "down" : "up"}`);
  return parts.join(", ") || "lies on it as it is";
}
