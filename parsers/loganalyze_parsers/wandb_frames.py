"""History and system samples of one W&B run -> readings frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from loganalyze.model import Problem
from loganalyze_parsers.frames import KEY_SCHEMA
from loganalyze_parsers.tracker_frames import Rows, readings_of, scattered_columns
from loganalyze_parsers.tracker_names import CLOCK_TAGS
from loganalyze_parsers.tracker_steps import COUNTER, pick_steps
from loganalyze_parsers.wandb_history import History
from loganalyze_parsers.wandb_system import Sample, SystemRow, system_rows


def history_frame(
    history: History, axes: Counter[str], source: int, path: str
) -> tuple[pl.DataFrame | None, str | None, tuple[Problem, ...]]:
    """Rows of the history, the column that gave their steps, and what was not as it seemed.

    axes: columns that define_metric() names as x axis, with how often.
    """
    count = len(history)
    told: list[Problem] = []
    columns = scattered_columns(history.columns(), count, told, path)
    axis, steps = pick_steps(columns, [name for name, _ in axes.most_common()])
    wall = columns.get("_timestamp", pl.Series([None] * count, dtype=pl.Float64))
    hidden = {COUNTER, axis, *CLOCK_TAGS}
    rows = Rows(
        step=pl.Series([None] * count, dtype=pl.Int64) if steps is None else steps,
        wall_s=wall,
        line=np.asarray(history.line, dtype=np.int64),
        offset=np.asarray(history.offset, dtype=np.int64),
        length=np.asarray(history.length, dtype=np.int64),
        columns={name: values for name, values in columns.items() if name not in hidden},
    )
    frame, problems = readings_of(rows, source, path)
    return frame, axis, (*told, *problems)


def system_frame(
    samples: Sequence[Sample], history: pl.DataFrame | None, source: int
) -> pl.DataFrame | None:
    """Rows of the system metrics, with the step that was last logged before each sample.

    Samples before the first step have none.
    """
    rows = system_rows(samples)
    if not rows:
        return None
    names = dict.fromkeys(name for row in rows for name in row.values)
    wall = np.array([row.sample.wall_s for row in rows])
    data: dict[str, object] = {
        "step": _steps_at(wall, history),
        "rank": [row.rank for row in rows],
        "wall_s": wall,
        "source": np.full(len(rows), source),
        "line": [row.sample.line for row in rows],
        "offset": [row.sample.offset for row in rows],
        "length": [row.sample.length for row in rows],
        **{name: _values(rows, name) for name in names},
    }
    return pl.DataFrame(data, schema={**KEY_SCHEMA, **dict.fromkeys(names, pl.Float64())})


def _values(rows: Sequence[SystemRow], name: str) -> list[float | None]:
    return [row.values.get(name) for row in rows]


def _steps_at(wall: np.ndarray, history: pl.DataFrame | None) -> pl.Series:
    """The step of the last history row before each time."""
    times = pl.DataFrame({"wall_s": wall}).with_row_index("at").sort("wall_s")
    if history is None:
        return pl.Series([None] * len(wall), dtype=pl.Int64)
    known = history.select("wall_s", "step").drop_nulls().sort("wall_s")
    return times.join_asof(known, on="wall_s", strategy="backward").sort("at")["step"]
