"""SwanLab's local store: one file per metric, JSON lines.

    swanlog/run-20310402_101112-a1b2c3/logs/train%2Floss/10.log
    {"index": 10, "data": 1.625, "create_time": "2031-04-02T10:11:12.345+00:00"}

The metric's name is not in the file: it is taken from the folder or the file's name where that
tells one (newer versions name the folder after the metric, older ones number it). create_time is
the only clock: the time per step is a difference of two of them.

>>> metric_of("logs/train%2Floss/10.log"), metric_of("logs/eval%2Floss/10.log")
('loss', 'val_loss')
>>> metric_of("logs/3/1000.log")
'raw/swanlab/3'
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from loganalyze import lazy
from loganalyze.model import Account, Batch, LineRef, Problem, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import line_bounds, open_bytes, read_blocks
from loganalyze_parsers.frames import readings_frame
from loganalyze_parsers.numbers import whole
from loganalyze_parsers.swanlab_tags import column_name
from loganalyze_parsers.tracker_names import known

_ROW = lazy.pattern(rb'\s*\{\s*"index":\s*\d+,\s*"data":.*"create_time":\s*"')
#: Part of a name -> metric, the first that fits.
_NAMES = (
    (lazy.pattern(r"grad_?norm"), "grad_norm"),
    (lazy.pattern(r"(?:eval|val|valid|validation|test)[/_-]?loss"), "val_loss"),
    (lazy.pattern(r"(?:^|[/_])loss"), "loss"),
    (lazy.pattern(r"learning_?rate|(?:^|[/_])lr$"), "lr"),
)


def sniff(head: Head) -> float:
    """The first line is a SwanLab record."""
    return 0.95 if _ROW.match(head.data) else 0.0


def metric_of(path: str) -> str:
    """The metric by the folder's name, else by the file's; raw/swanlab/<name> if neither tells."""
    pure = PurePosixPath(path)
    for part in (pure.parent.name, pure.stem):
        name = unquote(part).lower()
        for pattern, metric in _NAMES:
            if pattern.search(name):
                return metric
    return f"raw/swanlab/{unquote(pure.parent.name)}"


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch a block; a last one says where no name could be found."""
    metric = metric_of(path.as_posix())
    tag = column_name(path)
    if tag is not None:
        found = known(tag)
        metric = found[0] if found is not None and found[1] == 1.0 else f"raw/{tag}"
    before: Reading | None = None
    with open_bytes(path) as stream:
        for block in read_blocks(stream):
            readings: list[Reading] = []
            starts, ends = line_bounds(block.data)
            for line, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                ref = LineRef(
                    source=source, line=block.first_line + line, offset=block.offset + start,
                    length=end - start,
                )  # fmt: skip
                reading = _reading(block.data[start:end], ref, metric, before)
                if reading is not None:
                    readings.append(reading)
                    before = reading
            yield Batch(
                readings=readings_frame(readings),
                account=Account(
                    lines=len(starts), read=len(readings), unknown=len(starts) - len(readings)
                ),
                framework="swanlab",
            )
    if metric.startswith("raw/swanlab/"):
        message = f"{path}: the file does not say which metric it holds; it is kept as {metric}"
        note = Problem(rule="metric_without_name", message=message)
        yield Batch(readings=None, problems=(note,), framework="swanlab")


def _reading(raw: bytes, ref: LineRef, metric: str, before: Reading | None) -> Reading | None:
    try:
        row = json.loads(raw)
        step, value = whole(float(row["index"])), float(row["data"])
        wall_s = datetime.fromisoformat(row["create_time"]).timestamp()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    if step is None:
        return None
    values = {metric: value}
    timed = metric != "val_loss"  # evaluations are no steps
    if timed and before is not None and before.step is not None and before.wall_s is not None:
        steps, seconds = step - before.step, wall_s - before.wall_s
        if steps > 0 and seconds > 0:
            values["step_time_s"] = seconds / steps
    return Reading(step=step, ref=ref, values=values, wall_s=wall_s)


PARSER = Parser(name="swanlab", sniff=sniff, parse=parse)
