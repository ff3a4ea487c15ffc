// The columns of the page: one for each model, with its pictures in every section.

const MOST_SMALL_MAPS = 600; // of a larger grid, small maps of every patch would be too small to read

function columnOf(model) {
  let view = null, drawn = null;
  const heading = (section) => {
    const made = element($(section), "div", { class: "model", role: "group", "aria-label": model.name });
    if (several) element(made, "h3", {}, model.name);
    return made;
  };
  const name = (what) => () => [model.name, ...(steps.length > 1 ? [`step ${view.inspection.step}`] : []), what()].join(", ");
  const source = () => (view.own ? META.pictures[state.picture].name : `mean over ${view.inspection.images} images`);
  const layerName = () => `layer ${view.layer.index + 1}`;
  const firstOf = () => (several && state.difference === "first" ? current(META.models[0]).inspection : null);

  const attentionPart = heading("attention"), told = element(attentionPart, "p", { class: "small" });
  const views = element(attentionPart, "div", { class: "views" });
  const photo = picture(views, {
    kind: "photo", title: "Where the chosen head looks", widest: 460, build: (width) => photoScene(view, width),
    caption: name(() => `${layerName()}, head ${view.head + 1}, ${queryWords(view)}, ${source()}`),
    words: () => `The image with its ${view.where.whole.join(" by ")} patches. Arrow keys move the patch, Page Up and Page Down the layer, [ and ] the head. ${chosenWords(model, view)}.`,
    keys: (event) => {
      const { layer, where: { whole, cell } } = chosen(model);
      return patchKeys(event, whole[1], cell, layer.stride, (row, column) => moveTo(whole, row, column));
    },
  });
  const heads = picture(views, {
    kind: "maps", title: "Every head of the layer", widest: 700, build: (width) => headsScene(view, width), caption: name(() => `${layerName()}, ${queryWords(view)}, ${source()}`),
    words: () => `Attention of the ${queryWords(view)} in the ${view.layer.heads} heads of ${layerName()}: ${view.rows.map((_, head) => `head ${head + 1} ${strongest(view, head)}`).join("; ")}.`,
    keys: (event) => plainKey(event) && arrowsOverHeads(event, chosen(model)),
  });

  const encodingPart = heading("encodings");
  const which = encodingChoice(encodingPart, model), kind = element(encodingPart, "p", { class: "small" }), pair = element(encodingPart, "div", { class: "views" });
  const numbers = element(encodingPart, "div", { class: "scroll" });
  const similar = picture(pair, {
    kind: "similar", title: "The chosen patch and all others", widest: 340, build: (width) => similarScene(view, width),
    caption: name(() => `encodings, patch at ${placeWords(...chosenEncoding(view))}`),
    words: () => `Similarities of the encoding of the patch at ${placeWords(...chosenEncoding(view))} to all others, from ${format(view.encodings.low)} to ${format(view.encodings.high)}. Arrow keys move the patch.`,
    keys: (event) => {
      const at = { ...chosen(model), encodings: view.encodings };
      return patchKeys(event, view.encodings.grid[1], chosenEncoding(at), 1, (row, column) => moveToEncoding(at, row, column));
    },
  });
  const every = picture(pair, {
    kind: "every", title: "Every patch and all others", widest: 560, build: (width) => everyScene(view, width), caption: name(() => "similarities of all encodings"),
    words: () => "For every patch of the grid, a small map of the similarities of its encoding to those of all patches.",
  });

  const mapPart = element(heading("maps"), "div", { class: "views" });
  const press = (layer, head) => choose({ layer, head });
  const shownMap = () => ({ ...state, layer: view.number, head: view.head, first: firstOf() });
  const map = picture(mapPart, {
    kind: "map", title: "Layers by heads", build: (width) => mapScene(view.inspection, shownMap(), width, press), caption: name(() => `${state.measure} of every head`),
    words: () => `${state.measure} of every head, the first layer on top. Arrow keys choose a head. Chosen: ${aboutHead(view.inspection, measureNamed(view.inspection, state.measure), view.number, view.head)}.`,
    keys: (event) => mapKeys(event, { ...chosen(model), first: firstOf() }),
  });
  const depth = picture(mapPart, {
    kind: "depth", title: "Over depth", build: (width) => depthScene(view.inspection, shownMap(), width, press), caption: name(() => `${state.measure} over depth`),
    words: () => `${state.measure} over the layers, a dot for each head. Means of the layers: ${view.inspection.layers.map((layer, n) => `${layer.index + 1}: ${format(mean(measureNamed(view.inspection, state.measure).values[n]))}`).join(", ")}.`,
  });
  const detailPart = heading("details");

  return (next) => {
    view = next ?? view;
    if (!view) return;
    told.textContent = attentionWords(view);
    const none = view.similar === null, { encodings } = view, known = measureNamed(view.inspection, state.measure) !== undefined;
    similar.show(!none);
    every.show(!none && encodings.grid[0] * encodings.grid[1] <= MOST_SMALL_MAPS);
    map.show(known);
    depth.show(known);
    for (const made of [photo, heads, similar, every, map, depth]) made.update();
    if (drawn === encodings) return;
    drawn = encodings;
    which(view.inspection);
    kind.textContent = `${encodings.kind === "none" ? "No encodings to compare" : `${encodings.kind[0].toUpperCase()}${encodings.kind.slice(1)}`}: ${encodings.note.replace(/[.]?$/, ".")}`;
    encodingTable(numbers, encodings);
    detailList(detailPart, view.inspection);
  };
}

