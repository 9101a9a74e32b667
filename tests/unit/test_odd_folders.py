"""Folders hold anything: pipes, circles of links, files that vanish or can't be read, bombs."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from loganalyze_parsers import blocks, unpack
from textlogs import megatron_line

from loganalyze import inputs
from loganalyze.cli import cli
from loganalyze.errors import UnreadableInput, UsageError
from loganalyze.ingest import ingest
from loganalyze.pipeline import limits_reached
from loganalyze.store import write_run

LOG = "\n".join(megatron_line(n, lm_loss="2.5") for n in range(1, 9)) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a log and, beside it, everything that is none."""
    (tmp_path / "train.log").write_text(LOG)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "circle.log").symlink_to("circle.log")
    (tmp_path / "nowhere.log").symlink_to("gone.log")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "up").symlink_to(tmp_path, target_is_directory=True)
    return tmp_path


def test_only_the_log_is_read(folder: Path) -> None:
    """Pipes, and links in circles or to nowhere, are passed by: nothing waits, nothing repeats."""
    assert inputs.expand([str(folder)]) == (folder / "train.log",)
    (run,) = ingest([str(folder)]).runs
    assert len(run.readings) == 8


def test_what_is_passed_by_is_told(folder: Path) -> None:
    """Each thing that is no plain file is named with the reason, in the run and on the terminal."""
    whys = {
        "pipe.log": "a pipe", "circle.log": "a link in a circle",
        "nowhere.log": "a link that leads nowhere", "up": "a link to a folder",
    }  # fmt: skip
    made = ingest([str(folder)])
    told = {Path(p.message.partition(": ")[0]).name: p.message for p in made.passed}
    assert set(told) == set(whys)
    assert all(f": {why}" in told[name] for name, why in whys.items())
    assert set(made.passed) <= set(made.runs[0].problems)
    result = CliRunner().invoke(
        cli, ["diagnose", str(folder), "-o", "-", "--lang", "en"], standalone_mode=False
    )
    assert all(f"{name}: {why}" in result.stderr for name, why in whys.items())


@pytest.mark.parametrize("count", [1, 2])
def test_stored_runs_beside_logs_are_told(tmp_path: Path, count: int) -> None:
    """The logs are read, the stored runs are named in one line; a folder of runs alone is read."""
    (tmp_path / "train.log").write_text(LOG)
    (run,) = ingest([str(tmp_path)]).runs
    for number in range(count):
        write_run(run, tmp_path / "runs" / f"store-{number}")
    made = ingest([str(tmp_path)])
    (told,) = made.passed
    assert f"{tmp_path}: holds logs and " in told.message
    assert f"loganalyze diagnose {tmp_path / 'runs' / 'store-0'}" in told.message
    assert ("2 stored runs" in told.message) is (count == 2)
    result = CliRunner().invoke(
        cli, ["diagnose", str(tmp_path), "-o", "-", "--lang", "en"], standalone_mode=False
    )
    assert result.stderr.count("stored run") == 1
    assert not ingest([str(tmp_path / "runs")]).passed


def test_too_many_files_is_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of more files than are read says so, and the exit code is 5."""
    monkeypatch.setattr(inputs, "_MAX_FILES", 2)
    for number in range(4):
        (folder / f"more{number}.log").write_text(LOG)
    made = ingest([str(folder)])
    assert len(made.runs) == 2
    assert "holds 5 files, the first 2 by name are read" in limits_reached(made.runs)[0]
    result = CliRunner().invoke(cli, ["diagnose", str(folder), "-o", "-"], standalone_mode=False)
    assert result.return_value == 5


def test_globs_pass_by_pipes(folder: Path) -> None:
    """A pattern takes the files it matches."""
    assert inputs.expand([str(folder / "*.log")]) == (folder / "train.log",)


def test_pipe_by_name_is_wrong_use(folder: Path) -> None:
    """A pipe named itself is refused with a hint; reading it could wait for ever."""
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        inputs.expand([str(folder / "pipe.log")])


def test_vanished_file_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is gone by the time it is read is named; the others are read."""
    (folder / "other.log").write_text(LOG)
    real = Path.open

    def open_(self: Path, *rest: str, **named: str) -> object:
        if self.name == "other.log":
            raise FileNotFoundError(2, "No such file or directory")
        return real(self, *rest, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_)
    made = ingest([str(folder)])
    assert [len(run.readings) for run in made.runs if len(run.readings)] == [8]
    assert [Path(source.path).name for source in made.unread] == ["other.log"]


