// Colours of the clusters. In each palette the first k colours differ clearly for normal, red-blind and green-blind
// vision. From the 25th cluster on the colours repeat with another shape.

const PALETTES = {
  light: [
    "#1d73b6",
    "#fcb02b",
    "#b01003",
    "#c4a4fe",
    "#a97e6b",
    "#66386d",
    "#75cca7",
    "#2a39b2",
    "#33a3b4",
    "#8171f5",
    "#a64a76",
    "#b29b28",
    "#10653f",
    "#6e8210",
    "#f48f71",
    "#f45e96",
    "#5894e0",
    "#85b7cb",
    "#3f56d1",
    "#747147",
    "#505795",
    "#721592",
    "#5c6f92",
    "#f1b27e",
  ],
  dark: [
    "#1b71bc",
    "#fcca21",
    "#c92516",
    "#c3b0fd",
    "#af8780",
    "#8e5c7d",
    "#6cfcd0",
    "#8082f7",
    "#29a1c1",
    "#735fe9",
    "#b0455c",
    "#aaac31",
    "#549a44",
    "#b0c5a5",
    "#e7917b",
    "#f45fb0",
    "#53a3f2",
    "#72bed1",
    "#4a63d0",
    "#767137",
    "#65699d",
    "#994eb7",
    "#627e96",
    "#ebb16c",
  ],
};
const COLORS = PALETTES.light.length;
const SHAPES = ["circle", "square", "diamond", "triangle"];

const paletteColor = (index) => PALETTES[document.documentElement.dataset.theme][index % COLORS];
const paletteShape = (index) => SHAPES[Math.floor(index / COLORS) % SHAPES.length];

/** Store the colours as CSS variables, so that legends and headings follow the theme. */
function setColorVariables() {
  for (let i = 0; i < COLORS; i++)
    document.documentElement.style.setProperty(`--color-${i}`, paletteColor(i));
}

/** Trace the outline of a mark; the caller fills or strokes it. */
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

/** The mark of one palette entry as a small picture for legends and headings. */
function swatch(index) {
  const svg = makeSvg("svg", {
    viewBox: "-6 -6 12 12",
    class: "swatch",
    "aria-hidden": "true",
    focusable: "false",
  });
  svg.style.fill = `var(--color-${index % COLORS})`;
  const shapes = {
    circle: () => makeSvg("circle", { r: 5 }),
    square: () => makeSvg("rect", { x: -4.5, y: -4.5, width: 9, height: 9 }),
    diamond: () => makeSvg("path", { d: "M0-5.8 5.8 0 0 5.8-5.8 0z" }),
    triangle: () => makeSvg("path", { d: "M0-5.6 5.4 4.6-5.4 4.6z" }),
  };
  svg.append(shapes[paletteShape(index)]());
  return svg;
}
