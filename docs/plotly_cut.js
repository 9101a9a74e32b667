// Which characters of plotly.js a page can do without: prints the `drop` of loganalyze/plotly.toml.
//
//   npm install acorn acorn-walk          (anywhere; NODE_PATH names the place)
//   python -c "from plotly.offline import get_plotlyjs; print(get_plotlyjs(), end='')" > full.js
//   node docs/plotly_cut.js full.js cut.js
//
// The bundle is one function with some two thousand top-level statements. Scatter is registered by
// plotly's core, so the list that registers every other trace is emptied; then a statement stays if
// it is reached, by the names it uses, from what runs in any case. A name counts as used wherever it
// stands, also where a local of that name hides it: too much may stay, never too little.
// cut.js is the result: check it with `node --check` and with the browser tests.
const fs = require("fs"), acorn = require("acorn"), walk = require("acorn-walk");
const [source, target] = process.argv.slice(2);
const text = fs.readFileSync(source, "utf8");

function outermost(tree) {
  let found = null;
  walk.full(tree, (node) => {
    const statements = node.body?.type === "BlockStatement" ? node.body.body.length : -1;
    if (/Function/.test(node.type) && statements > (found?.body.body.length ?? -1)) found = node;
  });
  return found.body.body;
}

function namesOf(pattern, found = []) {
  if (pattern.type === "Identifier") found.push(pattern.name);
  else if (pattern.type === "ObjectPattern") pattern.properties.forEach((p) => namesOf(p.value ?? p.argument, found));
  else if (pattern.type === "ArrayPattern") pattern.elements.forEach((p) => p && namesOf(p, found));
  else if (pattern.type === "AssignmentPattern") namesOf(pattern.left, found);
  else if (pattern.type === "RestElement") namesOf(pattern.argument, found);
  return found;
}

const isFunction = (node) => ["FunctionExpression", "ArrowFunctionExpression"].includes(node.type);
// A value whose making does nothing else: a function, a literal, wrapper(function), {}.
const isQuiet = (node) => !node || isFunction(node) || ["Literal", "Identifier", "ClassExpression"].includes(node.type)
  || (node.type === "CallExpression" && node.callee.type === "Identifier" && node.arguments.every(isFunction))
  || (node.type === "ObjectExpression" && node.properties.length === 0);

function unitOf(node) {
  if (node.type === "VariableDeclaration") {
    return { node, names: node.declarations.flatMap((d) => namesOf(d.id)), runs: !node.declarations.every((d) => isQuiet(d.init)) };
  }
  const named = ["FunctionDeclaration", "ClassDeclaration"].includes(node.type);
  return { node, names: named ? [node.id.name] : [], runs: !named };
}

const units = outermost(acorn.parse(text, { ecmaVersion: "latest" })).map(unitOf);
const list = /[\w$]+\.register\(\[([\w$(),\s]*)\]\)/.exec(text);
const emptied = [list.index + list[0].indexOf("[") + 1, list.index + list[0].length - 2];

const owners = new Map();
units.forEach((unit, i) => unit.names.forEach((name) => owners.set(name, [...(owners.get(name) ?? []), i])));
for (const unit of units) {
  unit.uses = new Set();
  walk.full(unit.node, (node) => {
    const inList = node.start >= emptied[0] && node.end <= emptied[1];
    if (node.type === "Identifier" && owners.has(node.name) && !inList) unit.uses.add(node.name);
  });
}

// The getters of a namespace, f(namespace, {...}), matter only where the namespace does.
const getters = new Map();
const todo = [];
units.forEach((unit, i) => {
  const call = unit.node.expression?.type === "CallExpression" ? unit.node.expression : null;
  const [space, object] = call?.arguments ?? [];
  if (space?.type === "Identifier" && owners.has(space.name) && object?.type === "ObjectExpression" && call.arguments.length === 2) {
    for (const owner of owners.get(space.name)) getters.set(owner, [...(getters.get(owner) ?? []), i]);
  } else if (unit.runs) todo.push(i);
});
const kept = new Set();
while (todo.length) {
  const i = todo.pop();
  if (kept.has(i)) continue;
  kept.add(i);
  todo.push(...(getters.get(i) ?? []), ...[...units[i].uses].flatMap((name) => owners.get(name)));
}

const drop = [];
const dropped = [emptied, ...units.filter((_, i) => !kept.has(i)).map((u) => [u.node.start, u.node.end])];
for (const [first, last] of dropped.sort((a, b) => a[0] - b[0])) {
  const open = drop.at(-1);
  if (open && /^[\s;]*$/.test(text.slice(open[1], first))) open[1] = Math.max(open[1], last);
  else drop.push([first, last]);
}
let cut = "", at = 0;
for (const [first, last] of drop) { cut += text.slice(at, first); at = last; }
fs.writeFileSync(target, cut + text.slice(at));
console.log(drop.map(([first, last]) => `  [${first}, ${last}],`).join("\n"));
