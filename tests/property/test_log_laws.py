"""Laws of the whole program: what must not change what is found in a log."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from findings import found
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import DIALECTS
from loganalyze_parsers.blocks import read_blocks
from loganalyze_parsers.noise import ignore_rule
from loganalyze_parsers.textlog import TextLog
from textlogs import megatron_line

import loganalyze
from loganalyze.ingest import ingest
from loganalyze.model import Batch
from loganalyze.pipeline import Judging, report_on
from loganalyze.report import render
from loganalyze.store import read_run, write_run

few = settings(max_examples=6, deadline=None, derandomize=True)
_NOISE = (
    "loading extension fused_adam", "", "100%|####| 5/5 [00:01<00:00]", "some words: 12 and more",
    "[rank0]:[W402 10:11:12.5 x.cpp:9] Warning: something", "\tindented",
)  # fmt: skip


@st.composite
def lines_of_logs(draw: st.DrawFn, dialect: str = "") -> list[str]:
    """A log of 60 to 200 steps with noise between, a spike, a NaN, an OOM, perhaps a restart."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = draw(st.integers(60, 200))
    made = dialect or draw(st.sampled_from(["megatron", "dicts", "titan"]))
    spike = draw(st.sampled_from([None, steps // 2, steps - 3]))
    death = draw(st.sampled_from([None, steps - 10]))
    lines: list[str] = []
    for step in range(1, steps + 1):
        loss = 2.0 + 6.0 / step**0.5 + 0.02 * rng.standard_normal() + 3.0 * (step == spike)
        lines.append(_line(made, step, float("nan") if death and step >= death else loss))
        if rng.random() < 0.2:
            lines.append(str(rng.choice(_NOISE)))
    if draw(st.booleans()):
        lines.append("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.")
    return lines


def _line(dialect: str, step: int, loss: float) -> str:
    if dialect == "megatron":
        return megatron_line(step, lm_loss=f"{loss:.6E}", loss_scale="1.0", grad_norm="0.512")
    if dialect == "titan":
        stamp = f"[rank0]:[titan] 2031-04-02 10:{step // 60:02d}:{step % 60:02d},345 - root - INFO"
        return f"{stamp} - step: {step:2}  loss: {loss:8.5f}  grad_norm:  0.5123  tps: 6,543"
    return (
        f"{{'loss': {loss:.4f}, 'grad_norm': 0.512, 'learning_rate': 4e-05, 'epoch': {step / 50}}}"
    )


def findings_of(data: bytes, name: str = "train.log") -> str:
    """What is found in a log of these bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return found(path)


@few
@given(lines_of_logs(), st.floats(0.05, 0.95))
def test_rotated_parts_are_the_whole(lines: list[str], share: float) -> None:
    """A log cut in two at a line, and given as `train.log.1` and `train.log`, tells the same."""
    at = max(1, int(share * len(lines)))
    with TemporaryDirectory() as folder:
        first, second = Path(folder) / "train.log.1", Path(folder) / "train.log"
        first.write_text("\n".join(lines[:at]) + "\n")
        second.write_text("\n".join(lines[at:]) + "\n")
        parts = found(first, second)
        assert parts == found(second, first)
    assert parts == findings_of(("\n".join(lines) + "\n").encode())


@pytest.mark.parametrize("parts", [2, 3])
def test_what_opens_a_rotated_part_has_the_step_of_the_one_before(
    parts: int, tmp_path: Path
) -> None:
    """A crash in a part of its own, or behind one without rows, is at the step it was at."""
    lines = [_line("titan", step, 2.0 + 6.0 / step**0.5) for step in range(1, 80)]
    crash = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
    pieces = [lines, *([["some words: 12 and more"]] if parts == 3 else []), [crash]]
    for number, piece in enumerate(reversed(pieces)):
        name = f"train.log.{number}" if number else "train.log"
        (tmp_path / name).write_text("\n".join(piece) + "\n")
    whole = "\n".join(line for piece in pieces for line in piece) + "\n"
    told = found(*tmp_path.iterdir())
    assert told == findings_of(whole.encode())
    crashes = [row for row in json.loads(told) if row[2] == 79]  # its first step
    assert crashes


@few
@given(lines_of_logs())
def test_line_ends_and_the_last_one_tell_nothing(lines: list[str]) -> None:
    """CRLF is LF, and a last line without its end is a line."""
    plain = findings_of(("\n".join(lines) + "\n").encode())
    assert findings_of(("\r\n".join(lines) + "\r\n").encode()) == plain
    assert findings_of("\n".join(lines).encode()) == plain


@few
@given(lines_of_logs(), st.integers(40, 4000))
def test_blocks_of_any_size(lines: list[str], size: int) -> None:
    """Readings, events and the account are the same for every size of the blocks read."""
    data = ("\n".join(lines) + "\n").encode()
    assert _read(data, size) == _read(data, 1 << 24)


def _read(data: bytes, size: int) -> tuple[object, ...]:
    log = TextLog(DIALECTS, ignore_rule, 0)
    batches: list[Batch] = list(log.batches(read_blocks(io.BytesIO(data), size)))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    frame = pl.concat(frames, how="diagonal").sort("offset")
    accounts = [batch.account for batch in batches]
    return (
        frame.select(sorted(frame.columns)).write_csv(),
        [event for batch in batches for event in batch.events],
        [sum(getattr(a, name) for a in accounts) for name in ("lines", "read", "unknown")],
    )


@few
@given(lines_of_logs(), lines_of_logs())
def test_order_of_the_files(one: list[str], two: list[str]) -> None:
    """The order in which files are named changes no byte of the JSON."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / "first.log", Path(folder) / "other_rank_1.log"]
        for path, lines in zip(paths, (one, two), strict=True):
            path.write_text("\n".join(lines) + "\n")
        names = [str(path) for path in paths]
        assert _json(names) == _json(names[::-1])


def _json(paths: list[str]) -> str:
    return render(report_on(paths, Judging()), "json", "en")


@few
@given(lines_of_logs())
def test_same_bytes_twice(lines: list[str]) -> None:
    """JSON, text and HTML are the same bytes the second time."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        path.write_text("\n".join(lines) + "\n")
        for format_ in ("json", "text", "html"):
            once, again = (report_on([str(path)], Judging()) for _ in range(2))
            assert render(once, format_, "en") == render(again, format_, "en")


@few
@given(lines_of_logs())
def test_ingesting_twice_is_once(lines: list[str]) -> None:
    """A log ingested again leaves the same run, and judging the stored run judges the log."""
    with TemporaryDirectory() as folder:
        path, store = Path(folder) / "train.log", Path(folder) / "runs"
        path.write_text("\n".join(lines) + "\n")
        places = [write_run(ingest([str(path)]).runs[0], store) for _ in range(2)]
        assert places[0] == places[1]
        assert sorted(item.name for item in store.iterdir()) == ["train"]
        stored, fresh = read_run(places[0]), ingest([str(path)]).runs[0]
        assert stored.readings.equals(fresh.readings)
        assert stored.events.equals(fresh.events)
        assert stored.meta == fresh.meta
        assert found(places[0]) == found(path)


@few
@given(lines_of_logs("megatron"), st.integers(0, 2**32))
def test_unrelated_metric_changes_nothing(lines: list[str], seed: int) -> None:
    """A further number on every line, which nobody knows, changes no finding."""
    rng = np.random.default_rng(seed)
    more = [
        f"{line} zebra count: {rng.integers(0, 100)} |" if "iteration" in line else line
        for line in lines
    ]
    assert findings_of("\n".join(more).encode()) == findings_of("\n".join(lines).encode())


def _log(folder: Path) -> Path:
    lines = [
        _line("titan", step, 2.0 + 6.0 / step**0.5 + (3.0 if step == 70 else 0.0))
        for step in range(1, 120)
    ]
    path = folder / "train.log"
    path.write_text("\n".join([*lines, "torch.OutOfMemoryError: CUDA out of memory."]) + "\n")
    return path


_ENVIRONMENTS = (
    {"LANG": "C", "TZ": "UTC"},
    {"LANG": "zh_CN.UTF-8", "LC_ALL": "zh_CN.UTF-8", "TZ": "Asia/Shanghai"},
    {"LANG": "de_DE.UTF-8", "TZ": "America/St_Johns", "POLARS_MAX_THREADS": "1"},
)


def test_locale_clock_and_threads_change_no_byte(tmp_path: Path) -> None:
    """The JSON is the same in every language, time zone and number of threads."""
    path = _log(tmp_path)
    outputs = {run_cli(["diagnose", str(path), "-o", "-", "--format", "json"], env).stdout
               for env in _ENVIRONMENTS}  # fmt: skip
    assert len(outputs) == 1
    assert json.loads(outputs.pop())["runs"][0]["steps"]["count"] == 119


def environment(extra: dict[str, str]) -> dict[str, str]:
    """The variables of a fresh process that finds the packages where this one does."""
    roots = [str(Path(str(module.__file__)).parents[1]) for module in (loganalyze, _parsers())]
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "VIRTUAL_ENV") if name in os.environ
    }
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(roots)), **extra}


def _parsers() -> object:
    import loganalyze_parsers

    return loganalyze_parsers


def run_cli(
    arguments: list[str], extra: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "loganalyze", *arguments]
    return subprocess.run(command, capture_output=True, env=environment(extra or {}), timeout=120)


def test_killed_writer_leaves_a_whole_run_or_none(tmp_path: Path) -> None:
    """kill -9 at any moment of ingest: the store holds the old run, whole, or the new one."""
    path, store = _log(tmp_path), tmp_path / "runs"
    write_run(ingest([str(path)]).runs[0], store)
    command = [sys.executable, "-m", "loganalyze", "ingest", str(path), "--store", str(store)]
    for delay in (0.05, 0.4, 0.7, 0.9, 1.1):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment({})
        )
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert len(read_run(store / "train").readings) == 119
        visible = [item.name for item in store.iterdir() if not item.name.startswith(".")]
        assert visible == ["train"]


def test_two_writers_of_one_store(tmp_path: Path) -> None:
    """Two processes that write one run at once leave a whole run; neither tells of a fault."""
    path, store = _log(tmp_path), tmp_path / "runs"
    command = [sys.executable, "-m", "loganalyze", "ingest", str(path), "--store", str(store)]
    processes = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment({})
        )
        for _ in range(3)
    ]
    outcomes = [(process.communicate(timeout=120)[1], process.returncode) for process in processes]
    assert [code for _, code in outcomes] == [0, 0, 0], outcomes
    assert len(read_run(store / "train").readings) == 119
    assert [item.name for item in store.iterdir()] == ["train"]


_FULL = OSError(28, "No space left on device")


def _failing(*_: object, **__: object) -> None:
    raise _FULL


@pytest.mark.parametrize(
    "place", ["polars.DataFrame.write_parquet", "loganalyze.store.os.rename", "pathlib.Path.mkdir"]
)
def test_full_disk_is_one_clear_error(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full at any point of writing is one OutputError, and nothing is left."""
    from loganalyze.errors import OutputError

    run = ingest([str(_log(tmp_path))]).runs[0]
    store = tmp_path / "runs"
    store.mkdir()
    _patched(monkeypatch, place)
    with pytest.raises(OutputError, match="No space left"):
        write_run(run, store)
    monkeypatch.undo()
    assert list(store.iterdir()) == []


def _patched(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    if place == "pathlib.Path.mkdir":
        real: Callable[..., None] = Path.mkdir

        def once(self: Path, *rest: int, **named: bool) -> None:
            if self.name == "run":
                raise _FULL
            real(self, *rest, **named)

        monkeypatch.setattr(Path, "mkdir", once)
        return
    monkeypatch.setattr(place, _failing)