// Arrows over the maps of one layer's heads.
function arrowsOverHeads(event, at) {
  const by = MOVES[event.key];
  if (!by) return headKeys(event);
  choose(by[0] ? { layer: at.number + by[0] } : { head: at.head + by[1] });
  return true;
}

function attentionWords(view) {
  const parts = [], { layer, inspection } = view, example = inspection.examples[state.picture];
  if (view.own && example.label !== null) parts.push(`Label: ${example.label}.`);
  if (view.own && example.prediction !== null) parts.push(`The model says: ${example.prediction}.`);
  parts.push(`Layer ${layer.index + 1} is ${layer.name}.`);
  if (!view.own) parts.push(`Shown is the mean over ${inspection.images} images${state.picture === null ? "" : "; this image was not kept for this model"}.`);
  if (layer.windows > 1) parts.push(`It attends within windows of ${layer.grid.join(" \u00d7 ")} patches; its maps are means over an image's ${layer.windows} windows.`);
  if (state.token !== null && view.token < 0) parts.push(`It has no ${state.token} token: a patch is shown.`);
  if (layer.stride > 1) parts.push(`To keep this page small, every ${["", "", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"][layer.stride]} row and column of patches can be chosen.`);
  return parts.join(" ");
}

// A model may have several encodings, such as learned ones beside rotary ones: the function returned offers them.
function encodingChoice(parent, model) {
  const label = element(parent, "label", { class: "choices" }, "Encodings "), select = element(label, "select");
  select.addEventListener("change", () => choose({ encodings: new Map(state.encodings).set(model.name, Number(select.value)) }));
  return ({ encodings }) => {
    label.hidden = encodings.length < 2;
    select.replaceChildren(...encodings.map((each, k) => element(null, "option", { value: k }, each.kind)));
    select.value = Math.min(state.encodings.get(model.name) ?? 0, encodings.length - 1);
  };
}

function encodingTable(parent, encodings) {
  parent.replaceChildren();
  if (!encodings.measures.length) return;
  const table = element(parent, "table"), head = element(element(table, "thead"), "tr"), body = element(table, "tbody");
  for (const title of ["measure", "value", "chance", "definition"]) element(head, "th", { scope: "col" }, title);
  for (const measure of encodings.measures) {
    const line = element(body, "tr");
    element(line, "td", {}, measure.name);
    element(line, "td", { class: "number" }, format(measure.value));
    element(line, "td", { class: "number" }, format(measure.chance));
    element(line, "td", { class: "text" }, measure.definition);
  }
}

function detailList(parent, inspection) {
  parent.querySelector("dl")?.remove();
  const list = element(parent, "dl"), size = (pair) => pair.join(" \u00d7 ");
  const facts = [
    ["library", inspection.library],
    ["image", `${size(inspection.image)} pixels, ${size(inspection.grid)} patches of ${size(inspection.patch)} pixels`],
    ["means over", `${inspection.images} image${inspection.images === 1 ? "" : "s"}`],
    ...Object.entries(inspection.details),
  ];
  for (const [term, text] of facts) {
    element(list, "dt", {}, term);
    element(list, "dd", {}, text);
  }
}

// The measure's definition in words, and the table of all measures where it is open.
function describeMeasure() {
  const found = META.models.map((model) => measureNamed(current(model).inspection, state.measure)).find(Boolean);
  if (!found) {
    $("definition").textContent = "";
    return;
  }
  const unit = found.unit && found.unit !== "share" ? ` ${found.unit}` : "";
  const range = found.low === null ? "" : found.high === null ? ` Range: ${format(found.low)}${unit} and more.` : ` Range: ${format(found.low)} to ${format(found.high)}${unit}.`;
  const counted = (count) => `${count} image${count === 1 ? "" : "s"}`;
  $("definition").textContent = `${found.definition.replace(/[.]?$/, ".")}${range} Values are from ${counted(found.images)}, chance from ${counted(found.chanceImages)} seen by random weights.`;
}

let tableOf = null, markRow = () => {};
function showTable() {
  if (!$("table").open) return;
  const places = META.models.map((model) => current(model).place), key = places.join();
  if (tableOf !== key) {
    tableOf = key;
    const rows = META.models.flatMap((model, k) => META.inspections[places[k]].layers.flatMap((layer, number) => Array.from({ length: layer.heads }, (_, head) => ({
      model: model.name, layer: number, label: String(layer.index + 1), head, key: `${number}.${head}`,
      measures: Object.fromEntries(META.inspections[places[k]].measures.map((measure) => [measure.name, measure])),
    }))));
    $("rows").replaceChildren();
    markRow = headTable($("rows"), rows, measures, several, (layer, head) => choose({ layer, head }));
  }
  markRow(`${state.layer}.${state.head}`);
}
