// Colours of clusters, ordered so that the first k lie as far apart as possible for full, red-blind and
// green-blind sight alike. After one round they repeat with another shape, so colour never speaks alone.

const PALETTE = [
  "#1d73b6", "#fcb02b", "#b01003", "#c4a4fe", "#a97e6b", "#66386d", "#75cca7", "#2a39b2", "#33a3b4", "#8171f5",
  "#a64a76", "#b29b28", "#10653f", "#6e8210", "#f48f71", "#f45e96", "#5894e0", "#85b7cb", "#3f56d1", "#747147",
  "#505795", "#721592", "#5c6f92", "#f1b27e",
];
const SHAPES = ["circle", "square", "diamond", "triangle"];

const paletteColor = (index) => PALETTE[index % PALETTE.length];
const paletteShape = (index) => SHAPES[Math.floor(index / PALETTE.length) % SHAPES.length];

/** Trace a mark of the given shape and radius; the caller fills or strokes it. */
function traceMark(context, shape, x, y, radius) {
  context.beginPath();
  if (shape === "circle") context.arc(x, y, radius, 0, 2 * Math.PI);
  else if (shape === "square") context.rect(x - radius * 0.9, y - radius * 0.9, radius * 1.8, radius * 1.8);
  else {
    const corners = shape === "diamond" ? 4 : 3;
    for (let i = 0; i < corners; i++) {
      const angle = (2 * Math.PI * i) / corners - Math.PI / 2;
      context.lineTo(x + radius * 1.25 * Math.cos(angle), y + radius * 1.25 * Math.sin(angle));
    }
    context.closePath();
  }
}

/** The mark of one palette entry as a little picture for legends and headings. */
function swatch(index) {
  const color = paletteColor(index), shape = paletteShape(index);
  const svg = makeSvg("svg", { viewBox: "-6 -6 12 12", class: "swatch", "aria-hidden": "true", focusable: "false" });
  const shapes = {
    circle: () => makeSvg("circle", { r: 5, fill: color }),
    square: () => makeSvg("rect", { x: -4.5, y: -4.5, width: 9, height: 9, fill: color }),
    diamond: () => makeSvg("path", { d: "M0-5.8 5.8 0 0 5.8-5.8 0z", fill: color }),
    triangle: () => makeSvg("path", { d: "M0-5.6 5.4 4.6-5.4 4.6z", fill: color }),
  };
  svg.append(shapes[shape]());
  return svg;
}