def test_forbidden_folder_is_passed_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in a place that may not be looked at is no file."""
    real = Path.is_file

    def is_file(self: Path) -> bool:
        if self.name == "train.log":
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert not inputs.is_file(folder / "train.log")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_bomb_ends_at_the_limit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to far more than a log is read up to the limit, and the user is told."""
    monkeypatch.setattr(unpack, "FREE_BYTES", 1_000_000)
    data = LOG.encode() + (b"x" * 1023 + b"\n") * 8000
    packed = gzip.compress(data) if kind == "gzip" else pa.compress(data, "zstd", asbytes=True)
    path = tmp_path / "train.log.gz"
    path.write_bytes(packed)
    (run,) = ingest([str(path)]).runs
    (told,) = limits_reached([run])
    assert "unpacks to more than" in told
    assert len(run.readings) == 8
    assert run.sources[0].account.lines < 6000


def test_damage_keeps_what_came_before(tmp_path: Path) -> None:
    """A compressed log cut short gives the lines before the cut, and says that it breaks off."""
    lines = "\n".join(megatron_line(n, lm_loss=f"{2 + 1 / n:.9f}") for n in range(1, 9000))
    packed = gzip.compress(lines.encode(), 1)
    path = tmp_path / "train.log.gz"
    path.write_bytes(packed[: len(packed) // 2])
    (run,) = ingest([str(path)]).runs
    assert len(run.readings) > 1000
    assert "input_breaks_off" in [problem.rule for problem in run.problems]


def test_damage_inside_is_an_os_error(tmp_path: Path) -> None:
    """Every decompressor's own errors come as OSError."""
    path = tmp_path / "x.gz"
    data = bytearray(gzip.compress(os.urandom(5000)))
    data[2000:2400] = bytes(400)
    path.write_bytes(bytes(data))
    with blocks.open_bytes(path) as stream, pytest.raises(OSError, match=r"."):
        stream.read()


@pytest.mark.parametrize("named", [False, True])
def test_a_folder_without_logs_does_not_end_the_others(named: bool, tmp_path: Path) -> None:
    """Beside others, or in a glob, it is told and the rest is read; alone it is an error."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "notes.md").write_text("no log\n")
    (tmp_path / "b" / "train.log").write_text(LOG)
    empty = str(tmp_path / "a")
    arguments = [empty, str(tmp_path / "b")] if named else [str(tmp_path / "*")]
    made = ingest(arguments)
    (run,) = made.runs
    assert len(run.readings) == 8
    told = [problem.message for problem in made.passed]
    assert any(message.startswith(f"{empty}: the folder holds no file") for message in told)
    with pytest.raises(UnreadableInput, match="no file that could be a log"):
        ingest([empty, str(tmp_path / "c")])
    with pytest.raises(UnreadableInput):
        ingest([empty])


def test_a_folder_without_logs_beside_a_tracker(tmp_path: Path) -> None:
    """A tracker's folder counts as something found."""
    store = tmp_path / "mlruns" / "1" / "r1"
    (store / "metrics").mkdir(parents=True)
    (store / "meta.yaml").write_text("run_id: r1\nstatus: 3\n")
    (store / "metrics" / "loss").write_text("1700000000000 2.5 1\n1700000000001 2.4 2\n")
    (tmp_path / "empty").mkdir()
    made = ingest([str(tmp_path / "mlruns"), str(tmp_path / "empty")])
    assert [len(run.readings) for run in made.runs] == [2]
    assert len(made.passed) == 1
