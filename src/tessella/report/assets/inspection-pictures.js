// Pictures: a scene is drawn once and then painted on a canvas, or written as SVG or PNG. A picture is a scene with a
// title, words for those who do not see it, a line of numbers for the place under the pointer, and buttons that save it.

const SMOOTHED = 24; // pixels across from which a photograph is easier to recognise smooth; drawings of fewer are their pixels

const LIGHT = { ink: "#1d2330", quiet: "#5a6373", line: "#d9dde3", ground: "#ffffff", mark: "#d55e00", none: "#e4e7ec", accent: "#0b5fa5" };
const DARK = { ink: "#e7eaf0", quiet: "#a3adbb", line: "#363d49", ground: "#1c2129", mark: "#ff9a4d", none: "#2b313c", accent: "#6bb8f2" };

class Scene {
  constructor(width, height) {
    Object.assign(this, { width, height, items: [], regions: [] });
  }

  add(kind, item) {
    this.items.push({ kind, ...item });
    return this;
  }

  // A matrix of colours, row by row. `alphas` are given where something shines through.
  heat(x, y, w, h, columns, colours, alphas = null) {
    return this.add("heat", { x, y, w, h, columns, rows: colours.length / columns, colours, alphas });
  }

  text(x, y, string, more = {}) {
    return this.add("text", { x, y, string, size: 12, fill: "ink", anchor: "start", ...more });
  }

  frame(x, y, w, h, stroke, width) {
    return this.add("frame", { x, y, w, h, stroke, width });
  }

  line(x1, y1, x2, y2, stroke, width = 1, dash = []) {
    return this.add("line", { x1, y1, x2, y2, stroke, width, dash });
  }

  // The chosen patch: two rings, so that one of them stands out on any ground.
  marker(x, y, w, h) {
    return this.frame(x - 0.5, y - 0.5, w + 1, h + 1, "#000000", 3.5).frame(x - 0.5, y - 0.5, w + 1, h + 1, "#ffffff", 1.5);
  }

  // A bar of the scale between two numbers, with its name, and a tick where chance lies.
  scaleBar(x, y, w, scale, low, high, label, chance = null) {
    this.heat(x, y, w, 9, 64, Array.from({ length: 64 }, (_, k) => PALETTES[scale][Math.round((k * 255) / 63)]));
    this.text(x, y + 23, format(low), { size: 11, fill: "quiet" });
    this.text(x + w, y + 23, format(high), { size: 11, fill: "quiet", anchor: "end" });
    const room = w - 84, ticked = chance !== null && high > low;
    const words = ticked ? `chance ${format(chance)}` : label;
    const at = ticked ? x + (w * (chance - low)) / (high - low) : x + w / 2;
    if (ticked) this.line(at, y - 4, at, y + 13, "ink", 2);
    const near = Math.min(x + w - 76, Math.max(x + 76, at));
    return this.text(near, y + 23, words, { size: 11, fill: ticked ? "ink" : "quiet", anchor: "center", limit: room });
  }

  // A part that answers the pointer: `about(row, column)` gives its words, `press(row, column)` acts on a click.
  region(x, y, w, h, rows, columns, about, press = null) {
    this.regions.push({ x, y, w, h, rows, columns, about, press });
    return this;
  }

  hit(x, y) {
    const found = this.regions.find((r) => x >= r.x && y >= r.y && x < r.x + r.w && y < r.y + r.h);
    if (!found) return null;
    const row = Math.floor(((y - found.y) / found.h) * found.rows), column = Math.floor(((x - found.x) / found.w) * found.columns);
    return { region: found, row, column };
  }
}

// A matrix of colours as a canvas with one pixel an entry.
function pixelsOf(item) {
  const small = document.createElement("canvas");
  [small.width, small.height] = [item.columns, item.rows];
  const pixels = new ImageData(item.columns, item.rows);
  item.colours.forEach((c, k) => {
    if (!c) return;
    [pixels.data[4 * k], pixels.data[4 * k + 1], pixels.data[4 * k + 2]] = c;
    pixels.data[4 * k + 3] = item.alphas ? Math.round(255 * item.alphas[k]) : 255;
  });
  small.getContext("2d").putImageData(pixels, 0, 0);
  return small;
}

