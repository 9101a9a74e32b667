// Charts: drawn when they scroll into view, linked in step, raw points first.
const NEAR = 400; // points in view up to which each is marked

// Ranges of steps that hold every logged point: pairs, or "all".
function rawOf(run, curve) {
  if (curve.raw === "all") return "all";
  const ends = arrayOf(run.block, curve.raw);
  return Array.from({ length: ends.length / 2 }, (_, i) => [ends[2 * i], ends[2 * i + 1]]);
}

function curvesOf(run, facts) {
  return facts.curves.map((c) => ({
    ...c, x: arrayOf(run.block, c.x), y: arrayOf(run.block, c.y), sx: arrayOf(run.block, c.sx),
    smooth: Object.fromEntries(Object.entries(c.smooth).map(([n, slot]) => [n, arrayOf(run.block, slot)])),
    gaps: new Set(c.gaps), raw: rawOf(run, c),
  }));
}

// Bytes are drawn in the binary unit that fits; everything else as it is.
function scaleOf(chart) {
  if (chart.facts.unit !== "B") return [1, chart.facts.unit];
  let top = 0;
  for (const curve of chart.curves) for (const value of curve.y) if (Number.isFinite(value) && Math.abs(value) > top) top = Math.abs(value);
  const at = Math.min(4, Math.max(0, Math.floor(Math.log2(top || 1) / 10)));
  return [2 ** (-10 * at), ["B", "KiB", "MiB", "GiB", "TiB"][at]];
}

// x and y for plotly: on the chosen axis, with a hole at each gap and each NaN.
function line(run, curve, from, to, factor) {
  const x = [], y = [];
  for (let i = from; i < to; i++) {
    const at = place(run, curve.segment, curve.x[i]);
    x.push(at);
    y.push(Number.isFinite(curve.y[i]) ? curve.y[i] * factor : null);
    if (curve.gaps.has(i)) { x.push(at); y.push(null); }
  }
  return { x, y };
}

function nameOfCurve(curve) {
  if (curve.role !== "raw") return say(curve.role);
  return curve.rank === null ? "" : `${say("rank")} ${curve.rank}`;
}

// A curve is one line, or two where its end was run again by a later segment.
function curveTraces(run, chart, curve, marked) {
  const n = curve.x.length;
  const cut = curve.again === null ? n : curve.x.findIndex((step) => step >= curve.again);
  if (cut < 0 || cut >= n) return [curveTrace(run, chart, curve, marked, 0, n, false)];
  const parts = [curveTrace(run, chart, curve, marked, cut, n, true)];
  return cut > 0 ? [curveTrace(run, chart, curve, marked, 0, cut, false), ...parts] : parts;
}

function curveTrace(run, chart, curve, marked, from, to, old) {
  const name = nameOfCurve(curve) + (old ? ` · ${say("branch")}` : "");
  const stroke = colour(`c${curve.role === "raw" && chart.facts.ranks > 1 ? (curve.rank ?? 0) % 8 : 0}`);
  const thin = curve.role === "low" || curve.role === "high";
  return {
    ...line(run, curve, from, to, chart.scale[0]), type: "scatter", role: curve.role, name: inert(name),
    mode: marked && curve.role === "raw" ? "lines+markers" : "lines",
    connectgaps: false, opacity: old ? 0.5 : 1,
    line: { color: stroke, width: thin ? 0.5 : 1.2 }, marker: { size: 3.5, color: stroke },
    fill: curve.role === "high" ? "tonexty" : "none", fillcolor: dark() ? "rgba(255,255,255,.10)" : "rgba(30,40,50,.10)",
    hovertemplate: `%{y:.6~g} ${inert(chart.scale[1] === "1" ? "" : chart.scale[1])}<extra>${inert(name)}</extra>`,
  };
}

// Segments of one rank are one trace with holes: plotly is slow with hundreds of traces.
function joined(traces) {
  const made = new Map();
  for (const trace of traces) {
    const key = trace.role === "raw" ? `${trace.name}/${trace.opacity}` : trace;
    const open = made.get(key);
    if (!open) { made.set(key, trace); continue; }
    open.x = [...open.x, trace.x[0], ...trace.x];
    open.y = [...open.y, null, ...trace.y];
  }
  return [...made.values()];
}

function smoothTraces(run, chart) {
  const n = run.view.smooth;
  return chart.curves.filter((c) => c.smooth[n]).map((curve) => ({
    type: "scatter", mode: "lines", role: "smooth", name: say("mean", { n }),
    x: [...curve.sx].map((step) => place(run, curve.segment, step)),
    y: [...curve.smooth[n]].map((v) => (Number.isFinite(v) ? v * chart.scale[0] : null)),
    line: { color: colour(chart.facts.ranks > 1 ? `c${(curve.rank ?? 0) % 8}` : "c2"), width: 2.2 }, connectgaps: false,
    hovertemplate: `%{y:.6~g}<extra>${inert(say("mean", { n }))}</extra>`,
  }));
}

