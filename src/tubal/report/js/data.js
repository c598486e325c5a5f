// The embedded data. An "image" is the index of an image shown on this page, a "row" is its row in the table,
// which also lists images that are not shown. A live page shows all images and asks the server for what is large:
// pictures, neighbours and terms. What changes while the page is open lies in the store.

const payload = JSON.parse(find("#payload").textContent);
const isLive = Boolean(payload.live);
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

const rowOf = unpack(payload.shown);
const nImages = rowOf.length;
const imageOf = new Map(Array.from(rowOf, (row, image) => [row, image]));
const isSample = nImages < payload.nTotal;
const typicalOrder = unpack(payload.typicalFirst);
const outlierRows = new Set(payload.outliers);
const duplicateRow = new Map(payload.duplicateOf);
const embedding = unpack(payload.embedding);
const neighborRows = unpack(payload.neighbors);
const nNeighbors = payload.neighbors ? payload.neighbors.shape[1] : 0;
const neighborDistances = unpack(payload.neighborDistances);
const alignments = unpack(payload.alignments);
const norms = unpack(payload.norms) || new Float32Array(nImages).fill(1);
const givenLabels = payload.trueLabels && unpack(payload.trueLabels.codes);

const nameOf = (image) => safeText(payload.names[rowOf[image]]);
const isOutlier = (image) => outlierRows.has(rowOf[image]);
const explainedOf = (image) => (payload.explained ? payload.explained[image] : null);
const originalOf = (image) => (payload.originals ? payload.originals[image] : "");
const givenLabelOf = (image) => givenLabels && safeText(payload.trueLabels.names[givenLabels[image]]);

const atoms = payload.atoms && decodeAtoms(payload.atoms);
const terms = payload.terms && decodeTerms(payload.terms);

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

/** What the page itself knows of one image beyond its table row: neighbours, terms, how well they explain it. */
function embeddedDetails(image) {
  const neighbors = [];
  for (let place = image * nNeighbors; place < (image + 1) * nNeighbors; place++) {
    if (neighborRows[place] < 0) continue;
    const alignment = alignments && Array.from(alignments.subarray(4 * place, 4 * place + 4));
    neighbors.push({ row: neighborRows[place], distance: neighborDistances[place], alignment });
  }
  const details = { neighbors, terms: null, nTerms: 0, norm: norms[image], explained: explainedOf(image) };
  if (terms) Object.assign(details, { terms: embeddedTerms(image), nTerms: terms.counts[image] });
  return details;
}

/** The terms of one image, largest first: which atom, how far shifted, times which coefficient. */
function embeddedTerms(image) {
  const rows = [];
  for (let t = terms.offsets[image]; t < terms.offsets[image + 1]; t++) {
    rows.push({ atom: terms.atom[t], dy: terms.dy[t], dx: terms.dx[t], coefficient: terms.coefficient[t] });
  }
  return rows;
}

/** In which directions this model shifts its atoms: sideways, downwards or both. */
function shiftAxes() {
  const moves = (offsets) => offsets.some((value) => value !== 0);
  const down = terms ? moves(terms.dy) : false;
  const across = terms ? moves(terms.dx) : true;
  return { down, across: across || !down };
}