const PAINTERS = {
  heat(context, item) {
    context.imageSmoothingEnabled = false;
    context.drawImage(pixelsOf(item), item.x, item.y, item.w, item.h);
  },
  image(context, item) {
    context.imageSmoothingEnabled = item.source.naturalWidth >= SMOOTHED;
    context.drawImage(item.source, item.x, item.y, item.w, item.h);
  },
  rect(context, item, of) {
    context.fillStyle = of(item.fill);
    context.fillRect(item.x, item.y, item.w, item.h);
  },
  frame(context, item, of) {
    context.setLineDash([]);
    [context.strokeStyle, context.lineWidth] = [of(item.stroke), item.width];
    context.strokeRect(item.x, item.y, item.w, item.h);
  },
  line(context, item, of) {
    context.setLineDash(item.dash);
    [context.strokeStyle, context.lineWidth] = [of(item.stroke), item.width];
    context.beginPath();
    context.moveTo(item.x1, item.y1);
    context.lineTo(item.x2, item.y2);
    context.stroke();
  },
  dot(context, item, of) {
    context.beginPath();
    context.arc(item.x, item.y, item.r, 0, 2 * Math.PI);
    context.fillStyle = of(item.fill);
    context.fill();
  },
  text(context, item, of) {
    context.font = `${item.bold ? "600 " : ""}${item.size}px system-ui, "Segoe UI", Arial, sans-serif`;
    [context.fillStyle, context.textAlign] = [of(item.fill), item.anchor];
    context.fillText(item.string, item.x, item.y, item.limit);
  },
};

const MARGIN = 10; // around a saved picture, whose caption stands in a line above it
const CAPTION = 24;

function captionOf(text, width) {
  return { x: 0, y: -10, string: text, size: 13, fill: "ink", anchor: "start", bold: true, limit: width };
}

