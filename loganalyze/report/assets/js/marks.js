// Marks: findings shaded, restarts as dashed lines, events as ticks, NaN as crosses.
const SYMBOL = { critical: "octagon", warning: "triangle-up", info: "circle-open" };
const LOUD = new Set(["exception", "oom", "host_oom", "comm_timeout", "comm_error", "hardware_error", "xid", "killed", "signal", "hang", "checkpoint_failed", "disk_full", "time_limit"]);
const inert = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const MOST_SHADED = 80; // plotly draws each as an element of its own
const about = (run, chart) =>
  run.facts.findings.filter((f) => (chart.hero ? f.severity !== "info" : f.metric === chart.facts.name));

// Overlapping stretches of one severity are shaded once, or their shades would add up.
function stretches(run, chart) {
  const made = [];
  const sorted = about(run, chart).slice(0, MOST_SHADED).map((f) => ({ severity: f.severity, segment: f.segment ?? run.facts.segments[0]?.index ?? 0, first: f.first, last: f.last ?? f.first })).sort((a, b) => a.first - b.first);
  for (const one of sorted) {
    const open = made.findLast((m) => m.severity === one.severity && m.segment === one.segment && one.first <= m.last + 1);
    if (open) open.last = Math.max(open.last, one.last); else made.push(one);
  }
  return made;
}

function shapes(run, chart) {
  const made = [];
  const [a, b] = run.view.range ?? run.facts.steps;
  for (const f of stretches(run, chart)) {
    const x0 = place(run, f.segment, f.first), x1 = place(run, f.segment, f.last);
    const fill = colour(f.severity);
    const long = Math.min(f.last, b) - Math.max(f.first, a) > 0.35 * (b - a);
    made.push({ type: "rect", layer: "below", xref: "x", yref: "paper", x0, x1, y0: long ? 0.98 : 0, y1: 1, fillcolor: fill, opacity: dark() ? 0.2 : 0.13, line: { width: 1, color: fill } });
  }
  for (const s of run.facts.segments) {
    if (s.relation === "start") continue;
    const x = place(run, s.index, s.first);
    made.push({ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { width: 1, dash: "dash", color: colour("faint") } });
  }
  return made;
}

const hidden = { xaxis: "x", yaxis: "y2", mode: "markers", type: "scatter", showlegend: false, cliponaxis: false };

function findingMarks(run, chart) {
  const found = about(run, chart);
  return {
    ...hidden, role: "finding",
    x: found.map((f) => place(run, f.segment ?? 0, f.peak ?? f.first)), y: found.map(() => 0.965),
    customdata: found.map((f) => f.id),
    text: found.map((f) => `<b>${inert(f.id)}</b> ${inert(pick(run.facts.titles[f.kind]))}`),
    hovertemplate: "%{text}<extra></extra>",
    marker: { size: 10, symbol: found.map((f) => SYMBOL[f.severity]), color: found.map((f) => colour(f.severity)), line: { width: 1, color: colour("card") } },
  };
}

function eventMarks(run) {
  const events = run.facts.events;
  return {
    ...hidden, role: "event",
    x: events.map((e) => place(run, e.segment, e.step)), y: events.map(() => 0.015),
    text: events.map((e) => `<b>${inert(pick(e.label))}</b> ${say("step")} ${e.step}<br>${inert(e.text)}`),
    hovertemplate: "%{text}<extra></extra>",
    marker: { size: events.map((e) => (LOUD.has(e.kind) ? 12 : 8)), symbol: "line-ns-open", line: { width: 1.6 }, color: events.map((e) => colour(LOUD.has(e.kind) ? "critical" : "faint")) },
  };
}

const nameOf = (value) => (Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");

function brokenMarks(run, chart) {
  const x = [], text = [];
  for (const curve of chart.curves) {
    if (curve.role !== "raw") continue;
    curve.y.forEach((value, i) => {
      if (Number.isFinite(value)) return;
      x.push(place(run, curve.segment, curve.x[i]));
      text.push(`<b>${nameOf(value)}</b> ${say("step")} ${curve.x[i]}`);
    });
  }
  return {
    ...hidden, role: "nan", x, y: x.map(() => 0.05), text, hovertemplate: "%{text}<extra></extra>",
    marker: { size: 8, symbol: "x-thin-open", line: { width: 2 }, color: colour("critical") },
  };
}
