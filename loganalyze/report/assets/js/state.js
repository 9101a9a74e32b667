// What the reader has chosen: language and theme for the page; axis, scale, mean, range for a run.
const words = jsonOf("words");
const root = document.documentElement;
const language = () => root.dataset.lang;
const pick = (pair) => pair[language() === "zh" ? 1 : 0];

function say(key, values = {}) {
  return pick(words[key]).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

function choose(name, value) {
  const input = document.querySelector(`input[name="${name}"][value="${value}"]`);
  if (!input || (root.dataset[name] ?? (input.checked && value)) === value) return;
  input.checked = true;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

const dark = () => getComputedStyle(root).colorScheme === "dark";
const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

// Attributes in both languages: data-title-en, data-title-zh, ...
function translateAttributes() {
  const lang = language();
  if (root.lang.startsWith(lang)) return;
  root.lang = lang === "zh" ? "zh-CN" : "en";
  for (const name of ["title", "aria-label", "placeholder"]) {
    for (const node of document.querySelectorAll(`[data-${name}-${lang}]`)) {
      node.setAttribute(name, node.getAttribute(`data-${name}-${lang}`));
    }
  }
}

const runs = [...document.querySelectorAll("section.run")].map((node) => ({
  node, index: Number(node.dataset.run), prefix: node.dataset.prefix,
  facts: jsonOf(`facts-${node.dataset.run}`), block: null, charts: [],
  view: { axis: "steps", scale: "linear", smooth: 0, range: null },
}));

for (const { facts } of runs) {
  facts.findings = facts.findings.map((row) => Object.fromEntries(row.map((value, i) => [facts.columns[i], value])));
}

async function loadBlock(run) {
  run.loading ??= unpacked(`block-${run.index}`).then((bytes) => { run.block = bytes; });
  return run.loading;
}

const runOf = (node) => {
  const section = node.closest("section.run");
  return runs.find((run) => run.node === section) ?? runs[0];
};