// On the page a picture is bare; a saved one has a ground, a margin and its caption.
function paint(canvas, scene, theme, ratio, caption = null) {
  const [margin, above] = caption ? [MARGIN, MARGIN + CAPTION] : [0, 0];
  canvas.width = Math.round((scene.width + 2 * margin) * ratio);
  canvas.height = Math.round((scene.height + margin + above) * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  if (caption) {
    PAINTERS.rect(context, { x: 0, y: 0, w: canvas.width, h: canvas.height, fill: theme.ground }, (c) => c);
    context.translate(margin, above);
    PAINTERS.text(context, captionOf(caption, scene.width), (c) => theme[c] || c);
  }
  for (const item of scene.items) PAINTERS[item.kind](context, item, (c) => theme[c] || c);
}

const MOST_RECTANGLES = 20000; // a larger matrix stands in an SVG as pixels

const WRITERS = {
  heat(svg, item) {
    if (item.colours.length > MOST_RECTANGLES) {
      shape(svg, "image", { x: item.x, y: item.y, width: item.w, height: item.h, href: pixelsOf(item).toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" });
      return;
    }
    const group = shape(svg, "g", { "shape-rendering": "crispEdges" });
    const [w, h] = [item.w / item.columns, item.h / item.rows];
    for (let k = 0; k < item.colours.length; k += 1) {
      if (!item.colours[k]) continue;
      const from = k, fill = `rgb(${item.colours[k]})`;
      // Neighbours of one colour are one rectangle.
      while (!item.alphas && (k + 1) % item.columns && `rgb(${item.colours[k + 1]})` === fill) k += 1;
      const made = { x: short(item.x + (from % item.columns) * w), y: short(item.y + Math.floor(from / item.columns) * h), width: short((k - from + 1) * w), height: short(h), fill };
      shape(group, "rect", item.alphas ? { ...made, "fill-opacity": short(item.alphas[k]) } : made);
    }
  },
  image(svg, item) {
    shape(svg, "image", { x: item.x, y: item.y, width: item.w, height: item.h, href: item.source.src, preserveAspectRatio: "none", "image-rendering": item.source.naturalWidth >= SMOOTHED ? "auto" : "pixelated" });
  },
  rect(svg, item, of) {
    shape(svg, "rect", { x: item.x, y: item.y, width: item.w, height: item.h, fill: of(item.fill) });
  },
  frame(svg, item, of) {
    shape(svg, "rect", { x: short(item.x), y: short(item.y), width: short(item.w), height: short(item.h), fill: "none", stroke: of(item.stroke), "stroke-width": item.width });
  },
  line(svg, item, of) {
    shape(svg, "line", { x1: short(item.x1), y1: short(item.y1), x2: short(item.x2), y2: short(item.y2), stroke: of(item.stroke), "stroke-width": item.width, "stroke-dasharray": item.dash.join(" ") || "none" });
  },
  dot(svg, item, of) {
    shape(svg, "circle", { cx: short(item.x), cy: short(item.y), r: item.r, fill: of(item.fill) });
  },
  text(svg, item, of) {
    const anchor = item.anchor === "center" ? "middle" : item.anchor;
    shape(svg, "text", { x: short(item.x), y: short(item.y), "font-size": item.size, "font-weight": item.bold ? 600 : 400, "text-anchor": anchor, fill: of(item.fill), "font-family": "system-ui, Arial, sans-serif", ...squeezed(item) }, item.string);
  },
};

// A canvas narrows text that is too long; SVG is told to where the measured text is longer than its limit.
function squeezed(item) {
  if (!item.limit) return {};
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${item.bold ? "600 " : ""}${item.size}px system-ui, Arial, sans-serif`;
  return context.measureText(item.string).width > item.limit ? { textLength: short(item.limit), lengthAdjust: "spacingAndGlyphs" } : {};
}

function short(value) {
  return Number(value.toFixed(2));
}

function vector(scene, caption, words) {
  const [width, height] = [short(scene.width + 2 * MARGIN), short(scene.height + 2 * MARGIN + CAPTION)], light = (c) => LIGHT[c] || c;
  const svg = shape(null, "svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  shape(svg, "title", {}, caption);
  shape(svg, "desc", {}, words);
  WRITERS.rect(svg, { x: 0, y: 0, w: width, h: height, fill: "ground" }, light);
  const inner = shape(svg, "g", { transform: `translate(${MARGIN} ${MARGIN + CAPTION})` });
  WRITERS.text(inner, captionOf(caption, scene.width), light);
  for (const item of scene.items) WRITERS[item.kind](inner, item, light);
  return new XMLSerializer().serializeToString(svg);
}

function keep(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// One picture on the page. `build(width)` gives its scene, `words()` its text alternative, `caption()` what it is saved as.
function picture(parent, { kind, title, build, words, caption, widest = 560, keys = null }) {
  const figure = element(parent, "figure", { class: `picture ${kind}` });
  const head = element(figure, "figcaption");
  element(head, "span", { class: "title" }, title);
  const save = element(head, "span", { class: "save" });
  const canvas = element(figure, "canvas", keys ? { tabindex: 0, role: "application" } : { role: "img" });
  const readout = element(figure, "p", { class: "readout" });
  let scene = null, over = null, drawnWidth = 0;
  for (const [ending, blob] of [["SVG", savedVector], ["PNG", savedPixels]]) {
    const button = element(save, "button", { type: "button", "aria-label": `Save ${title} as ${ending}` }, ending);
    button.addEventListener("click", async () => keep(await blob(), `${plainName(caption())}.${ending.toLowerCase()}`));
  }
  function savedVector() {
    return new Blob([vector(build(widest), caption(), words())], { type: "image/svg+xml" });
  }
  function savedPixels() {
    const target = document.createElement("canvas");
    paint(target, build(widest), LIGHT, 3, caption());
    return new Promise((done) => { target.toBlob(done, "image/png"); });
  }
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return scene ? scene.hit(((event.clientX - box.left) / box.width) * scene.width, ((event.clientY - box.top) / box.height) * scene.height) : null;
  };
  const tell = () => {
    const found = over && place(over);
    readout.textContent = found ? found.region.about(found.row, found.column) : "";
    canvas.style.cursor = found && found.region.press ? "pointer" : "default";
  };
  canvas.addEventListener("pointermove", (event) => { over = event; tell(); });
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return; // a finger that was lifted leaves its numbers to be read
    over = null;
    tell();
  });
  canvas.addEventListener("click", (event) => {
    const found = place(event);
    if (found && found.region.press) found.region.press(found.row, found.column);
  });
  if (keys) canvas.addEventListener("keydown", (event) => { if (keys(event)) event.preventDefault(); });
  function update() {
    drawnWidth = figure.clientWidth;
    if (figure.hidden || drawnWidth < 40) return;
    scene = build(Math.min(widest, drawnWidth));
    paint(canvas, scene, isDark() ? DARK : LIGHT, Math.min(3, Math.max(2, window.devicePixelRatio)));
    canvas.style.width = `${scene.width}px`;
    canvas.setAttribute("aria-label", words());
    tell();
  }
  let ready = false; // the observer reports once at the start, before anything is chosen
  new ResizeObserver(() => { if (ready && figure.clientWidth !== drawnWidth) update(); }).observe(figure);
  return {
    show: (there) => { figure.hidden = !there; },
    update: () => { ready = true; update(); },
  };
}

function plainName(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) || "picture";
}
