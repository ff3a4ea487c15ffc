// Curves over training: drawn once, with a cursor that moves.

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "1 2"];

// A series has an x of its own, or shares the chart's. `places` are where the cursor can stand; the function that is returned moves it to one of them.
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
  const across = (series) => series.x || spec.x;
  const xs = spec.series.flatMap(across).filter((x) => !spec.logX || x > 0);
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
    // A label at the right edge ends there, or it would be cut off.
    const atEdge = sx(tick) > width - right - 12;
    const place = { x: atEdge ? width : sx(tick), "text-anchor": atEdge ? "end" : "middle" };
    shape(svg, "text", { ...place, y: height - bottom + 16 }, format(tick));
  }
  shape(svg, "line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" });
  shape(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, spec.xLabel);
  shape(svg, "text", { x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, spec.yLabel);
  const dots = spec.series.map((series, k) => {
    const style = { fill: "none", stroke: `var(--c${k % 6})`, "stroke-width": 2, "stroke-dasharray": DASHES[k % 6] };
    let path = "", drawing = false;
    series.y.forEach((y, n) => {
      const x = across(series)[n];
      if (y === null || (spec.logX && x <= 0)) { drawing = false; return; }
      path += `${drawing ? "L" : "M"}${sx(x).toFixed(1)} ${sy(y).toFixed(1)}`;
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
    for (const { series, label, dot } of dots) {
      const own = across(series);
      let near = 0;
      own.forEach((value, n) => { if (Math.abs(value - x) < Math.abs(own[near] - x)) near = n; });
      const y = series.y[near];
      dot.setAttribute("visibility", y === null ? "hidden" : "visible");
      if (y !== null) { dot.setAttribute("cx", sx(Math.max(first, own[near]))); dot.setAttribute("cy", sy(y)); }
      label.textContent = y === null ? series.name : `${series.name} ${format(y)}`;
    }
  };
}
