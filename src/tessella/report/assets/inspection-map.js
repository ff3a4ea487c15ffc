// Every head at once: a map of layers by heads coloured by a measure, the measure over depth, and a table that sorts.

// What a head shows of a measure: its value, or how far it lies from what random weights give, or from what the same
// head of the first model gives.
function shown(measure, layer, head, difference, first = null) {
  const value = measure?.values[layer]?.[head] ?? null;
  if (difference === "value") return value;
  const against = difference === "first" ? measureNamed(first, measure?.name) : null;
  const other = (difference === "first" ? against?.values[layer]?.[head] : measure?.chance[layer]?.[head]) ?? null;
  return value === null || other === null ? null : value - other;
}

function measureNamed(inspection, name) {
  return inspection.measures.find((measure) => measure.name === name);
}

// One scale for all models and steps, so that their colours can be compared.
function mapScale(name, difference, first) {
  const found = META.inspections.map((inspection) => measureNamed(inspection, name)).filter(Boolean);
  if (difference !== "value") {
    const sizes = found.flatMap((measure) => finite(measure.values.flatMap((row, l) => row.map((_, h) => shown(measure, l, h, difference, first)))));
    const most = Math.max(1e-9, ...sizes.map(Math.abs));
    return { palette: "diverging", low: -most, high: most };
  }
  const values = finite(found.flatMap((measure) => [...measure.values.flat(), ...measure.chance.flat()]));
  if (!values.length) return { palette: "sequential", low: 0, high: 1 };
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return { palette: "sequential", low, high: high > low ? high : low + 1e-9 };
}

// A layer's heads in the order in which the map shows them.
function headOrder(layer, measure, number, view) {
  const heads = Array.from({ length: layer.heads }, (_, head) => head);
  if (view.order !== "value") return heads;
  const of = (head) => shown(measure, number, head, view.difference, view.first) ?? -Infinity;
  return heads.sort((a, b) => of(b) - of(a) || a - b);
}

function aboutHead(inspection, measure, layer, head) {
  const unit = measure.unit ? ` ${measure.unit}` : "";
  const named = `layer ${inspection.layers[layer].index + 1}, head ${head + 1}`;
  return `${named}: ${measure.name} ${format(shown(measure, layer, head, "value"))}${unit}, chance ${format(measure.chance[layer]?.[head])}${unit}`;
}

function measureLabel(measure, difference) {
  const unit = measure.unit ? `, ${measure.unit}` : "";
  return `${difference === "value" ? "" : "difference in "}${measure.name}${unit}`;
}

// `view` is { measure, difference, first, order, layer, head }; `press(layer, head)` chooses a head.
function mapScene(inspection, view, width, press) {
  const measure = measureNamed(inspection, view.measure), scale = mapScale(view.measure, view.difference, view.first);
  const count = inspection.layers.length, most = Math.max(...inspection.layers.map((layer) => layer.heads));
  const [left, top] = [44, 34], cell = Math.max(4, Math.min(40, (width - left - 2) / most));
  const tall = Math.max(12, Math.min(26, cell)), scene = new Scene(width, top + count * tall + 52);
  const label = measureLabel(measure, view.difference), order = view.order === "value" ? "each layer from high to low" : "heads across";
  scene.text(left, 11, `${label} \u00b7 ${order}`, { size: 11, fill: "quiet", limit: width - left });
  scene.text(left - 8, 27, "layer", { size: 11, fill: "quiet", anchor: "end" });
  const every = Math.ceil(18 / cell);
  for (let k = 0; view.order !== "value" && k < most; k += every) {
    scene.text(left + (k + 0.5) * cell, 27, String(k + 1), { size: 11, fill: "quiet", anchor: "center" });
  }
  inspection.layers.forEach((layer, number) => {
    const heads = headOrder(layer, measure, number, view), y = top + number * tall;
    scene.text(left - 8, y + tall / 2 + 4, String(layer.index + 1), { size: 11, fill: "quiet", anchor: "end" });
    heads.forEach((head, k) => {
      const value = shown(measure, number, head, view.difference, view.first), x = left + k * cell;
      const share = (value - scale.low) / (scale.high - scale.low);
      scene.add("rect", { x: x + 0.5, y: y + 0.5, w: cell - 1, h: tall - 1, fill: value === null ? "none" : `rgb(${colour(scale.palette, share)})` });
      if (value === null) scene.text(x + cell / 2, y + tall / 2 + 4, "\u2013", { size: 11, fill: "quiet", anchor: "center" });
    });
    const about = (_, k) => aboutHead(inspection, measure, number, heads[k]);
    scene.region(left, y, cell * layer.heads, tall, 1, layer.heads, about, (_, k) => press(number, heads[k]));
  });
  const chosen = headOrder(inspection.layers[view.layer], measure, view.layer, view).indexOf(view.head);
  scene.marker(left + chosen * cell + 1.5, top + view.layer * tall + 1.5, cell - 3, tall - 3);
  const chance = view.difference === "value" ? mean(measure.chance.flat()) : null;
  return scene.scaleBar(left, top + count * tall + 14, Math.min(width - left - 2, 340), scale.palette, scale.low, scale.high, label, chance);
}