function inView(run, chart) {
  const [a, b] = run.view.range ?? [-Infinity, Infinity];
  let low = Infinity, high = -Infinity, count = 0;
  for (const curve of chart.curves) {
    for (let i = 0; i < curve.x.length; i++) {
      const value = curve.y[i] * chart.scale[0];
      if (curve.x[i] < a || curve.x[i] > b || !Number.isFinite(value)) continue;
      if (run.view.scale === "log" && value <= 0) continue;
      count++;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return { low, high, count };
}

function valueRange(run, { low, high }) {
  if (low > high) return undefined;
  if (run.view.scale === "log") { low = Math.log10(low); high = Math.log10(high); }
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low - pad, high + pad];
}

function layout(run, chart, view) {
  const wall = run.view.axis === "wall", range = rangeOnAxis(run);
  const size = parseFloat(getComputedStyle(root).fontSize) / 16; // larger type on very large screens
  const line = colour("line"), soft = colour("soft");
  const bytes = chart.facts.unit === "B" ? ` ${chart.scale[1]}` : "", share = chart.facts.unit === "share";
  return {
    margin: { l: size * (bytes ? 66 : 58), r: 12, t: 6, b: size * (wall ? 36 : 26) }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 11 * size, color: soft },
    showlegend: false, hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: colour("card"), bordercolor: line, font: { color: colour("ink"), size: 12 * size }, align: "left" },
    xaxis: { type: wall ? "date" : "linear", range, autorange: false, gridcolor: "rgba(0,0,0,0)", zeroline: false, linecolor: line, showline: true, ticks: "outside", tickcolor: line, ticklen: 4, exponentformat: "SI", tickformat: run.view.axis === "steps" ? "d" : undefined, showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "dot", spikecolor: colour("faint"), nticks: 6 },
    yaxis: { type: run.view.scale, range: valueRange(run, view), fixedrange: true, gridcolor: line, zeroline: false, exponentformat: "e", ticksuffix: bytes, tickformat: share ? ".3~%" : view.high >= 1e5 ? ".4~s" : undefined, nticks: 5 },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes: shapes(run, chart), uirevision: "linked",
  };
}

const PLOT = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };

async function draw(chart) {
  const { run } = chart;
  const [lib] = await Promise.all([plotly(), loadBlock(run)]);
  chart.curves ??= curvesOf(run, chart.facts);
  chart.scale ??= scaleOf(chart);
  const view = inView(run, chart);
  const marked = view.count <= NEAR && isRaw(chart);
  const traces = [
    ...joined(chart.curves.flatMap((c) => curveTraces(run, chart, c, marked))),
    ...smoothTraces(run, chart), eventMarks(run), brokenMarks(run, chart), findingMarks(run, chart),
  ];
  if (!chart.live) {
    chart.live = document.createElement("div");
    chart.live.className = "live";
    chart.area.append(chart.live);
  }
  await lib.react(chart.live, traces, layout(run, chart, view), PLOT);
  chart.dirty = false;
  describe(chart);
  if (!chart.bound) bind(chart);
}

function bind(chart) {
  chart.bound = true;
  chart.area.querySelector("svg.plot")?.style.setProperty("visibility", "hidden");
  chart.figure.dataset.drawn = "1";
  chart.live.on("plotly_relayout", (change) => {
    const a = change["xaxis.range[0]"], b = change["xaxis.range[1]"];
    if (a === undefined) return;
    setRange(chart.run, [stepAt(chart.run, axisValue(a)), stepAt(chart.run, axisValue(b))]);
  });
  chart.live.on("plotly_doubleclick", () => setRange(chart.run, null));
  chart.live.on("plotly_click", (hit) => {
    const id = hit.points.find((p) => p.data.role === "finding")?.customdata;
    if (id) location.hash = chart.run.prefix + id;
  });
}

// Whether the view holds every logged point.
function isRaw(chart) {
  const range = chart.run.view.range;
  return chart.curves.every((c) => c.raw === "all" || (range && (c.raw.some(([a, b]) => a <= range[0] && range[1] <= b) || c.x.at(-1) < range[0] || c.x[0] > range[1])));
}

// Says how much of the log the view holds.
function describe(chart) {
  const note = chart.figure.querySelector(".res");
  if (!note) return;
  chart.note ??= [...note.childNodes];
  const range = chart.run.view.range;
  if (!range) { note.replaceChildren(...chart.note); return; }
  const n = Math.max(2, Math.round(chart.facts.total / Math.max(1, chart.facts.shown)));
  note.textContent = isRaw(chart) ? say("raw") : say("thinned", { n });
}

// One chart at a time, those in view first; the rest when they come into view.
const queue = new Set();
let drawing = false;
async function work() {
  if (drawing) return;
  drawing = true;
  try {
    while (queue.size) {
      const chart = queue.values().next().value;
      queue.delete(chart);
      await draw(chart);
      await new Promise((done) => setTimeout(done));
    }
  } finally { drawing = false; }
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = entry.target.chart;
    chart.visible = entry.isIntersecting;
    if (chart.visible && chart.dirty) queue.add(chart);
  }
  work();
}, { rootMargin: "150px" });

function redraw(run) {
  for (const chart of run.charts) {
    chart.dirty = true;
    if (chart.visible) queue.add(chart);
  }
  work();
}
