// The most similar images, each as it is and aligned with the opened image.

function neighborSection(image, neighbors) {
  const items = neighbors.map(neighborItem);
  const aligned = neighbors.some(({ alignment }) => alignment);
  if (!items.length) items.push(make("li", { class: "absent" }, "No image is similar enough to be a neighbour."));
  const lead = aligned
    ? "They decide the cluster. A second picture shows the neighbour rotated, scaled and moved to match this image."
    : "They decide the cluster.";
  const title = "Most similar images";
  return panelSection("near", title, title, lead, make("ul", { class: "neighbors" }, items));
}

function neighborItem({ row, distance: apart, alignment }) {
  const distance = `distance ${formatNumber(apart)}`;
  if (!imageOf.has(row))
    return make(
      "li",
      { class: "absent" },
      make("bdi", {}, safeText(payload.names[row])),
      make("span", {}, distance, ", not shown on this page"),
    );
  const other = imageOf.get(row);
  const thumb = thumbButton(other, 56, distance);
  thumb.tabIndex = 0;
  const moved = alignment && !isIdentity(alignment) ? alignedCanvas(other, alignment) : null;
  const cluster = clusterOf(other);
  const text = make(
    "div",
    { class: "neighbor-text" },
    make("bdi", { class: "neighbor-name" }, nameOf(other)),
    make("span", {}, swatch(clusterIndex.get(cluster)), clusterLabel(cluster)),
    make("span", { class: "quiet-text" }, distance),
    alignment ? make("span", { class: "quiet-text" }, alignmentText(alignment)) : null,
  );
  return make("li", {}, thumb, moved, text);
}

const isIdentity = ([rotation, scale, dy, dx]) => !rotation && Math.abs(scale - 1) < 1e-6 && !dy && !dx;

/** Alignments are in pixels of the images that were compared, which have the size of the atoms. */
const pixelScale = () => (atoms ? sprites.width / atoms.width : 1);

/** The neighbour aligned with the image: bilinear interpolation, with the border pixels repeated outwards. */
function alignedCanvas(image, [rotation, scale, dy, dx]) {
  const canvas = tileCanvas(image);
  canvas.className = "aligned";
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const from = context.getImageData(0, 0, sprites.width, sprites.height);
  const to = context.createImageData(sprites.width, sprites.height);
  const unit = pixelScale();
  const cos = Math.cos((rotation * Math.PI) / 180) / scale,
    sin = Math.sin((rotation * Math.PI) / 180) / scale;
  const middleX = (sprites.width - 1) / 2,
    middleY = (sprites.height - 1) / 2;
  for (let y = 0; y < sprites.height; y++) {
    for (let x = 0; x < sprites.width; x++) {
      const across = x - middleX - dx * unit,
        down = y - middleY - dy * unit;
      const pixel = pixelBetween(
        from,
        cos * across - sin * down + middleX,
        sin * across + cos * down + middleY,
      );
      to.data.set(pixel, 4 * (y * sprites.width + x));
    }
  }
  context.putImageData(to, 0, 0);
  const size = 56 / Math.max(sprites.width, sprites.height);
  canvas.style.width = `${sprites.width * size}px`;
  canvas.style.height = `${sprites.height * size}px`;
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

function alignmentText([rotation, scale, dy, dx]) {
  const parts = [];
  const near = (value) => Number(value.toFixed(2));
  if (rotation) parts.push(`rotated ${near(Math.abs(rotation))}° ${rotation > 0 ? "left" : "right"}`);
  if (Math.abs(scale - 1) > 1e-6) parts.push(`scaled ×${near(scale)}`);
  if (dx) parts.push(`${near(Math.abs(dx))} px ${dx > 0 ? "right" : "left"}`);
  if (dy) parts.push(`${near(Math.abs(dy))} px ${dy > 0 ? "down" : "up"}`);
  return parts.join(", ") || "matches without alignment";
}