// The measure over depth: a dot for each head, a line through the layers' means, and a dashed one through chance.
function depthScene(inspection, view, width, press) {
  const measure = measureNamed(inspection, view.measure), { low, high } = mapScale(view.measure, view.difference, view.first);
  const count = inspection.layers.length, [left, right, top, height] = [52, 10, 26, 214], scene = new Scene(width, height + 48);
  const sx = (number) => left + ((number + 0.5) / count) * (width - left - right);
  const sy = (value) => top + (height - top) * (1 - (value - low) / (high - low)) * 0.96 + 3;
  scene.text(left, 13, measureLabel(measure, view.difference), { size: 11, fill: "quiet", limit: width - left - right });
  for (const tick of ticks(low, high)) {
    scene.line(left, sy(tick), width - right, sy(tick), "line");
    scene.text(left - 6, sy(tick) + 4, format(tick), { size: 11, fill: "quiet", anchor: "end" });
  }
  const every = Math.ceil((count * 22) / (width - left - right));
  inspection.layers.forEach((layer, number) => {
    if (number % every === 0) scene.text(sx(number), height + 20, String(layer.index + 1), { size: 11, fill: "quiet", anchor: "center" });
  });
  scene.text(width - right, height + 40, "layer", { size: 11, fill: "quiet", anchor: "end" });
  scene.line(left, height + 36, left + 18, height + 36, "accent", 2).text(left + 23, height + 40, "mean of the heads", { size: 11 });
  scene.line(left + 138, height + 36, left + 156, height + 36, "mark", 2, [5, 4]);
  scene.text(left + 161, height + 40, { value: "chance", chance: "chance (0)", first: "no difference" }[view.difference], { size: 11 });
  const curve = (of, stroke, dash) => {
    let last = null;
    for (let number = 0; number < count; number += 1) {
      const value = of(number);
      if (value !== null && last !== null) scene.line(sx(number - 1), sy(last), sx(number), sy(value), stroke, 2, dash);
      last = value;
    }
  };
  const heads = (number) => Array.from({ length: inspection.layers[number].heads }, (_, head) => shown(measure, number, head, view.difference, view.first));
  curve((number) => mean(heads(number)), "accent", []);
  curve((number) => (view.difference === "value" ? mean(measure.chance[number] ?? []) : 0), "mark", [5, 4]);
  for (let number = 0; number < count; number += 1) {
    heads(number).forEach((value, head) => {
      if (value === null) return;
      const chosen = number === view.layer && head === view.head, [x, y] = [sx(number), sy(value)];
      if (chosen) scene.add("dot", { x, y, r: 7, fill: "mark" });
      scene.add("dot", { x, y, r: chosen ? 4 : 3, fill: "accent" });
      scene.region(x - 5, y - 5, 10, 10, 1, 1, () => aboutHead(inspection, measure, number, head), () => press(number, head));
    });
  }
  return scene;
}

// A row for each head of each model, sorted by the column whose heading was pressed.
function headTable(parent, rows, measures, withModel, press) {
  const table = element(element(parent, "div", { class: "scroll heads", tabindex: 0, role: "region", "aria-label": "Every head's measures" }), "table");
  const head = element(element(table, "thead"), "tr"), body = element(table, "tbody");
  const columns = [
    ...(withModel ? [{ title: "model", of: (row) => row.model }] : []),
    { title: "layer", of: (row) => row.layer + 1, shown: (row) => row.label },
    { title: "head", of: (row) => row.head + 1 },
    ...measures.map((name) => ({ title: name, of: (row) => shown(row.measures[name], row.layer, row.head, "value"), number: true })),
  ];
  let sorted = null, up = true;
  const fill = () => {
    const found = [...rows];
    if (sorted) {
      found.sort((a, b) => {
        const [x, y] = [sorted.of(a), sorted.of(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
      });
    }
    body.replaceChildren(...found.map(lineOf));
    columns.forEach((column, k) => head.children[k].setAttribute("aria-sort", column !== sorted ? "none" : up ? "ascending" : "descending"));
  };
  const lineOf = (row) => {
    const line = element(null, "tr", { "data-key": row.key });
    for (const column of columns) {
      if (column.title === "head") {
        const choose = element(element(line, "td"), "button", { type: "button", "aria-label": `Show layer ${row.label}, head ${row.head + 1}` }, String(row.head + 1));
        choose.addEventListener("click", () => press(row.layer, row.head));
      } else if (column.number) element(line, "td", { class: "number" }, format(column.of(row)));
      else element(line, "td", {}, String(column.shown ? column.shown(row) : column.of(row)));
    }
    return line;
  };
  for (const column of columns) {
    const button = element(element(head, "th", { scope: "col", class: column.number ? "number" : "" }), "button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      up = sorted === column ? !up : !column.number;
      sorted = column;
      fill();
    });
  }
  fill();
  return (key) => {
    for (const line of body.children) line.toggleAttribute("data-chosen", line.dataset.key.endsWith(key));
  };
}
