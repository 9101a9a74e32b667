// Tools: copying, CSV, search, help, keys.
function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => node.classList.remove("on"), 1800);
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); toast(say("copied")); return; } catch { /* older way below */ }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  toast(say(done ? "copied" : "copy_failed"));
}

// The text of a node as shown: the hidden language left out, blanks joined.
const shown = (node) => (node?.innerText ?? "").replace(/\s+/g, " ").trim();
const escaped = (text) => text.replace(/[\\`*_{}[\]<>|~#@]/g, (c) => (c === "@" ? "&#64;" : `\\${c}`));
const fenced = (text) => { const ticks = "`".repeat(Math.max(0, ...[...text.matchAll(/`+/g)].map((m) => m[0].length)) + 1); return `${ticks} ${text} ${ticks}`; };

function incidentMarkdown(card) {
  const wasOpen = card.open;
  card.open = true;
  const title = ["b", ".lead"].map((part) => shown(card.querySelector(`summary .name ${part}`))).filter(Boolean);
  const lines = [`### ${escaped(title.join(", "))}`, "", escaped(shown(card.querySelector(".because"))), "", escaped([...card.querySelectorAll("summary .facts > *")].map(shown).join(" · ")), ""];
  for (const finding of card.querySelectorAll(".finding")) {
    lines.push(`- **${escaped(shown(finding.querySelector("header .code")))} ${escaped(shown(finding.querySelector("header b")))}** ${escaped(shown(finding.querySelector(".meta")))}`);
    for (const item of finding.querySelectorAll(".observed > li")) {
      const quote = item.querySelector(".quote");
      const text = shown(item).replace(shown(quote), "").trim();
      lines.push(`  - ${escaped(text)}`);
      if (quote) lines.push(`    ${fenced(shown(quote))}`);
    }
  }
  for (const cause of card.querySelectorAll(".cause > summary")) lines.push(`- ${escaped(shown(cause.querySelector("b")))} (${escaped(shown(cause.querySelector(".state")))})`);
  const remedies = [...card.querySelectorAll(".do li, .do p")];
  if (remedies.length) lines.push("", `**${escaped(shown(card.querySelector(".do h4")))}**`, "", ...remedies.map((r, i) => `${i + 1}. ${escaped(shown(r))}`));
  const command = card.querySelector(".command code");
  if (command) lines.push("", fenced(command.textContent));
  card.open = wasOpen;
  return `${lines.join("\n")}\n`;
}

// A cell that a spreadsheet would take for a formula is kept as text.
const cell = (value) => {
  let text = String(value ?? "");
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function csvOf(chart) {
  const [a, b] = chart.run.view.range ?? [-Infinity, Infinity];
  const rows = [["run", "metric", "unit", "segment", "rank", "kind", "step", "value"]];
  for (const curve of chart.curves) {
    for (let i = 0; i < curve.x.length; i++) {
      if (curve.x[i] < a || curve.x[i] > b) continue;
      const value = curve.y[i];
      const digits = curve.y instanceof Float32Array ? Number(value.toPrecision(7)) : value;
      rows.push([chart.run.facts.id, chart.facts.name, chart.facts.unit, curve.segment, curve.rank, curve.role, curve.x[i], Number.isFinite(value) ? digits : nameOf(value).replace(/^-/, "minus ")]);
    }
  }
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

async function saveCsv(chart) {
  await loadBlock(chart.run);
  chart.curves ??= curvesOf(chart.run, chart.facts);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvOf(chart)], { type: "text/csv" }));
  link.download = `${chart.facts.name.replace(/[^\w.-]+/g, "_")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function search(input) {
  const box = input.closest(".block"), text = input.value.trim().toLowerCase();
  let hits = 0;
  for (const row of box.querySelectorAll("tbody tr")) {
    row.hidden = text !== "" && !row.textContent.toLowerCase().includes(text);
    hits += !row.hidden;
  }
  box.querySelector(".none").hidden = hits > 0;
}

const stops = () => [...document.querySelectorAll(".incident, .finding, .findings tbody tr")].filter((node) => node.offsetParent !== null);

function move(direction) {
  const all = stops(), bar = 90;
  const tops = all.map((node) => node.getBoundingClientRect().top);
  const current = all.indexOf(document.activeElement.closest?.(".incident, .finding, .findings tbody tr"));
  const at = current >= 0 ? current + direction : direction > 0 ? tops.findIndex((top) => top > bar) : tops.findLastIndex((top) => top < bar - 20);
  const node = all[at];
  if (!node) return;
  const target = node.querySelector(":scope > summary") ?? node.querySelector("a") ?? node;
  target.focus({ preventScroll: true });
  node.scrollIntoView({ block: "center" });
}

function cycle(name, values) {
  choose(name, values[(values.indexOf(root.dataset[name]) + 1) % values.length]);
}

const here = () => document.activeElement.closest?.(".incident") ?? document.querySelector(".incident[open]") ?? document.querySelector(".incident");
const runHere = () => runs.find((run) => run.node.getBoundingClientRect().bottom > 120) ?? runs[0];

const KEYS = {
  j: () => move(1), k: () => move(-1), t: () => cycle("theme", ["auto", "light", "dark"]), l: () => cycle("lang", ["en", "zh"]),
  f: () => runHere() && setRange(runHere(), null), "[": () => neighbourRestart(runHere(), -1), "]": () => neighbourRestart(runHere(), 1),
  "?": () => document.getElementById("help").showModal(),
  c: () => { const card = here(); if (card) copy(incidentMarkdown(card)); },
  "/": () => { const box = document.querySelector("input[type=search]"); box?.scrollIntoView({ block: "center" }); box?.focus(); },
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input[type=search], textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

const DO = {
  help: () => KEYS["?"](), copy: (node) => copy(node.previousElementSibling.textContent),
  zoom: (node) => zoomIncident(node.closest(".incident")), markdown: (node) => copy(incidentMarkdown(node.closest(".incident"))),
  fit: (node) => setRange(runOf(node), null), csv: (node) => saveCsv(node.closest("figure").chart),
};
