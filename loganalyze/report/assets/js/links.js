// Links: #LA101-3, #step=41200, #steps=100:900, each with &theme=dark, &lang=zh, &axis=wall, ...
function setRange(run, range, quiet = false) {
  run.view.range = range && range[1] > range[0] ? range : null;
  const label = run.node.querySelector(".toolbar .range");
  const ends = run.view.range?.map((x) => Math.round(x));
  label.textContent = ends ? `${say("step")} ${ends[0]} – ${ends[1]}` : "";
  if (!quiet) replaceHash(ends ? `#${run.index ? `run=${run.index + 1}&` : ""}steps=${ends[0]}:${ends[1]}` : " ");
  redraw(run);
}

function replaceHash(hash) {
  try { history.replaceState(null, "", hash === " " ? location.pathname + location.search : hash); } catch { /* forbidden here */ }
}

// The view around a stretch of steps: within the raw points of its metric where they reach.
function around(run, first, last, metric) {
  let [low, high] = run.facts.steps;
  const side = Math.max(last - first, (high - low) / 400, 40);
  for (const curve of run.facts.charts.find((c) => c.name === metric)?.curves ?? []) {
    const raw = run.block ? rawOf(run, curve) : "all";
    const held = raw !== "all" && raw.find(([a, b]) => a <= first && last <= b);
    if (held) [low, high] = held;
  }
  setRange(run, [Math.max(low, first - side), Math.min(high, last + side)], true);
}

function reveal(node, block = "start") {
  for (let up = node; up; up = up.parentElement?.closest("details")) if (up.tagName === "DETAILS") up.open = true;
  node.scrollIntoView({ block });
}

function settings(parts) {
  const known = { theme: ["auto", "light", "dark"], lang: ["en", "zh"] };
  for (const [name, values] of Object.entries(known)) if (values.includes(parts.get(name))) choose(name, parts.get(name));
  const run = runs[Number(parts.get("run") ?? 1) - 1] ?? runs[0];
  for (const name of ["axis", "scale", "smooth"]) {
    if (run && /^\w+$/.test(parts.get(name) ?? "")) choose(`${name}-${run.index}`, parts.get(name));
  }
  return run;
}

function follow() {
  const hash = decodeURIComponent(location.hash.slice(1));
  if (!hash) return;
  const [target, ...rest] = hash.includes("=") && !/^[\w-]+(&|$)/.test(hash) ? ["", hash] : hash.split("&");
  const parts = new URLSearchParams(rest.join("&"));
  const run = settings(parts);
  if (!run) return;
  const steps = parts.get("steps")?.split(":").map(Number);
  const step = parts.has("step") ? Number(parts.get("step")) : NaN;
  if (steps?.length === 2 && steps.every(Number.isFinite)) setRange(run, steps, true);
  else if (Number.isFinite(step)) { around(run, step, step); showCharts(run); }
  if (target) goTo(target);
}

function showCharts(run) {
  document.getElementById(`${run.prefix}charts`)?.scrollIntoView();
}

async function goTo(id) {
  const node = document.getElementById(id);
  if (!node) return;
  const run = runOf(node);
  await loadBlock(run);
  const name = node.dataset.finding ?? (node.matches("tr") ? id.slice(run.prefix.length) : undefined);
  const finding = run.facts.findings.find((f) => f.id === name);
  if (finding) around(run, finding.first, finding.last ?? finding.first, finding.metric);
  reveal(node, name ? "center" : "start");
  for (const old of document.querySelectorAll("tr.at")) old.classList.remove("at");
  node.closest("tr")?.classList.add("at");
  node.focus({ preventScroll: true });
}

async function zoomIncident(node) {
  const run = runOf(node);
  await loadBlock(run);
  const first = Number(node.dataset.first), last = Number(node.dataset.last || node.dataset.first);
  if (node.dataset.first !== "") around(run, first, last);
  showCharts(run);
}

function neighbourRestart(run, direction) {
  const starts = run.facts.segments.filter((s) => s.relation !== "start").map((s) => s.first);
  if (!starts.length) return;
  const [a, b] = run.view.range ?? [run.facts.steps[0], run.facts.steps[0]];
  const middle = (a + b) / 2;
  const next = direction > 0 ? starts.find((s) => s > middle + 1) : starts.findLast((s) => s < middle - 1);
  if (next !== undefined) { around(run, next, next); showCharts(run); }
}
