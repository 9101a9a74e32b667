"""MLflow's SQLite store, `mlflow.db` (the default since 3.x).

    metrics(key, value, timestamp ms, run_uuid, step, is_nan), params(key, value, run_uuid),
    runs(run_uuid, name, status, start_time, end_time, ...)

NaN is the value 0 with is_nan 1, infinities are +-1.7976931348623157e308. Rows are appended: after
a resume steps come again. Identical rows are kept once by the primary key.

>>> sniff_database(Head(path=Path("mlflow.db"), data=b"no database", size=11))
0.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.tables_sqlite import MAGIC, columns_of, failures, opened
from loganalyze_parsers.tracker_frames import readings_of
from loganalyze_parsers.tracker_join import SCALAR_COLUMNS, joined_rows
from loganalyze_parsers.tracker_names import framework_of

if TYPE_CHECKING:
    import sqlite3

_METRICS = frozenset({"key", "value", "timestamp", "run_uuid", "step", "is_nan"})
_LARGEST = 1.7976931348623157e308
_QUERY = (
    "select rowid, key, value, timestamp, step, is_nan from metrics where run_uuid = ? "
    "order by rowid"
)
_RUNS = "select run_uuid, name, status, end_time from runs order by start_time, run_uuid"
_PAGE = 100_000
EXIT_CODES = {"FINISHED": 0, "FAILED": 1, "KILLED": 255}


def sniff_database(head: Head) -> float:
    """A SQLite file with MLflow's table of metrics."""
    if not head.data.startswith(MAGIC):
        return 0.0
    return 0.97 if columns_of(head.path).get("metrics", frozenset()) >= _METRICS else 0.0


def parse_database(path: Path, source: int) -> Iterator[Batch]:
    """One batch a run: rows of its metrics, its parameters and its end as events."""
    try:
        with opened(path) as connection:
            query = (
                "select run_uuid, name, status, end_time from runs order by start_time, run_uuid"
            )
            runs = connection.execute(query).fetchall()
            labels = _labels(runs)
            for uuid, _, status, end in runs:
                label = labels[uuid] if len(runs) > 1 else ""
                yield _run(connection, path, source, uuid, label, (status, end))
    except failures() as error:
        told = f"{path}: the database cannot be read ({error})"
        problem = Problem(rule="unreadable", message=told)
        yield Batch(readings=None, problems=(problem,), framework="mlflow")


def _labels(runs: list[tuple[str, str | None, str | None, int | None]]) -> dict[str, str]:
    """Names of runs; where two runs share one, the id is added."""
    names = [str(name or uuid) for uuid, name, _, _ in runs]
    return {
        run[0]: name if names.count(name) == 1 else f"{name}-{run[0][:8]}"
        for run, name in zip(runs, names, strict=True)
    }


def _run(
    connection: sqlite3.Connection, path: Path, source: int, uuid: str, label: str,
    end: tuple[str | None, int | None],
) -> Batch:  # fmt: skip
    tags: dict[str, int] = {}
    parts: list[pl.DataFrame] = []
    cursor = connection.execute(_QUERY, (uuid,))
    count = unknown = 0
    while page := cursor.fetchmany(_PAGE):
        count += len(page)
        good = [row for row in page if _is_sound(row)]
        unknown += len(page) - len(good)
        parts.append(_page(good, tags))
    frame: pl.DataFrame | None = None
    problems: tuple[Problem, ...] = ()
    if parts:
        rows = joined_rows(pl.concat(parts), list(tags))
        frame, problems = readings_of(rows, source, str(path))
    settings = connection.execute("select key, value from params where run_uuid = ?", (uuid,))
    config = {str(key): str(value)[:200] for key, value in sorted(settings.fetchall())}
    return Batch(
        readings=frame,
        events=_events(source, count, config, end),
        problems=problems,
        account=Account(lines=count, read=count - unknown, unknown=unknown),
        run=label,
        framework=framework_of(tags) or "mlflow",
    )


def _is_sound(row: tuple[object, ...]) -> bool:
    """Whether the cells are of the kinds that MLflow writes (SQLite itself does not care)."""
    _, key, value, stamp, step, _ = row
    numbers = isinstance(value, int | float) and isinstance(stamp, int | float)
    return isinstance(key, str) and numbers and isinstance(step, int)


def _page(rows: list[tuple[int, str, float, int, int, int]], tags: dict[str, int]) -> pl.DataFrame:
    made = [
        (step, rowid, rowid, 0, stamp / 1000.0, tags.setdefault(key, len(tags)), _value(value, nan))
        for rowid, key, value, stamp, step, nan in rows
    ]
    return pl.DataFrame(made, schema=list(SCALAR_COLUMNS), orient="row").with_columns(
        pl.col("value", "wall_s").cast(pl.Float64)
    )


def _value(value: float, is_nan: int) -> float:
    if is_nan:
        return math.nan
    if abs(value) >= _LARGEST:
        return math.copysign(math.inf, value)
    return float(value)


def _events(
    source: int, rows: int, config: dict[str, str], end: tuple[str | None, int | None]
) -> tuple[Event, ...]:
    events = []
    if config:
        ref = LineRef(source=source, line=1, offset=0, length=0)
        events.append(Event(kind="config", ref=ref, text="", detail=config))
    status, stamp = end
    if status in EXIT_CODES:
        ref = LineRef(source=source, line=max(1, rows), offset=2**40 - 1, length=0)
        wall = stamp / 1000.0 if stamp else None
        detail: dict[str, str | int | float | None] = {"status": status}
        detail["exit_code"] = EXIT_CODES[status]
        events.append(Event(kind="exit", ref=ref, text=status, detail=detail, wall_s=wall))
    return tuple(events)


PARSER = Parser(name="mlflow_database", sniff=sniff_database, parse=parse_database)
