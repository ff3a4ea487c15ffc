// Moves images, cursors and numbers through training. One player for each figure.player; its data is the JSON inside.

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
