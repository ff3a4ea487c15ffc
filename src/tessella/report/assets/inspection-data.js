// What the page carries, and how a number is read from it. Blocks are decoded when they are first asked for.

const META = JSON.parse(document.getElementById("meta").textContent);
const decoded = new Map();
const KEPT = 96; // decoded blocks that stay in memory

function block(key) {
  const found = decoded.get(key) || decode(key);
  decoded.delete(key);
  decoded.set(key, found); // the last asked for stands last
  if (decoded.size > KEPT) decoded.delete(decoded.keys().next().value);
  return found;
}

async function decode(key) {
  const text = atob(document.getElementById(`block-${key}`).textContent);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k += 1) bytes[k] = text.charCodeAt(k);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

// One layer's attention on one picture, or its mean: (head, query) to the weights of all tokens, the prefix first.
// A block holds the largest weight of every query, and then whole numbers k for largest * (k / levels)^2.
async function attention(place, number, picture) {
  const layer = META.inspections[place].layers[number];
  const levels = picture === "mean" ? META.levels.mean : META.levels.single;
  const bytes = await block(`${place}.${number}.${picture}`);
  const tokens = layer.prefix.length + layer.grid[0] * layer.grid[1];
  const queries = layer.prefix.length + carried(layer, 0) * carried(layer, 1);
  const tops = new DataView(bytes.buffer), start = 4 * layer.heads * queries;
  return (head, query) => {
    const row = head * queries + query, from = start + row * tokens, top = tops.getFloat32(4 * row, true);
    return Array.from(bytes.subarray(from, from + tokens), (k) => top * (k / levels) ** 2);
  };
}

// Cosines of the encodings, or null where the model has none to compare: (row, column) to those of every patch.
async function similarities(place, number) {
  const { low, high, grid } = META.inspections[place].encodings[number];
  if (low === undefined) return null;
  const levels = await block(`${place}.similarities.${number}`);
  const count = grid[0] * grid[1];
  return (row, column) => {
    const from = (row * grid[1] + column) * count;
    return Array.from(levels.subarray(from, from + count), (level) => low + (level / 255) * (high - low));
  };
}

// Large grids carry the queries of every second (third, ...) row and column only.
function carried(layer, axis) {
  return Math.ceil((layer.grid[axis] - startOf(layer)) / layer.stride);
}

function startOf(layer) {
  return Math.floor((layer.stride - 1) / 2);
}

// The patches of the whole image in a layer, rows and columns: of all windows together where it attends within them.
function wholeGrid(inspection, layer) {
  if (layer.windows === 1) return layer.grid;
  return [0, 1].map((axis) => Math.max(layer.grid[axis], Math.ceil(inspection.image[axis] / layer.patch[axis])));
}

// Where a point of the image (two shares of its height and width) lies among a layer's patches: the patch in the whole
// image whose query is carried, the corner of its window, and the query's number among those carried.
function seat(inspection, layer, at) {
  const whole = wholeGrid(inspection, layer);
  const corner = [], cell = [], number = [];
  for (const axis of [0, 1]) {
    const place = Math.min(whole[axis] - 1, Math.floor(at[axis] * whole[axis]));
    const inside = place % layer.grid[axis], start = startOf(layer);
    number[axis] = Math.min(carried(layer, axis) - 1, Math.max(0, Math.round((inside - start) / layer.stride)));
    corner[axis] = place - inside;
    cell[axis] = corner[axis] + start + number[axis] * layer.stride;
  }
  return { whole, corner, cell, query: layer.prefix.length + number[0] * carried(layer, 1) + number[1] };
}

// The inspection of a model at a training step: the last one not after it, or its first.
function inspectionAt(model, step) {
  const before = model.inspections.filter((place) => (META.inspections[place].step ?? 0) <= step);
  return before.length ? before[before.length - 1] : model.inspections[0];
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

// Of many numbers too: a call takes no more arguments than the stack holds.
function largest(values) {
  return values.reduce((most, value) => (value > most ? value : most), -Infinity);
}

function finite(values) {
  return values.filter((value) => value !== null && value !== undefined && !Number.isNaN(value));
}

function mean(values) {
  const kept = finite(values);
  return kept.length ? sum(kept) / kept.length : null;
}
