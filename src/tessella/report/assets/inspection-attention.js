// Who attends to whom, and how similar encodings are: scenes of what was read for one model, and the words for them.

// How weights are coloured: as shares of the largest of their map or of all maps, or as the square roots of these.
function shares(view, head) {
  const most = topWeight(view, head), root = state.scale === "root";
  return patchWeights(view, head).map((weight) => (root ? Math.sqrt(weight / most) : weight / most));
}

function patchWeights(view, head) {
  return view.rows[head].slice(view.layer.prefix.length);
}

// The weight at the end of the colour scale.
function topWeight(view, head) {
  if (state.scale !== "common") return Math.max(1e-12, largest(patchWeights(view, head)));
  return Math.max(1e-12, ...view.rows.map((_, k) => largest(patchWeights(view, k))));
}

function prefixWords(view, head) {
  return view.layer.prefix.map((name, k) => `${name} token ${format(view.rows[head][k])}`).join(", ");
}

function queryWords(view) {
  if (view.token >= 0) return `${view.layer.prefix[view.token]} token`;
  return `patch at ${placeWords(view.where.cell[0], view.where.cell[1])}`;
}

function placeWords(row, column) {
  return `row ${row + 1}, column ${column + 1}`;
}

function strongest(view, head) {
  const weights = patchWeights(view, head), best = weights.indexOf(largest(weights)), columns = view.layer.grid[1];
  const [row, column] = view.where.corner;
  return `most to the patch at ${placeWords(row + Math.floor(best / columns), column + (best % columns))}, weight ${format(weights[best])}`;
}

function chosenWords(model, view) {
  const outside = view.layer.prefix.length ? `; ${prefixWords(view, view.head)}` : "";
  const whose = view.own ? "" : `, mean over ${view.inspection.images} images`;
  return `${several ? `${model.name}: ` : ""}layer ${view.layer.index + 1}, head ${view.head + 1}${whose}: the ${queryWords(view)} attends ${strongest(view, view.head)}${outside}`;
}

// The image under what the chosen head attends to; the grid alone where the mean over images is shown.
function photoScene(view, width) {
  const { inspection, layer, where } = view, [rows, columns] = where.whole;
  const tall = (width * inspection.image[0]) / inspection.image[1], bar = 38;
  const scene = new Scene(width, tall + bar), [h, w] = [tall / rows, width / columns];
  const image = view.own ? photographs[state.picture] : null;
  scene.add("rect", { x: 0, y: 0, w: width, h: tall, fill: "none" });
  if (image) scene.add("image", { x: 0, y: 0, w: width, h: tall, source: image });
  const [across, down] = [layer.grid[1] * w, layer.grid[0] * h], [x, y] = [where.corner[1] * w, where.corner[0] * h];
  const found = shares(view, view.head), strength = image ? state.overlay : 1;
  if (strength) scene.heat(x, y, across, down, layer.grid[1], found.map((s) => colour("sequential", s)), found.map((s) => (image ? strength * (0.25 + 0.75 * s) : 1)));
  for (let k = 1; k < columns; k += 1) scene.line(k * w, 0, k * w, tall, "rgba(128,128,128,0.45)", 0.7);
  for (let k = 1; k < rows; k += 1) scene.line(0, k * h, width, k * h, "rgba(128,128,128,0.45)", 0.7);
  if (layer.windows > 1) scene.frame(x, y, across, down, "#ffffff", 2.5).frame(x, y, across, down, "#000000", 1);
  if (view.token < 0) scene.marker(where.cell[1] * w, where.cell[0] * h, w, h);
  const weights = patchWeights(view, view.head);
  const about = (row, column) => {
    const [r, c] = [row - where.corner[0], column - where.corner[1]];
    const inside = r >= 0 && c >= 0 && r < layer.grid[0] && c < layer.grid[1];
    return `${placeWords(row, column)}: ${inside ? `weight ${format(weights[r * layer.grid[1] + c])}` : "in another window"}`;
  };
  scene.region(0, 0, width, tall, rows, columns, about, (row, column) => moveTo(where.whole, row, column));
  return scene.scaleBar(0, tall + 8, Math.min(width, 260), "sequential", 0, topWeight(view, view.head), weightLabel());
}

function weightLabel() {
  return state.scale === "root" ? "weight, square-root scale" : "attention weight";
}

