// Watches runs: asks the server for what is new, and draws it. One document shows the list, or the runs it is asked for.

const $ = (id) => document.getElementById(id);
const EVERY = 1000; // milliseconds between two questions
const POINTS = 500; // of a longer curve, every second (third, ...) point is drawn, and the last
const asked = new URLSearchParams(window.location.search).getAll("at");

async function answer(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

function runAddress(paths) {
  return `/run?${new URLSearchParams(paths.map((path) => ["at", path]))}`;
}

function fileAddress(path) {
  return `/files/${path.split("/").map(encodeURIComponent).join("/")}`;
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

function say(text) {
  if ($("status").textContent !== text) $("status").textContent = text; // words that stay are not read out again
}

// Again and again, but not while nobody looks.
async function watch(look) {
  try {
    if (!document.hidden) await look();
  } catch (error) {
    say(error instanceof TypeError ? "The server does not answer. Trying again." : error.message);
  }
  setTimeout(() => watch(look), EVERY);
}

// The list. Its lines are kept, so that ticks and the focus stay where they are.
const lines = new Map();

function lineOf(run) {
  const line = element(null, "tr");
  const tick = element(element(line, "td"), "input", { type: "checkbox", "aria-label": `Compare ${run.path}` });
  tick.addEventListener("change", () => { $("compare").disabled = ticked().length === 0; });
  element(element(line, "td"), "a", { href: runAddress([run.path]) }, run.path);
  for (let k = 0; k < 3; k += 1) element(line, "td");
  return { line, tick, path: run.path };
}

function ticked() {
  return [...lines.values()].filter(({ tick }) => tick.checked).map(({ path }) => path);
}

function lastWords(last) {
  return Object.entries(last).slice(0, 5).map(([name, value]) => `${name} ${format(value)}`).join(", ");
}

async function look() {
  const { runs, pages } = await answer("/api/runs");
  for (const [path, { line }] of lines) {
    if (runs.some((run) => run.path === path)) continue;
    line.remove();
    lines.delete(path);
  }
  runs.forEach((run, k) => {
    if (!lines.has(run.path)) lines.set(run.path, lineOf(run));
    const { line } = lines.get(run.path), body = $("runs").tBodies[0];
    [run.state, ago(run.idle), lastWords(run.last)].forEach((text, n) => { line.cells[n + 2].textContent = text; });
    line.dataset.state = run.state;
    if (body.children[k] !== line) body.insertBefore(line, body.children[k] ?? null);
  });
  const count = (state) => runs.filter((run) => run.state === state).length;
  say(runs.length ? `${runs.length} run${runs.length === 1 ? "" : "s"}: ${count("running")} running, ${count("finished")} finished, ${count("stopped")} stopped${count("unreadable") ? `, ${count("unreadable")} unreadable` : ""}.` : "There are no runs here yet.");
  links($("loose"), "Pages", pages);
}

function links(parent, title, paths, prefix = "") {
  if (parent.dataset.paths === paths.join("\n")) return;
  parent.dataset.paths = paths.join("\n");
  parent.replaceChildren();
  if (!paths.length) return;
  element(parent, "h2", {}, title);
  const list = element(parent, "ul");
  for (const path of paths) {
    const shown = path.startsWith(prefix) ? path.slice(prefix.length) : path;
    element(element(list, "li"), "a", { href: fileAddress(path) }, shown);
  }
}

// Curves: all records that were read so far of each run.
const watched = asked.map((path) => ({ path, cursor: "", records: [], state: "", drawn: null }));
let movers = [], places = [];

function axisOf() {
  return ["step", "epoch"].find((name) => watched.every((run) => run.records.every((record) => name in record))) ?? null;
}

function curve(run, axis, name) {
  const found = run.records.map((record, k) => [axis ? record[axis] : k + 1, record[name]]).filter(([x, y]) => x !== null && y !== undefined);
  const stride = Math.ceil(found.length / POINTS), kept = found.filter((_, k) => k % stride === 0 || k === found.length - 1);
  return { x: kept.map(([x]) => x), y: kept.map(([, y]) => ($("log").checked && !(y > 0) ? null : y)) };
}

// Curves of one kind share a chart: of one run those whose names end alike, such as train_loss and test_loss; of
// several runs those of one name.
function chartsOf(axis) {
  const names = [...new Set(watched.flatMap((run) => run.records.flatMap((record) => Object.keys(record))))].filter((name) => name !== axis);
  const kindOf = (name) => (watched.length > 1 ? name : name.split(/[^a-zA-Z0-9]+/).pop());
  const kinds = Map.groupBy(names, kindOf);
  return [...kinds].map(([kind, members]) => ({
    title: kind, xLabel: axis ?? "record", yLabel: kind, logX: false, logY: $("log").checked, x: [],
    series: members.flatMap((name) => watched.map((run) => ({ name: watched.length > 1 ? run.path : name, ...curve(run, axis, name) })))
      .filter((series) => series.x.length),
  })).filter((chart) => chart.series.length);
}

function draw() {
  const axis = axisOf(), following = Number($("at").value) >= Number($("at").max), before = places[Number($("at").value)];
  const charts = chartsOf(axis);
  places = [...new Set(charts.flatMap((chart) => chart.series.flatMap((series) => series.x)))].sort((a, b) => a - b);
  $("charts").replaceChildren();
  if (!charts.length) element($("charts"), "p", {}, "No metrics have been written yet.");
  movers = charts.map((chart) => chartView($("charts"), chart, places));
  $("at").max = Math.max(0, places.length - 1);
  $("at").value = following ? places.length - 1 : Math.max(0, places.findIndex((place) => place >= before));
  move(axis);
}

function move(axis) {
  const place = Number($("at").value);
  $("at-name").textContent = places.length ? `${axis ?? "record"} ${format(places[place])}` : "";
  $("at").setAttribute("aria-valuetext", $("at-name").textContent);
  if (places.length) movers.forEach((mover) => mover(place));
}

const STATES = {
  running: "is running", finished: "has finished", stopped: "has stopped without a result",
  unreadable: "has a config.json that cannot be read",
};

async function lookAt() {
  let changed = false;
  for (const run of watched) {
    const told = await answer(`/api/metrics?${new URLSearchParams({ at: run.path, from: run.cursor })}`);
    if (told.restarted) run.records = [];
    run.records.push(...told.records);
    changed ||= told.restarted || told.records.length > 0;
    run.cursor = told.cursor;
    if (run.state !== told.state) await describe(run);
    run.state = told.state;
  }
  if (changed || !movers.length) draw();
  say(watched.map((run) => `${run.path} ${STATES[run.state]}`).join("; ") + ".");
}

async function describe(run) {
  const told = await answer(`/api/run?${new URLSearchParams({ at: run.path })}`);
  run.part ??= element($("details"), "div", { class: "model", role: "group", "aria-label": run.path });
  run.part.replaceChildren();
  if (watched.length > 1) element(run.part, "h2", {}, run.path);
  facts(run.part, "Result", told.result);
  const prefix = run.path === "." ? "" : `${run.path}/`;
  links(element(run.part, "div"), "Pages", told.pages, prefix);
  figures(run.part, told.figures, prefix);
  facts(run.part, "Configuration", told.config);
  facts(run.part, "Environment", told.environment);
}

function facts(parent, title, found) {
  if (!Object.keys(found).length) return;
  element(parent, "h3", {}, title);
  const list = element(parent, "dl");
  for (const [term, value] of Object.entries(found)) {
    element(list, "dt", {}, term);
    element(list, "dd", {}, typeof value === "number" && !Number.isInteger(value) ? format(value) : String(value ?? "\u2013"));
  }
}

function figures(parent, paths, prefix) {
  const pictures = paths.filter((path) => !/\.pdf$/i.test(path));
  if (pictures.length) element(parent, "h3", {}, "Figures");
  for (const path of pictures) {
    const figure = element(parent, "figure");
    element(element(figure, "a", { href: fileAddress(path) }), "img", { src: fileAddress(path), alt: `Figure ${path.slice(prefix.length)}`, loading: "lazy" });
    element(figure, "figcaption", {}, path.slice(prefix.length));
  }
}

if (asked.length) {
  document.title = asked.join(", ");
  $("title").textContent = asked.length === 1 ? asked[0] : `${asked.length} runs`;
  $("watch").hidden = false;
  $("at").addEventListener("input", () => move(axisOf()));
  $("log").addEventListener("change", draw);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  watch(lookAt);
} else {
  $("list").hidden = false;
  $("compare").addEventListener("click", () => { window.location.href = runAddress(ticked()); });
  watch(look);
}
