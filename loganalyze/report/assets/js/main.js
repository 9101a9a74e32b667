// Start: choices recalled, charts watched, links followed.

function onChange(event) {
  const { name, value, type } = event.target;
  if (type !== "radio") return;
  if (name === "lang" || name === "theme") {
    translateAttributes();
    runs.forEach(redraw);
    return;
  }
  const [what, index] = name.split("-");
  const run = runs[Number(index)];
  run.view[what] = what === "smooth" ? Number(value) : value;
  redraw(run);
}

function chartsOf(run) {
  for (const figure of run.node.querySelectorAll("figure.chart[data-chart]")) {
    const facts = run.facts.charts[Number(figure.dataset.chart)];
    const chart = { run, figure, facts, area: figure.querySelector(".plot-area"), hero: figure.dataset.hero === "1", dirty: true, visible: false };
    figure.chart = chart;
    run.charts.push(chart);
    watcher.observe(figure);
  }
  for (const label of run.node.querySelectorAll("label[data-axis]")) {
    const axis = label.dataset.axis;
    if (axis !== "steps" && !run.facts.axes[axis]) {
      label.querySelector("input").disabled = true;
      label.title = say("no_axis");
      label.style.opacity = 0.4;
    }
  }
}

function heatTip(event) {
  const image = event.target.closest?.(".heat img");
  if (!image) return;
  const figure = image.closest(".heat"), box = image.getBoundingClientRect();
  const { first, last } = figure.dataset;
  const step = Math.round(Number(first) + (Number(last) - Number(first)) * (event.clientX - box.left) / box.width);
  const ends = [...figure.querySelectorAll(".ends i")].map((i) => Number(i.textContent));
  const rank = Math.floor(ends[0] + (ends[1] - ends[0] + 1) * (event.clientY - box.top) / box.height);
  image.title = `${say("rank")} ${Math.min(rank, ends[1])} · ${say("step")} ${step}`;
}

document.addEventListener("change", onChange);
document.addEventListener("keydown", onKey);
document.addEventListener("mousemove", heatTip, { passive: true });
document.addEventListener("input", (event) => { if (event.target.type === "search") search(event.target); });
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) DO[button.dataset.do](button);
});
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => { for (const node of document.querySelectorAll("details")) node.open = true; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => runs.forEach(redraw));

translateAttributes();
if (typeof DecompressionStream === "function") runs.forEach(chartsOf);
else toast(say("no_charts"));
follow();
