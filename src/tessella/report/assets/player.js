"use strict";
// Moves images, cursors and numbers through training. One player for each figure.player; its data is the JSON inside.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "1 2"];
// Anchor colours of two perceptually ordered, colour-blind-safe scales: viridis, and blue - white - orange.
const SCALES = {
  sequential: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]],
  diverging: [[5, 72, 137], [103, 169, 207], [247, 247, 247], [239, 154, 94], [158, 62, 8]],
};

function colour(scale, level) {
  const anchors = SCALES[scale];
  const place = level * (anchors.length - 1);
  const low = Math.min(Math.floor(place), anchors.length - 2);
  return anchors[low].map((c, k) => Math.round(c + (anchors[low + 1][k] - c) * (place - low)));
}

function element(parent, tag, attributes = {}, text = null) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function shape(parent, tag, attributes, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function format(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));
  return text.replace(/-/g, "\u2212");
}

function ticks(low, high, log) {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const stride = Math.max(1, Math.ceil((last - first + 1) / 6)), found = [];
    for (let power = first; power <= last; power += stride) found.push(10 ** power);
    return found.length > 1 ? found : [low, high];
  }
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) {
    found.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return found;
}

function imageView(parent, spec) {
  const view = element(parent, "div", { class: "view" });
  element(view, "p", { class: "title" }, spec.name);
  const canvas = element(view, "canvas", { role: "img", "aria-label": spec.description });
  // Several screen pixels an entry, so that the lines between sets are thin beside an entry.
  const zoom = Math.max(1, Math.floor(640 / Math.max(spec.rows, spec.columns)));
  canvas.width = spec.columns * zoom;
  canvas.height = spec.rows * zoom;
  const small = document.createElement("canvas");
  small.width = spec.columns;
  small.height = spec.rows;
  const scale = element(view, "div", { class: "scale" });
  element(scale, "span", {}, format(spec.low));
  const stops = Array.from({ length: 9 }, (_, k) => `rgb(${colour(spec.colours, k / 8)})`).join(",");
  element(scale, "i", { style: `background:linear-gradient(to right,${stops})` });
  element(scale, "span", {}, format(spec.high));
  const hover = element(view, "div", { class: "hover" }, "");
  const palette = Array.from({ length: 256 }, (_, k) => colour(spec.colours, k / 255));
  const frames = spec.frames.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
  let shown = 0;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.min(spec.columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * spec.columns)));
    const row = Math.min(spec.rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * spec.rows)));
    const level = frames[shown][row * spec.columns + column] / 255;
    hover.textContent = `row ${row + 1}, column ${column + 1}: ${format(spec.low + level * (spec.high - spec.low))}`;
  });
  canvas.addEventListener("mouseleave", () => { hover.textContent = ""; });
  return (place) => {
    shown = place;
    const pixels = new ImageData(spec.columns, spec.rows);
    frames[place].forEach((level, k) => pixels.data.set([...palette[level], 255], 4 * k));
    small.getContext("2d").putImageData(pixels, 0, 0);
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    context.fillStyle = spec.colours === "diverging" ? "rgba(0,0,0,.35)" : "rgba(255,255,255,.35)";
    for (const line of spec.blocks) {
      context.fillRect(line * zoom - 1, 0, 2, canvas.height);
      context.fillRect(0, line * zoom - 1, canvas.width, 2);
    }
  };
}

