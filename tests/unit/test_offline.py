"""No network, no code from data: by what is imported, and in a namespace without any interface."""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import loganalyze_parsers
import pytest
from textlogs import megatron_line

import loganalyze

PACKAGES = (loganalyze, loganalyze_parsers)
ROOTS = [Path(next(iter(package.__path__))) for package in PACKAGES]
#: Modules that run or build objects out of data.
LOADERS = {"pickle", "marshal", "shelve", "yaml", "dill", "joblib", "tarfile", "zipfile"}
#: They refuse pickles, unless the user says --trust-checkpoint; plain_data makes data types alone.
CATCHERS = ("checkpoint.py", "zero.py", "plain_data.py")
UNSHARE = shutil.which("unshare")


def _trees() -> list[tuple[Path, ast.Module]]:
    files = [path for root in ROOTS for path in sorted(root.rglob("*.py"))]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in files]


@pytest.mark.slow
def test_nothing_loads_code_from_data() -> None:
    """No pickle, YAML or archive module is imported, and nothing is evaluated."""
    wrong = []
    for path, tree in _trees():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module.split(".")[0]]
            free = {"pickle"} if path.name in CATCHERS else set()
            wrong += [(path.name, name) for name in names if name in LOADERS - free]
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in ("eval", "exec", "compile"):
                wrong.append((path.name, called.id))
    assert wrong == []


def test_tests_cannot_reach_a_network() -> None:
    """A connection to another machine is refused before a packet leaves."""
    with socket.socket() as one, pytest.raises(ConnectionRefusedError, match="tests are offline"):
        one.connect(("192.0.2.1", 80))
    with pytest.raises(ConnectionRefusedError, match="tests are offline"):
        socket.getaddrinfo("example.org", 80)


def _allowed() -> bool:
    if UNSHARE is None:
        return False
    return subprocess.run([UNSHARE, "-rn", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _allowed(), reason="this system makes no network namespace for us")
def test_same_bytes_without_any_interface(tmp_path: Path) -> None:
    """In a network namespace with no interface the diagnosis is the same, byte for byte."""
    log = tmp_path / "train.log"
    log.write_text("\n".join(megatron_line(n, lm_loss=f"{2 + 1 / n:.6E}") for n in range(1, 60)))
    command = [sys.executable, "-m", "loganalyze", "diagnose", str(log), "-o", "-"]
    roots = os.pathsep.join(dict.fromkeys(str(root.parent) for root in ROOTS))
    environment = {**os.environ, "PYTHONPATH": roots}
    outputs = [
        subprocess.run(
            [*before, *command, "--format", "json"],
            capture_output=True, env=environment, check=True,
        ).stdout
        for before in ([], [str(UNSHARE), "-rn"])
    ]
    assert outputs[0] == outputs[1]
    assert b'"verdict": ' in outputs[0]