function headsScene(view, width) {
  const { layer, where } = view, [rows, columns] = layer.grid, skip = layer.prefix.length, gap = 10;
  const fitting = Math.max(2, Math.min(layer.heads, Math.floor(width / 118)));
  const across = Math.ceil(layer.heads / Math.ceil(layer.heads / fitting)); // rows of about the same length
  const w = Math.min(170, (width - gap * (across - 1)) / across), h = (w * rows * layer.patch[0]) / (columns * layer.patch[1]);
  const each = h + (skip ? 42 : 26), common = state.scale === "common";
  const scene = new Scene(width, Math.ceil(layer.heads / across) * each + (common ? 42 : 4));
  for (let head = 0; head < layer.heads; head += 1) {
    const x = (head % across) * (w + gap), y = Math.floor(head / across) * each + 18, chosen = head === view.head;
    scene.text(x, y - 5, `head ${head + 1}`, { size: 11.5, bold: chosen, fill: chosen ? "ink" : "quiet" });
    if (!common && w > 84) scene.text(x + w, y - 5, `\u2264 ${format(topWeight(view, head))}`, { size: 10.5, fill: "quiet", anchor: "end" });
    scene.heat(x, y, w, h, columns, shares(view, head).map((s) => colour("sequential", s)));
    if (view.token < 0) {
      const [r, c] = [where.cell[0] - where.corner[0], where.cell[1] - where.corner[1]];
      scene.frame(x + (c * w) / columns, y + (r * h) / rows, w / columns, h / rows, "#000000", 2.5);
      scene.frame(x + (c * w) / columns, y + (r * h) / rows, w / columns, h / rows, "#ffffff", 1);
    }
    if (chosen) scene.frame(x, y, w, h, "mark", 3);
    const outside = sum(view.rows[head].slice(0, skip));
    if (skip) scene.text(x, y + h + 13, `${skip === 1 ? layer.prefix[0] : "not patches"} ${format(outside)}`, { size: 11, fill: "quiet", limit: w });
    const about = (row, column) => {
      const at = placeWords(where.corner[0] + row, where.corner[1] + column), more = skip ? `; ${prefixWords(view, head)}` : "";
      return `head ${head + 1}, ${at}: weight ${format(view.rows[head][skip + row * columns + column])}${more}`;
    };
    scene.region(x, y, w, h, rows, columns, about, () => choose({ head }));
  }
  return common ? scene.scaleBar(0, scene.height - 34, Math.min(width, 260), "sequential", 0, topWeight(view, 0), weightLabel()) : scene;
}

// Whether a model's encodings are those of a window's patches, and not of the whole image's.
function encodesWindows(view) {
  const { grid } = view.encodings, { layer } = view;
  return layer.windows > 1 && grid[0] === layer.grid[0] && grid[1] === layer.grid[1];
}

function chosenEncoding(view) {
  const { grid } = view.encodings, { cell, corner } = view.where;
  if (encodesWindows(view)) return [0, 1].map((axis) => cell[axis] - corner[axis]);
  return [0, 1].map((axis) => Math.min(grid[axis] - 1, Math.floor(state.at[axis] * grid[axis])));
}

function moveToEncoding(view, row, column) {
  const { grid } = view.encodings, { whole, corner } = view.where;
  const inside = [Math.max(0, Math.min(grid[0] - 1, row)), Math.max(0, Math.min(grid[1] - 1, column))];
  if (encodesWindows(view)) moveTo(whole, corner[0] + inside[0], corner[1] + inside[1]);
  else moveTo(grid, ...inside);
}

function similarityLabel(view) {
  return view.encodings.kind === "relative bias" ? "mean bias" : "similarity";
}

function encodingColours(view, row, column) {
  const { low, high } = view.encodings, span = high - low || 1;
  return view.similar(row, column).map((s) => colour("sequential", (s - low) / span));
}

function similarScene(view, width) {
  const { grid, low, high } = view.encodings, [rows, columns] = grid;
  const [r, c] = chosenEncoding(view), found = view.similar(r, c), tall = (width * rows) / columns;
  const scene = new Scene(width, tall + 38);
  scene.heat(0, 0, width, tall, columns, encodingColours(view, r, c));
  scene.marker((c * width) / columns, (r * tall) / rows, width / columns, tall / rows);
  const about = (row, column) => `${placeWords(row, column)}: ${format(found[row * columns + column])}`;
  scene.region(0, 0, width, tall, rows, columns, about, (row, column) => moveToEncoding(view, row, column));
  return scene.scaleBar(0, tall + 8, Math.min(width, 260), "sequential", low, high, similarityLabel(view));
}

// For every patch, a small map of its encoding's similarities to all others, laid out as the patches lie in the image.
function everyScene(view, width) {
  const { grid, low, high } = view.encodings, [rows, columns] = grid;
  const cell = width / (columns * (columns + 1) - 1), scene = new Scene(width, cell * (rows * (rows + 1) - 1) + 38);
  const tall = scene.height - 38, [w, h] = [columns * cell, rows * cell];
  scene.heat(0, 0, width, tall, columns * (columns + 1) - 1, everyColour(view));
  const [r, c] = chosenEncoding(view);
  scene.frame(c * (w + cell) - 1, r * (h + cell) - 1, w + 2, h + 2, "mark", 2.5);
  const about = (row, column) => `the patch at ${placeWords(row, column)}, and all others`;
  scene.region(0, 0, width, tall, rows, columns, about, (row, column) => moveToEncoding(view, row, column));
  return scene.scaleBar(0, tall + 8, Math.min(width, 260), "sequential", low, high, similarityLabel(view));
}

// All small maps as one matrix of colours, with an empty row and column between neighbours; kept once made.
const everyColours = new Map();
function everyColour(view) {
  const known = everyColours.get(view.encodings);
  if (known) return known;
  const [rows, columns] = view.encodings.grid, across = columns * (columns + 1) - 1;
  const colours = new Array((rows * (rows + 1) - 1) * across).fill(null);
  for (let k = 0; k < rows * columns; k += 1) {
    const [row, column] = [Math.floor(k / columns), k % columns], from = row * (rows + 1) * across + column * (columns + 1);
    encodingColours(view, row, column).forEach((c, n) => { colours[from + Math.floor(n / columns) * across + (n % columns)] = c; });
  }
  everyColours.set(view.encodings, colours);
  return colours;
}
