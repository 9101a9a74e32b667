"""Tables with one row a run: no history, although W&B names both exports alike.

    W&B's runs table   "Name","State","Notes","User","Tags","Created","Runtime","Sweep", settings...
    home-made          run_name, settings..., final_train_loss, ...
    curves in cells    run_id,run_name,loss_curve       a JSON list per cell: that is a history

Rows of the first two are refused as a time series, by name. A list in a cell has no step axis:
the place in the list stands for it, which is told.

>>> head = b'"Name","State","Notes","User","Tags","Created","Runtime","Sweep","loss"'
>>> sniff(Head(path=Path("wandb_export.csv"), data=head, size=len(head)))
0.97
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from loganalyze import lazy
from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.csv_table import Cells, header_of, read_cells, sniffed_header
from loganalyze_parsers.history import has_axis
from loganalyze_parsers.json_spans import plain_number
from loganalyze_parsers.tables import not_a_history, read_table
from loganalyze_parsers.tracker_frames import Rows, readings_of
from loganalyze_parsers.unpack import broken

_RUNS_TABLE = {"Name", "State", "Created", "Runtime"}
_NAMES = ("run_name", "Name", "name", "run_id", "run", "experiment", "id")
_LIST = lazy.pattern(rb'(?:^|[,;\t])"?\[\s*-?(?:\d|NaN|Inf)')
_FINAL = lazy.pattern(r"(?:final|best|last)_\w*(?:loss|acc|ppl|perplexity)")
_CURVE = lazy.pattern(r"[ _-]?(?:curve|history|values|list|series)$", re.IGNORECASE)
_HEAD_BYTES = 1 << 20


def sniff(head: Head) -> float:
    """W&B's columns, results of whole runs, or JSON lists in cells beside a run's name."""
    header = sniffed_header(head)
    if header is None:
        return 0.0
    names = set(header.names)
    if names >= _RUNS_TABLE:
        return 0.97
    named = any(name in names for name in _NAMES)
    lines = head.data.split(b"\n", 2)
    if named and len(lines) > 1 and _LIST.search(lines[1]):
        return 0.9
    results = any(_FINAL.match(name.lower()) for name in names)
    return 0.8 if named and results and not has_axis(header.names) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch a run for curves in cells; else one that says why there is nothing to read."""
    problems: list[Problem] = []
    made = 0
    try:
        with open_bytes(path) as stream:
            header = header_of(stream.read(_HEAD_BYTES))
        if header is not None and not set(header.names) >= _RUNS_TABLE:
            for cells in read_cells(path, header):
                for batch in _curves(cells, path, source):
                    made += 1
                    yield batch
    except (OSError, EOFError, ValueError) as error:
        problems.append(broken(path, error))
    if made:
        note = Problem(
            rule="no_step_axis",
            message=f"{path}: the curves are lists without steps: the place in the list (from 0) "
            "stands for the step",
        )
        yield Batch(readings=None, problems=(note, *problems))
        return
    _, table = read_table(path)
    yield not_a_history(
        path,
        table,
        "one row a run (settings and last values), no curve: export the chart or the history "
        "(run.scan_history()), or give the wandb folder itself",
    )


def _curves(cells: Cells, path: Path, source: int) -> Iterator[Batch]:
    name = _label(cells.frame)
    rest = cells.lines - cells.headers - cells.unknown - len(cells.frame)
    ignored = {"header": cells.headers, "blank line": rest}
    for at, row in enumerate(cells.frame.iter_rows(named=True)):
        lists = {column: _numbers(cell) for column, cell in row.items() if cell}
        found = {column: values for column, values in lists.items() if values}
        if not found:
            if at == 0:
                return
            ignored["row without a curve"] = ignored.get("row without a curve", 0) + 1
            continue
        frame, problems = _frame(found, cells, at, source, path)
        yield Batch(
            readings=frame,
            problems=problems,
            account=Account(lines=1, read=1),
            run=str(row.get(name) or f"row {at + 1}") if name else f"row {at + 1}",
            framework="wandb",
        )
    counted = {rule: count for rule, count in ignored.items() if count}
    lines = sum(counted.values()) + cells.unknown
    yield Batch(readings=None, account=Account(lines=lines, ignored=counted, unknown=cells.unknown))


def _label(frame: pl.DataFrame) -> str | None:
    """The column that names the runs, one that tells them apart if there is any."""
    names = [name for name in _NAMES if name in frame.columns]
    told = [name for name in names if frame[name].n_unique() == len(frame)]
    return next(iter([*told, *names]), None)


def _numbers(cell: str) -> list[float | None]:
    """The numbers of a JSON list; empty for any other cell."""
    if not cell.lstrip().startswith("["):
        return []
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError):
        return []
    plain = [plain_number(v) for v in values]
    return plain if any(value is not None for value in plain) else []


def _frame(
    lists: dict[str, list[float | None]], cells: Cells, at: int, source: int, path: Path
) -> tuple[pl.DataFrame | None, tuple[Problem, ...]]:
    count = max(len(values) for values in lists.values())
    columns = {_CURVE.sub("", name): _padded(values, count) for name, values in lists.items()}
    rows = Rows(
        step=pl.Series(range(count), dtype=pl.Int64),
        wall_s=pl.Series([None] * count, dtype=pl.Float64),
        line=np.full(count, cells.line[at]),
        offset=np.full(count, cells.offset[at]),
        length=np.full(count, cells.length[at]),
        columns=columns,
    )
    return readings_of(rows, source, str(path))


def _padded(values: Sequence[float | None], count: int) -> pl.Series:
    return pl.Series([*values, *[None] * (count - len(values))], dtype=pl.Float64)


PARSER = Parser(name="csv_runs", sniff=sniff, parse=parse)
