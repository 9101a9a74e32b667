"""`demo` gives a newcomer a first result, and the diagnosis agrees with what was put in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loganalyze.cli import cli
from loganalyze.demo import GIVEN_UP, RAISED, demo_log, learning_rate
from loganalyze.errors import LoganalyzeError
from loganalyze.verify import verify


def call(*arguments: str | Path) -> Result:
    """The result of `demo` with these arguments."""
    return CliRunner().invoke(cli, ["demo", *map(str, arguments)], standalone_mode=False)


def test_first_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without arguments: a log, a page and JSON in loganalyze-demo, and a text that names both."""
    monkeypatch.chdir(tmp_path)
    result = call("--lang", "en")
    assert result.return_value == 0, result.exception
    folder = tmp_path / "loganalyze-demo"
    assert sorted(p.name for p in folder.iterdir()) == ["demo.html", "demo.json", "demo.log"]
    assert os.path.join("loganalyze-demo", "demo.html") in result.output
    assert f"at step {RAISED}" in result.output


def test_diagnosis_finds_what_was_put_in(tmp_path: Path) -> None:
    """The raised learning rate is named and located; the gradient moves before the loss."""
    call(tmp_path / "d", "--lang", "en")
    report = json.loads((tmp_path / "d" / "demo.json").read_text(encoding="utf-8"))
    (run,) = report["runs"]
    assert report["verdict"] == "critical"
    first = {f["kind"]: f["step_first"] for f in reversed(run["findings"])}
    assert first["lr_schedule"] == RAISED
    assert RAISED < first["grad_explosion"] < first["loss_spike"] < first["loss_nonfinite"]
    (incident,) = (i for i in run["incidents"] if i["severity"] == "critical")
    assert incident["first_mover"].startswith("LA202")
    supported = [c["id"] for c in incident["causes"] if c["verdict"] == "supported"]
    assert any("LR" in name for name in supported)
    assert run["steps"]["count"] == GIVEN_UP


def test_every_citation_of_the_demo_holds(tmp_path: Path) -> None:
    """verify agrees with the demo's report."""
    call(tmp_path / "d")
    result = verify(tmp_path / "d" / "demo.json")
    assert result.failures == ()
    assert result.found > 10


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A folder that holds anything is left alone (exit code 2) unless --force is given."""
    (tmp_path / "mine.txt").write_text("mine")
    result = call(tmp_path)
    assert isinstance(result.exception, LoganalyzeError)
    assert result.exception.exit_code == 2
    assert "--force" in result.exception.hint
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    assert call(tmp_path, "--force").return_value == 0
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    """A file of the folder's name is a clear error, with --force too."""
    (tmp_path / "d").write_text("mine")
    for more in ([], ["--force"]):
        assert isinstance(call(tmp_path / "d", *more).exception, LoganalyzeError)
    assert (tmp_path / "d").read_text() == "mine"


def test_chinese(tmp_path: Path) -> None:
    """--lang zh speaks Chinese."""
    assert "学习率" in call(tmp_path / "d", "--lang", "zh").output


def test_same_log_every_time() -> None:
    """The generator is a function of its seed alone."""
    assert demo_log() == demo_log()
    assert demo_log(1) != demo_log(2)
    assert learning_rate(RAISED) == pytest.approx(10 * learning_rate(RAISED - 1), rel=0.02)
