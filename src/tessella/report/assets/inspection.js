// The page: what is chosen, the controls that choose it, and a column of pictures for each model.

const $ = (id) => document.getElementById(id);
const several = META.models.length > 1;
const distinct = (values) => [...new Set(values)];
const steps = distinct(META.inspections.map((inspection) => inspection.step).filter((step) => step !== null)).sort((a, b) => a - b);
const prefixes = distinct(META.inspections.flatMap((inspection) => inspection.layers.flatMap((layer) => layer.prefix)));
const measures = distinct(META.inspections.flatMap((inspection) => inspection.measures.map((measure) => measure.name)));
const state = {
  picture: META.pictures.length ? 0 : null, token: null, at: [0.499, 0.499], layer: 0, head: 0, scale: "own", overlay: 0.75,
  step: steps.length ? steps[steps.length - 1] : 0, measure: measures[0], difference: "value", order: "model",
  encodings: new Map(), // by model, where one has several
};
const photographs = META.pictures.map((picture) => {
  const image = new Image();
  image.src = picture.source;
  return image;
});
const loaded = Promise.all(photographs.map((image) => image.decode()));

function choose(changes) {
  Object.assign(state, changes);
  const first = current(META.models[0]).inspection;
  const layers = Math.max(...META.models.map((model) => current(model).inspection.layers.length));
  state.layer = Math.max(0, Math.min(layers - 1, state.layer));
  const heads = Math.max(...META.models.map((model) => layerOf(current(model).inspection).layer.heads));
  state.head = Math.max(0, Math.min(heads - 1, state.head));
  setSlider("layer", layers - 1, state.layer, `${layerOf(first).layer.index + 1}`);
  setSlider("head", heads - 1, state.head, `${state.head + 1} of ${heads}`);
  if (steps.length > 1) setSlider("step", steps.length - 1, steps.indexOf(state.step), String(state.step));
  refresh();
}

function setSlider(id, most, value, text) {
  $(id).max = most;
  $(id).value = value;
  $(id).disabled = most === 0;
  $(id).setAttribute("aria-valuetext", text);
  $(`${id}-name`).textContent = text;
}

function current(model) {
  const place = inspectionAt(model, state.step);
  return { place, inspection: META.inspections[place] };
}

function layerOf(inspection) {
  const number = Math.min(state.layer, inspection.layers.length - 1);
  return { number, layer: inspection.layers[number], head: Math.min(state.head, inspection.layers[number].heads - 1) };
}

// What is chosen for a model, before anything of it is read: keys act on this, for they may be faster than the drawing.
function chosen(model) {
  const { place, inspection } = current(model), { number, layer, head } = layerOf(inspection);
  return { place, inspection, number, layer, head, where: seat(inspection, layer, state.at) };
}

// What a column shows: the weights that the chosen token gives to all others, in every head of the layer.
async function seen(model) {
  const { place, inspection, number, layer, head, where } = chosen(model);
  const own = state.picture !== null && inspection.examples[state.picture] !== undefined;
  const which = Math.min(state.encodings.get(model.name) ?? 0, inspection.encodings.length - 1), encodings = inspection.encodings[which];
  const [row, similar] = await Promise.all([attention(place, number, own ? state.picture : "mean"), similarities(place, which)]);
  const token = state.token === null ? -1 : layer.prefix.indexOf(state.token);
  const rows = Array.from({ length: layer.heads }, (_, k) => row(k, token >= 0 ? token : where.query));
  return { place, inspection, number, layer, head, own, token, where, rows, encodings, similar };
}

let turn = 0;
async function refresh() {
  turn += 1;
  const mine = turn;
  document.querySelector("main").setAttribute("aria-busy", "true");
  const [views] = await Promise.all([Promise.all(META.models.map(seen)), loaded]);
  if (mine !== turn) return; // something else was chosen in the meantime
  columns.forEach((show, k) => show(views[k]));
  const check = (name, of) => document.querySelectorAll(`input[name=${name}]`).forEach((input) => { input.checked = input.value === String(of); });
  check("picture", state.picture ?? "mean");
  check("token", state.token ?? "");
  $("status").textContent = `${META.models.map((model, k) => chosenWords(model, views[k])).join(". ")}.`;
  if (measures.length) describeMeasure();
  showTable();
  document.querySelector("main").setAttribute("aria-busy", "false");
}

