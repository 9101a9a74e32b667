// Axes: steps to wall time or tokens and back, through knots that the log gave for each segment.
function knots(run, axis, segment) {
  const slots = run.facts.axes[axis]?.[segment];
  if (!slots) return null;
  const key = `${axis}/${segment}`;
  run.knots ??= {};
  run.knots[key] ??= { steps: arrayOf(run.block, slots[0]), values: arrayOf(run.block, slots[1]) };
  return run.knots[key];
}

// Linear between the two neighbours of x in a rising array; clamped at the ends.
function between(from, to, x) {
  let low = 0, high = from.length - 1;
  if (x <= from[0]) return to[0];
  if (x >= from[high]) return to[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= x) low = middle; else high = middle;
  }
  const span = from[high] - from[low];
  return span > 0 ? to[low] + (to[high] - to[low]) * (x - from[low]) / span : to[low];
}

const unitOf = (axis) => (axis === "wall" ? 1000 : 1); // plotly's dates are milliseconds

function place(run, segment, step) {
  const axis = run.view.axis;
  if (axis === "steps") return step;
  const known = knots(run, axis, segment) ?? knots(run, axis, Object.keys(run.facts.axes[axis])[0]);
  return between(known.steps, known.values, step) * unitOf(axis);
}

// Where a step lies if no segment is given: in the last one that holds it.
function placeStep(run, step) {
  const holds = run.facts.segments.filter((s) => s.first <= step && step <= s.last);
  return place(run, holds.at(-1)?.index ?? run.facts.segments.at(-1)?.index ?? 0, step);
}

function stepAt(run, value) {
  const axis = run.view.axis;
  if (axis === "steps") return value;
  const x = value / unitOf(axis);
  let best = null;
  for (const segment of Object.keys(run.facts.axes[axis])) {
    const known = knots(run, axis, segment);
    const off = Math.max(known.values[0] - x, x - known.values.at(-1), 0);
    if (best === null || off < best.off) best = { off, step: between(known.values, known.steps, x) };
  }
  return best.step;
}

const axisValue = (value) => (typeof value === "number" ? value : Date.parse(`${value.replace(" ", "T")}Z`));

// All charts of a run share one range, so that the same place means the same step.
function wholeRange(run) {
  let [low, high] = run.facts.steps;
  if (run.view.axis !== "steps") {
    const ends = Object.keys(run.facts.axes[run.view.axis]).map((s) => knots(run, run.view.axis, s).values);
    low = Math.min(...ends.map((v) => v[0])) * unitOf(run.view.axis);
    high = Math.max(...ends.map((v) => v.at(-1))) * unitOf(run.view.axis);
  }
  const pad = (high - low) * 0.01 || 1;
  return [low - pad, high + pad];
}

function rangeOnAxis(run) {
  const range = run.view.range;
  if (!range) return wholeRange(run);
  const ends = [placeStep(run, range[0]), placeStep(run, range[1])];
  return [Math.min(...ends), Math.max(...ends)];
}
