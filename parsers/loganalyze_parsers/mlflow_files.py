"""MLflow's file store: one file per metric, and a meta.yaml per run.

    mlruns/<experiment>/<run>/metrics/<key>      lines `timestamp_ms value step`; a key with `/` is
                 a sub-folder; two fields are an old file without steps, five name a data set
    mlruns/<experiment>/<run>/params/<key>       the value, nothing else
    mlruns/<experiment>/<run>/meta.yaml          status 3 finished, 4 failed, 5 killed

Lines are only appended: after a resume steps come again below those of the first attempt. The files
of a run are columns of one table, see tracker_folders and tracker_join.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from loganalyze import lazy
from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import Block, line_bounds, open_bytes, read_blocks
from loganalyze_parsers.mlflow import EXIT_CODES
from loganalyze_parsers.numbers import is_digits, number
from loganalyze_parsers.tracker_frames import Rows, column, readings_of
from loganalyze_parsers.tracker_names import framework_of
from loganalyze_parsers.unpack import broken

_LINE = lazy.pattern(rb"\d{1,14} \S+(?: -?\d+)?(?: \S+ \S+)?\r?\n")
_MOST_DIGITS = 16  # of a time in milliseconds or a step; more is damage
_STATUS = {"3": "FINISHED", "4": "FAILED", "5": "KILLED"}
_SETTING = lazy.pattern(r"(\w+): ?(.*)")


def metric_key(path: Path) -> str | None:
    """The metric's key of a file of the file store; None for any other file.

    >>> metric_key(Path("mlruns/1/ab12/metrics/train/loss")), metric_key(Path("a/b.log"))
    ('train/loss', None)
    """
    parts = path.parts
    for at in range(len(parts) - 2, 1, -1):
        if parts[at] == "metrics":
            return "/".join(parts[at + 1 :])
    return None


def sniff_file(head: Head) -> float:
    """Lines of time, value and step in a folder `metrics` beside a meta.yaml."""
    key = metric_key(head.path)
    if key is None or not _LINE.match(head.data):
        return 0.0
    root = head.path.parents[key.count("/") + 1]
    return 0.97 if (root / "meta.yaml").is_file() else 0.0


def parse_file(path: Path, source: int) -> Iterator[Batch]:
    """One batch a block of lines."""
    tag = metric_key(path) or path.name
    problems: tuple[Problem, ...] = ()
    try:
        with open_bytes(path) as stream:
            for block in read_blocks(stream):
                yield _block(block, tag, path, source)
    except (OSError, EOFError, ValueError) as error:
        problems = (broken(path, error),)
    if problems:
        yield Batch(readings=None, problems=problems, framework="mlflow")


def _block(block: Block, tag: str, path: Path, source: int) -> Batch:
    starts, ends = line_bounds(block.data)
    steps: list[int | None] = []
    values: list[float | None] = []
    walls: list[float] = []
    used: list[int] = []
    blank = 0
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        cells = block.data[start:end].split()
        value = number(cells[1].decode("utf-8", "replace")) if len(cells) in (2, 3, 5) else None
        if value is None or not cells[0].isdigit() or len(cells[0]) > _MOST_DIGITS:
            blank += not cells
            continue
        used.append(at)
        values.append(value)
        walls.append(int(cells[0]) / 1000.0)
        steps.append(_step(cells[2]) if len(cells) > 2 else None)
    rows = np.asarray(used, dtype=np.int64)
    frame, problems = readings_of(
        Rows(
            step=pl.Series(steps, dtype=pl.Int64), wall_s=pl.Series(walls, dtype=pl.Float64),
            line=rows + block.first_line, offset=starts[rows] + block.offset,
            length=ends[rows] - starts[rows], columns={tag: column(values)},
        ),
        source, str(path),
    )  # fmt: skip
    ignored = {"blank line": blank} if blank else {}
    return Batch(
        readings=frame,
        problems=problems,
        account=Account(
            lines=len(starts), read=len(used), ignored=ignored,
            unknown=len(starts) - len(used) - blank,
        ),
        framework=framework_of([tag]) or "mlflow",
    )  # fmt: skip


def _step(cell: bytes) -> int | None:
    text = cell.removeprefix(b"-")
    return int(cell) if text.isdigit() and len(text) < _MOST_DIGITS else None


def sniff_meta(head: Head) -> float:
    """The meta.yaml of a run."""
    mine = head.path.name == "meta.yaml" and b"run_id:" in head.data and b"status:" in head.data
    return 0.97 if mine else 0.0


def parse_meta(path: Path, source: int) -> Iterator[Batch]:
    """One batch without rows: the run's parameters, and how it ended."""
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = Problem(rule="unreadable", message=f"{path}: {error.strerror or error}")
        yield Batch(readings=None, problems=(problem,), framework="mlflow")
        return
    lines = data.decode("utf-8", "replace").splitlines()
    found = {match[1]: match[2].strip() for line in lines if (match := _SETTING.match(line))}
    ref = LineRef(source=source, line=1, offset=0, length=0)
    events = []
    config = _parameters(path.parent / "params")
    if config:
        events.append(Event(kind="config", ref=ref, text="", detail=config))
    status = _STATUS.get(found.get("status", ""))
    if status is not None:
        stamp = found.get("end_time", "")
        detail: dict[str, str | int | float | None] = {"status": status}
        detail["exit_code"] = EXIT_CODES[status]
        wall = int(stamp) / 1000.0 if is_digits(stamp) and len(stamp) <= _MOST_DIGITS else None
        events.append(Event(kind="exit", ref=ref, text=status, detail=detail, wall_s=wall))
    yield Batch(
        readings=None,
        events=tuple(events),
        account=Account(lines=len(lines), read=len(lines)),
        framework="mlflow",
    )


def _parameters(folder: Path) -> dict[str, str]:
    """Values of params/, by key; files that cannot be read are left out."""
    config: dict[str, str] = {}
    for file in sorted(folder.rglob("*"))[:2000]:
        try:
            if file.is_file():
                words = file.read_text(encoding="utf-8", errors="replace")[:200]
                config[file.relative_to(folder).as_posix()] = words.strip()
        except OSError:
            continue
    return config


FILE_PARSER = Parser(name="mlflow_file", sniff=sniff_file, parse=parse_file)
META_PARSER = Parser(name="mlflow_meta", sniff=sniff_meta, parse=parse_meta)