function chartView(parent, spec, places) {
  const view = element(parent, "div", { class: "view" });
  element(view, "p", { class: "title" }, spec.title);
  const legend = element(view, "div", { class: "legend" });
  const [width, height, left, right, top, bottom] = [380, 240, 56, 12, 10, 40];
  const svg = shape(view, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const values = spec.series.flatMap((s) => s.y).filter((y) => y !== null);
  let low = Math.min(...values), high = Math.max(...values);
  if (values.length === 0) [low, high] = [spec.logY ? 0.1 : 0, 1];
  if (low === high) [low, high] = spec.logY ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  else if (!spec.logY) { const margin = 0.04 * (high - low); low -= margin; high += margin; }
  const xs = spec.x.filter((x) => !spec.logX || x > 0);
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const map = (log, from, to, start, stop) => (v) => {
    const [a, b, c] = log ? [Math.log(v), Math.log(from), Math.log(to)] : [v, from, to];
    return c === b ? (start + stop) / 2 : start + ((a - b) / (c - b)) * (stop - start);
  };
  const sx = map(spec.logX, first, last, left, width - right), sy = map(spec.logY, low, high, height - bottom, top);
  for (const tick of ticks(low, high, spec.logY)) {
    shape(svg, "line", { x1: left, x2: width - right, y1: sy(tick), y2: sy(tick), class: "grid" });
    shape(svg, "text", { x: left - 6, y: sy(tick) + 4, "text-anchor": "end" }, format(tick));
  }
  for (const tick of ticks(first, last, spec.logX)) {
    shape(svg, "line", { x1: sx(tick), x2: sx(tick), y1: height - bottom, y2: height - bottom + 4, class: "axis" });
    shape(svg, "text", { x: sx(tick), y: height - bottom + 16, "text-anchor": "middle" }, format(tick));
  }
  shape(svg, "line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" });
  shape(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, spec.xLabel);
  shape(svg, "text", { x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, spec.yLabel);
  const dots = spec.series.map((series, k) => {
    const style = { fill: "none", stroke: `var(--c${k % 6})`, "stroke-width": 2, "stroke-dasharray": DASHES[k % 6] };
    let path = "", drawing = false;
    series.y.forEach((y, n) => {
      if (y === null || (spec.logX && spec.x[n] <= 0)) { drawing = false; return; }
      path += `${drawing ? "L" : "M"}${sx(spec.x[n]).toFixed(1)} ${sy(y).toFixed(1)}`;
      drawing = true;
    });
    shape(svg, "path", { ...style, d: path });
    const key = element(legend, "span");
    shape(shape(key, "svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }), "path", { ...style, d: "M0 4H26" });
    const label = element(key, "span", {}, series.name);
    return { series, label, dot: shape(svg, "circle", { r: 3.5, fill: `var(--c${k % 6})` }) };
  });
  const cursor = shape(svg, "line", { y1: top, y2: height - bottom, class: "cursor" });
  svg.setAttribute("aria-label", `${spec.title}: ${spec.yLabel} over ${spec.xLabel}; ` +
    spec.series.map((s) => `${s.name} ends at ${format([...s.y].reverse().find((y) => y !== null) ?? 0)}`).join(", "));
  return (place) => {
    const x = Math.min(last, Math.max(first, places[place]));
    cursor.setAttribute("x1", sx(x));
    cursor.setAttribute("x2", sx(x));
    let near = 0;
    spec.x.forEach((value, n) => { if (Math.abs(value - x) < Math.abs(spec.x[near] - x)) near = n; });
    for (const { series, label, dot } of dots) {
      const y = series.y[near];
      dot.setAttribute("visibility", y === null ? "hidden" : "visible");
      if (y !== null) { dot.setAttribute("cx", sx(Math.max(first, spec.x[near]))); dot.setAttribute("cy", sy(y)); }
      label.textContent = y === null ? series.name : `${series.name} ${format(y)}`;
    }
  };
}

function start(figure) {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  const holder = document.createElement("div");
  figure.insertBefore(holder, figure.firstChild);
  const controls = element(holder, "div", { class: "controls" });
  const button = element(controls, "button", { type: "button" }, "Play");
  const label = `${figure.id}: ${spec.placeLabel}`;
  const slider = element(controls, "input", { type: "range", min: 0, max: spec.places.length - 1, step: 1, "aria-label": label });
  slider.value = spec.places.length - 1;
  const where = element(controls, "output");
  const readouts = element(holder, "div", { class: "readouts" });
  const numbers = Object.entries(spec.readouts).map(([name, values]) => {
    const part = element(readouts, "span", {}, `${name} `);
    return { values, place: element(part, "b") };
  });
  const views = element(holder, "div", { class: "views" });
  const movers = [
    ...spec.images.map((image) => imageView(views, image)),
    ...spec.charts.map((chart) => chartView(views, chart, spec.places)),
  ];
  const show = () => {
    const place = Number(slider.value);
    where.textContent = `${spec.placeLabel} ${format(spec.places[place])}`;
    slider.setAttribute("aria-valuetext", where.textContent);
    for (const { values, place: target } of numbers) target.textContent = values[place];
    for (const move of movers) move(place);
  };
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
  button.addEventListener("click", () => {
    if (timer) { stop(); return; }
    if (Number(slider.value) === spec.places.length - 1) slider.value = 0;
    button.textContent = "Pause";
    show();
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (Number(slider.value) === spec.places.length - 1) stop();
    }, Math.max(60, 5000 / spec.places.length));
  });
  slider.addEventListener("input", () => { stop(); show(); });
  show();
}

document.querySelectorAll("figure.player").forEach(start);
