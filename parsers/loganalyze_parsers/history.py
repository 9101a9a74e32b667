"""A table of history rows, whatever file it came from -> a batch: axis, clock, names, account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.tracker_frames import Rows, readings_of
from loganalyze_parsers.tracker_names import CLOCK_TAGS, framework_of, known
from loganalyze_parsers.tracker_steps import COUNTER, pick_steps

IntArray = npt.NDArray[np.int64]

#: Columns that hold unix seconds.
_CLOCKS = ("_timestamp", "timestamp", "wall_time", "created_at", "time")
_EARLIEST = 1e9  # unix seconds; 2001
_LATEST = 1e11
#: Row counts that exports cut histories to.
_SAMPLED_ROWS = frozenset({500, 1000, 1500, 10_000})


class Table(Struct, kw_only=True):
    """Numbers of a table by column name, and where each row stands."""

    columns: dict[str, pl.Series]
    line: IntArray
    offset: IntArray
    length: IntArray
    lines: int
    ignored: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.line)


def history_batch(
    table: Table, path: Path, source: int, *, framework: str = "", epochs: bool = False
) -> Batch:
    """Rows of a history with their steps.

    epochs: take a column `epoch` for the step where there is no other (Keras).
    """
    axis, steps = pick_steps(table.columns)
    if steps is None and epochs:
        axis = next((name for name in table.columns if name.lower() == "epoch"), None)
        steps = None if axis is None else table.columns[axis].cast(pl.Int64, strict=False)
    count = len(table)
    clock = _clock(table.columns)
    hidden = {COUNTER, axis, clock, *CLOCK_TAGS, "", "Unnamed: 0"}
    rows = Rows(
        step=pl.Series([None] * count, dtype=pl.Int64) if steps is None else steps,
        wall_s=_no_wall(count) if clock is None else table.columns[clock],
        line=table.line,
        offset=table.offset,
        length=table.length,
        columns={name: cells for name, cells in table.columns.items() if name not in hidden},
    )
    frame, problems = readings_of(rows, source, str(path))
    read = 0 if frame is None else len(frame)
    ignored = dict(table.ignored)
    if count > read:
        ignored["row without a number"] = count - read
    found = [*table.problems, *problems]
    if steps is None and read:
        found.append(_no_axis(path))
    elif steps is not None:
        found.extend(sampled(steps, path))
    return Batch(
        readings=frame,
        problems=tuple(found),
        account=Account(
            lines=table.lines,
            read=read,
            ignored={rule: number for rule, number in sorted(ignored.items()) if number},
            unknown=table.unknown,
        ),
        framework=framework or framework_of(table.columns),
    )


def _no_wall(count: int) -> pl.Series:
    return pl.Series([None] * count, dtype=pl.Float64)


def _clock(columns: Mapping[str, pl.Series]) -> str | None:
    """The column of unix seconds, by name and by what is in it."""
    for name in _CLOCKS:
        if name in columns:
            middle = columns[name].median()
            if isinstance(middle, float) and _EARLIEST < middle < _LATEST:
                return name
    return None


def _no_axis(path: Path) -> Problem:
    return Problem(
        rule="no_step_axis",
        message=f"{path}: no column holds the training step (step, global_step, iteration, "
        "_step, ...); export the history with its step column",
    )


def sampled(steps: pl.Series, path: Path) -> list[Problem]:
    """Whether the rows look like a sample of the run: a round number of rows, uneven gaps."""
    gaps = np.unique(np.diff(steps.drop_nulls().unique().sort().to_numpy()))
    if len(steps) not in _SAMPLED_ROWS or len(gaps) < 2:
        return []
    return [
        Problem(
            rule="sampled_export",
            message=f"{path}: exactly {len(steps)} rows with gaps of {gaps[0]} to {gaps[-1]} "
            "steps: the export is a sample, short spikes may be missing; export with all points "
            "(scan_history, or the .wandb file itself)",
        )
    ]


def has_axis(names: Sequence[str]) -> bool:
    """Whether one of the columns is named like a training step."""
    return pick_steps({name: pl.Series([0.0, 1.0]) for name in names})[0] is not None


def knows_any(names: Sequence[str]) -> bool:
    """Whether one of the columns is a known metric (an epoch alone does not count)."""
    found = (known(name) for name in names)
    return any(one is not None and one[0] != "epoch" for one in found)


def tells_epochs(names: Sequence[str]) -> bool:
    """Whether the columns are an epoch and a loss: one row an epoch, which is the step.

    >>> tells_epochs(["Epoch", "train_loss"]), tells_epochs(["epoch", "lr"])
    (True, False)
    """
    found = {one[0] for one in map(known, names) if one is not None}
    return any(name.lower() == "epoch" for name in names) and bool({"loss", "val_loss"} & found)
