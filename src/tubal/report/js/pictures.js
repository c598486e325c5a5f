// Arrays drawn as pictures, and the sum of shifted atoms that approximates an image (section 2.4 of the paper).

const NEGATIVE = [255, 122, 61];

/** Paint values (height x width x channels): `top` is white, negative values of one channel are orange. */
function paint(canvas, values, shape, top) {
  const { height, width, channels } = shape;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  const scale = top > 0 ? 1 / top : 0;
  if (channels === 3) paintColour(picture.data, values, scale);
  else paintGray(picture.data, values, scale, channels);
  context.putImageData(picture, 0, 0);
}

function paintGray(pixels, values, scale, channels) {
  for (let i = 0, p = 0; p < pixels.length; i += channels, p += 4) {
    let value = 0;
    for (let c = 0; c < channels; c++) value += values[i + c];
    value = clamp((value / channels) * scale, -1, 1);
    for (let c = 0; c < 3; c++) pixels[p + c] = value >= 0 ? 255 * value : -NEGATIVE[c] * value;
    pixels[p + 3] = 255;
  }
}

function paintColour(pixels, values, scale) {
  for (let i = 0, p = 0; p < pixels.length; i += 3, p += 4) {
    for (let c = 0; c < 3; c++) pixels[p + c] = 255 * values[i + c] * scale;
    pixels[p + 3] = 255;
  }
}

/** Add `weight` times the atom, shifted circularly by (dy, dx), to `target`. */
function addShifted(target, atom, shape, dy, dx, weight) {
  const { height, width, channels } = shape;
  for (let y = 0; y < height; y++) {
    const from = modulo(y - dy, height) * width;
    for (let x = 0; x < width; x++) {
      const source = (from + modulo(x - dx, width)) * channels;
      const place = (y * width + x) * channels;
      for (let c = 0; c < channels; c++) target[place + c] += weight * atom[source + c];
    }
  }
}

function shifted(index, dy, dx) {
  const target = new Float32Array(atoms.size);
  addShifted(target, atoms.values[index], atoms, dy, dx, 1);
  return target;
}

/** The sum of the first `count` terms of an image of this norm. */
function rebuild(rows, count, norm) {
  const target = new Float32Array(atoms.size);
  for (const term of rows.slice(0, count)) {
    addShifted(target, atoms.values[term.atom], atoms, term.dy, term.dx, term.coefficient * norm);
  }
  return target;
}

function largestMagnitude(values) {
  let top = 0;
  for (const value of values) top = Math.max(top, Math.abs(value));
  return top;
}

/** A circular shift in words, by the shorter way. */
function shiftText(dy, dx) {
  const short = (offset, size) => {
    const forward = modulo(offset, size);
    return forward > size / 2 ? forward - size : forward;
  };
  const down = short(dy, atoms.height),
    right = short(dx, atoms.width);
  const parts = [];
  if (right) parts.push(`${Math.abs(right)} px ${right > 0 ? "right" : "left"}`);
  if (down) parts.push(`${Math.abs(down)} px ${down > 0 ? "down" : "up"}`);
  return parts.join(", ") || "not shifted";
}
