"""The structure of the code: layers, fences, sizes, and what --help may import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import loganalyze_parsers
import pytest

import loganalyze

ROOTS = {
    "loganalyze": Path(next(iter(loganalyze.__path__))),
    "loganalyze_parsers": Path(next(iter(loganalyze_parsers.__path__))),
}
#: Module (or package) of loganalyze -> layer; a module may import its own layer's package and
#: lower layers only. Siblings of one layer never import each other, but for the names in one row.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("model", "errors", "lazy", "running", "compiled", "kept", "memory_rows"),
    ("config", "masking", "series", "tracks", "store", "spill", "leftovers", "segments", "assemble",
     "inputs", "knowledge", "reruns", "frames_join", "engine", "resumed",
     "store_parts", "rank_states", "rank_layout", "leads", "digest",
     "remote", "scratch", "plain_data", "products", "sequence_length", "columns", "long_runs",
     "event_rows", "line_places", "rank_column"),
    ("loganalyze_parsers", "detectors", "checks", "profile"),
    ("ingest", "baseline", "diagnose", "incidents", "pipeline", "explain", "grouping", "parts",
     "same_run", "budget", "coverage", "continued", "attempts", "reading", "shards", "wide",
     "parser_state", "grown", "regrown", "ranges", "rank_rows"),
    ("report", "replay", "compare", "verify", "demo"),
    ("watch", "audit"),
    ("cli", "commands", "__main__"),
)
#: Third-party module -> the modules that alone may import it.
FENCES = {
    "torch": ("loganalyze.replay",),
    "plotly": ("loganalyze.report.charts",),
    "scipy": (),  # a third of a second at each start; the tests measure ours against it
    "click": ("loganalyze.cli", "loganalyze.commands"),
    "rich": ("loganalyze.commands", "loganalyze.report"),
}
#: They hold the sources to account, not the wheel.
pytestmark = pytest.mark.slow
NETWORK = (
    "socket", "http", "urllib.request", "urllib3", "requests", "httpx", "aiohttp", "ssl", "ftplib",
    "smtplib", "telnetlib", "xmlrpc", "socketserver", "websocket", "websockets", "grpc",
)  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of both packages: dotted name and file."""
    for package, root in ROOTS.items():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            yield name, path


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def part_of(name: str) -> str:
    """The unit of the layer table that a module belongs to."""
    pieces = name.split(".")
    if pieces[0] == "loganalyze_parsers":
        return "loganalyze_parsers"
    part = pieces[1] if len(pieces) > 1 else "model"
    family = part.split("_")[0]
    return family if family in ("series", "verify") else part


def layer_of(part: str) -> int:
    """Index of the layer; fails the test for a module that has no place in the table."""
    for index, layer in enumerate(LAYERS):
        if part in layer:
            return index
    raise AssertionError(f"{part} has no place in the table of layers")


def test_lower_layers_never_import_upper_ones() -> None:
    """A module imports lower layers only, and of its own layer only what stands in one row."""
    wrong = []
    for name, path in modules():
        own = part_of(name)
        for target in imports(path):
            if target.split(".")[0] not in ROOTS or target == "loganalyze.__version__":
                continue
            other = part_of(target)
            if other in ("__version__",) or other == own:
                continue
            if layer_of(other) > layer_of(own):
                wrong.append(f"{name} imports {target}")
    assert not wrong


@pytest.mark.parametrize("part", ["loganalyze_parsers", "detectors", "checks"])
def test_siblings_never_import_each_other(part: str) -> None:
    """Parsers, detectors and checks know nothing of each other."""
    siblings = {"loganalyze_parsers", "detectors", "checks"} - {part}
    for name, path in modules():
        if part_of(name) == part:
            assert not siblings & {part_of(t) for t in imports(path) if t.split(".")[0] in ROOTS}


def test_no_import_cycle() -> None:
    """No two modules import each other, however far around (imports at the top of files)."""
    known = dict(modules())
    graph = {name: _imported_modules(path, known) - {name} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join([*above, name])
        if name in done:
            return
        for target in sorted(graph[name]):
            visit(target, (*above, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def _imported_modules(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of ours imported at the top; a package only where a name of its own is taken."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in known else node.module for name in names)
    return found & set(known)


@pytest.mark.parametrize("library", FENCES)
def test_fences(library: str) -> None:
    """A library behind a fence is imported only inside it."""
    for name, path in modules():
        if any(target.split(".")[0] == library for target in imports(path)):
            assert any(name.startswith(fence) for fence in FENCES[library]), name


def test_no_network() -> None:
    """No module but the engine imports a network module."""
    for name, path in modules():
        found = {t for t in imports(path) if any(t == n or t.startswith(f"{n}.") for n in NETWORK)}
        assert not found or name == "loganalyze.engine", (name, found)


def test_functions_and_files_stay_small() -> None:
    """No function is longer than 80 lines and no file than 350."""
    for name, path in modules():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 350, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 80, f"{name}:{node.name}"


def test_public_names_have_docstrings() -> None:
    """Every public module, class and function says what it is."""
    bare = []
    for name, path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(tree):
            bare.append(name)
        for node in tree.body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if named and not node.name.startswith("_") and not ast.get_docstring(node):
                bare.append(f"{name}.{node.name}")
    assert not bare


@pytest.mark.parametrize("arguments", [["--help"], ["diagnose", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """--help and --version import neither polars nor numpy, torch or plotly."""
    code = (
        "import sys; sys.argv = ['loganalyze', *sys.argv[1:]]\n"
        "from loganalyze.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "heavy = {'polars', 'numpy', 'torch', 'plotly', 'pyarrow', 'scipy', 'jinja2', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    path = [str(root.parent) for root in ROOTS.values()]
    environment = {"PYTHONPATH": ":".join(path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_the_floor_of_coverage_is_the_promised_one() -> None:
    """The gate asks for at least the share of lines that CONTRIBUTING promises."""
    top = Path(__file__).resolve().parents[2]
    if not (top / "CONTRIBUTING.md").exists():
        pytest.skip("away from the checkout")
    rules = (top / "CONTRIBUTING.md").read_text("utf-8")
    promised = re.search(r"at least (\d+) % of the lines", rules)
    settings = tomllib.loads((top / "pyproject.toml").read_text("utf-8"))
    assert promised is not None
    assert settings["tool"]["loganalyze"]["coverage-floor"] >= int(promised[1]) >= 95
    assert "tests/coverage_floor.py" in (top / ".ci" / "run").read_text("utf-8")