function moveTo(whole, row, column) {
  const inside = (k, axis) => (Math.min(whole[axis] - 1, Math.max(0, k)) + 0.5) / whole[axis];
  choose({ at: [inside(row, 0), inside(column, 1)], token: null });
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function plainKey(event) {
  return !event.ctrlKey && !event.altKey && !event.metaKey;
}

// Keys that move the patch from a cell of a grid, by a stride; `move(row, column)` may be asked for what lies outside.
function patchKeys(event, columns, cell, stride, move) {
  if (!plainKey(event)) return false;
  if (MOVES[event.key]) {
    const [down, right] = MOVES[event.key];
    move(cell[0] + down * stride, cell[1] + right * stride);
  } else if (event.key === "Home") move(cell[0], 0);
  else if (event.key === "End") move(cell[0], columns - 1);
  else return headKeys(event);
  return true;
}

function headKeys(event) {
  const by = { PageUp: ["layer", -1], PageDown: ["layer", 1], "[": ["head", -1], "]": ["head", 1] }[event.key];
  if (by) choose({ [by[0]]: state[by[0]] + by[1] });
  return Boolean(by);
}

// Arrows that move over the map of heads, in the order in which it shows them.
function mapKeys(event, at) {
  if (!plainKey(event)) return false;
  const by = MOVES[event.key];
  if (!by) return headKeys(event);
  const measure = measureNamed(at.inspection, state.measure);
  const orderOf = (number) => headOrder(at.inspection.layers[number], measure, number, { ...state, first: at.first });
  const rank = orderOf(at.number).indexOf(at.head) + by[1];
  const layer = Math.max(0, Math.min(at.inspection.layers.length - 1, at.number + by[0])), order = orderOf(layer);
  choose({ layer, head: order[Math.max(0, Math.min(order.length - 1, rank))] });
  return true;
}

function listen(id, event, change) {
  $(id).addEventListener(event, () => choose(change($(id).value)));
}

function radios(parent, name, choices, press) {
  for (const { value, text, image } of choices) {
    const label = element($(parent), "label", { class: image ? "thumbnail" : "token" });
    const input = element(label, "input", { type: "radio", name, value });
    if (image) element(label, "img", { src: image, alt: "", width: 56, height: 56 });
    element(label, "span", {}, text);
    input.addEventListener("change", () => press(value));
  }
}

function options(id, choices) {
  for (const [value, text] of choices) element($(id), "option", { value }, text);
}

function build() {
  const most = Math.max(...META.inspections.map((inspection) => inspection.images));
  radios("pictures", "picture", [
    ...META.pictures.map((picture, k) => ({ value: String(k), text: picture.name, image: picture.source })),
    { value: "mean", text: `mean over ${most} image${most === 1 ? "" : "s"}` },
  ], (value) => choose({ picture: value === "mean" ? null : Number(value) }));
  radios("tokens", "token", [{ value: "", text: "the chosen patch" }, ...prefixes.map((name) => ({ value: name, text: `${name} token` }))],
    (value) => choose({ token: value === "" ? null : value }));
  $("tokens").hidden = prefixes.length === 0;
  $("steps").hidden = steps.length < 2;
  $("measures").hidden = measures.length === 0;
  options("measure", measures.map((name) => [name, name]));
  if (several) options("difference", [["first", `its difference from ${META.models[0].name}`]]);
  listen("layer", "input", (value) => ({ layer: Number(value) }));
  listen("head", "input", (value) => ({ head: Number(value) }));
  listen("step", "input", (value) => ({ step: steps[Number(value)] }));
  listen("overlay", "input", (value) => ({ overlay: value / 100 }));
  listen("scale", "change", (scale) => ({ scale }));
  for (const name of ["measure", "difference", "order"]) listen(name, "change", (value) => ({ [name]: value }));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("table").addEventListener("toggle", showTable);
  themed.push(() => columns.forEach((show) => show(null)));
}

const columns = META.models.map(columnOf);
build();
choose({});
