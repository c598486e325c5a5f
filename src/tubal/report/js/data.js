// The embedded data. A "row" indexes the table of all images, a "shot" the images shown in this page.

const P = JSON.parse(find("#payload").textContent);
const ARRAYS = { int8: Int8Array, int16: Int16Array, int32: Int32Array, float32: Float32Array };

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function unpack(packed) {
  return packed && new ARRAYS[packed.dtype](bytesOf(packed.data).buffer);
}

const rowOf = unpack(P.shown);
const nShots = rowOf.length;
const shotOf = new Map(Array.from(rowOf, (row, shot) => [row, shot]));
const outlierRows = new Set(P.outliers);
const duplicateRow = new Map(P.duplicateOf);
const embedding = unpack(P.embedding);
const neighborRows = unpack(P.neighbors);
const nNeighbors = P.neighbors.shape[1];
const neighborDistances = unpack(P.neighborDistances);
const alignments = unpack(P.alignments);
const norms = unpack(P.norms);
const givenCodes = P.trueLabels && unpack(P.trueLabels.codes);

const nameOf = (shot) => readable(P.names[rowOf[shot]]);
const confidenceOf = (shot) => P.confidence[rowOf[shot]];
const isOutlier = (shot) => outlierRows.has(rowOf[shot]);
const isDoubtful = (shot) => !isOutlier(shot) && confidenceOf(shot) < P.doubtfulBelow;
const givenOf = (shot) => givenCodes && readable(P.trueLabels.names[givenCodes[shot]]);

const atoms = P.atoms && decodeAtoms(P.atoms);
const terms = P.terms && decodeTerms(P.terms);

function decodeAtoms(packed) {
  const [count, height, width, channels] = packed.values.shape;
  const integers = unpack(packed.values),
    scale = unpack(packed.scale);
  const size = height * width * channels;
  const values = Array.from({ length: count }, (_, a) =>
    Float32Array.from(integers.subarray(a * size, (a + 1) * size), (value) => value * scale[a]),
  );
  const signed = values.some((atom) => atom.some((value) => value < 0));
  return { count, height, width, channels, size, values, signed };
}

function decodeTerms(packed) {
  const table = { dy: unpack(packed.dy), dx: unpack(packed.dx), atom: unpack(packed.atom) };
  table.coefficient = unpack(packed.coefficient);
  table.offsets = unpack(packed.offsets);
  table.counts = unpack(packed.counts);
  return table;
}

/** The terms of one image, largest first. */
function termsOf(shot) {
  if (!terms) return [];
  const rows = [];
  for (let t = terms.offsets[shot]; t < terms.offsets[shot + 1]; t++) {
    rows.push({ atom: terms.atom[t], dy: terms.dy[t], dx: terms.dx[t], coefficient: terms.coefficient[t] });
  }
  return rows;
}

/** Which ways atoms move in this model: along the tube, or both ways for a convolutional one. */
function shiftAxes() {
  const moves = (offsets) => offsets.some((value) => value !== 0);
  const down = terms ? moves(terms.dy) : false;
  const across = terms ? moves(terms.dx) : true;
  return { down, across: across || !down };
}
