"""Reports and stored runs that lie among logs are no logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from findings import found
from textlogs import megatron_line

from loganalyze.cli import cli
from loganalyze.inputs import expand
from loganalyze.products import is_product


def _log(path: Path, steps: int = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        megatron_line(n, lm_loss=f"{9.0 if n == 40 else 2 + 1 / n:.6E}", grad_norm="0.5")
        for n in range(1, steps)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _call(*arguments: str) -> None:
    assert CliRunner().invoke(cli, arguments, standalone_mode=False).exception is None


def test_the_same_again_in_the_folder_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ingest .` and `diagnose .` with their results beside the logs give the same again."""
    _log(tmp_path / "one.log")
    _log(tmp_path / "job" / "two.log", 90)
    monkeypatch.chdir(tmp_path)
    _call("ingest", ".")
    _call("diagnose", ".", "--lang", "en")
    once = _files(tmp_path)
    assert {"runs/one/run.json", "runs/two/run.json", "reports/index.html"} <= set(once)
    assert "reports/findings.parquet" in once
    _call("ingest", ".")
    _call("diagnose", ".", "--lang", "en")
    assert _files(tmp_path) == once


def test_a_store_is_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of stored runs is judged as these runs, with their events."""
    monkeypatch.chdir(tmp_path)
    logs = [_log(tmp_path / "logs" / "one.log"), _log(tmp_path / "logs" / "two.log", 90)]
    with logs[0].open("a") as file:
        file.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n")
    _call("ingest", *map(str, logs), "--store", "runs")
    assert expand(["runs"]) == (Path("runs/one"), Path("runs/two"))
    assert found(Path("runs")) == found(*logs)


@pytest.mark.parametrize("format_", ["json", "sarif", "text"])
def test_redirected_reports_are_products(format_: str, tmp_path: Path) -> None:
    """What was redirected into a file of a usual name is known again."""
    log = _log(tmp_path / "one.log")
    call = ["diagnose", str(log), "-o", "-", "--format", format_]
    text = CliRunner().invoke(cli, call, standalone_mode=False).stdout
    suffix = {"text": "txt"}.get(format_, format_)
    report = tmp_path / f"report.{suffix}"
    report.write_text(text)
    assert is_product(report)
    assert expand([str(tmp_path)]) == (log,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainer_state.json", '{"log_history": [{"loss": 2.5, "step": 1}]}'),
        ("history.jsonl", '{"_step": 1, "loss": 2.5, "note": "loganalyze said clean"}'),
        ("history.jsonl", '{"_step": 1, "loss": 2.5, "name": "loganalyze"}'),
        ("run.json", '{"schema": 1, "packages": [{"name": "loganalyze"}]}'),
        ("tail.txt", "loganalyze is watching\nstep: 1 loss: 2.5\n"),
        ("train.txt", "step: 1 loss: 2.5\nloganalyze 0.1.0 was here\n"),
    ],
)
def test_logs_are_no_products(name: str, text: str, tmp_path: Path) -> None:
    """Logs that only speak of the program are logs."""
    path = tmp_path / name
    path.write_text(text)
    assert not is_product(path)
