"""Trackio's SQLite store, `~/.cache/huggingface/trackio/<project>.db`.

    metrics(run_id, timestamp ISO text, run_name, step, metrics JSON), system_metrics, configs,
    alerts                          JSON is a BLOB in new files, TEXT in old ones

Numbers that are not finite are JSON strings. `step` is the tracker's counter; the trainer's own
step, where it was logged, comes before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from loganalyze.model import Batch, Event, LineRef, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.history import history_batch
from loganalyze_parsers.history_rows import Grown
from loganalyze_parsers.tables_sqlite import MAGIC, columns_of, failures, opened
from loganalyze_parsers.wandb_files import flat_config
from loganalyze_parsers.wandb_frames import system_frame
from loganalyze_parsers.wandb_history import flat_numbers
from loganalyze_parsers.wandb_system import Sample

if TYPE_CHECKING:
    import sqlite3

_METRICS = frozenset({"timestamp", "run_name", "step", "metrics"})
_PAGE = 20_000


def sniff(head: Head) -> float:
    """A SQLite file with Trackio's table of metrics."""
    if not head.data.startswith(MAGIC):
        return 0.0
    return 0.97 if columns_of(head.path).get("metrics", frozenset()) >= _METRICS else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch a run: its rows, system metrics, configuration and alerts."""
    try:
        tables = columns_of(path)
        with opened(path) as connection:
            names = connection.execute(
                "select run_name, min(rowid) from metrics group by run_name order by 2"
            ).fetchall()
            for name, _ in names:
                label = str(name) if len(names) > 1 else ""
                yield _run(connection, tables, path, source, str(name), label)
    except failures() as error:
        told = f"{path}: the database cannot be read ({error})"
        problem = Problem(rule="unreadable", message=told)
        yield Batch(readings=None, problems=(problem,), framework="trackio")


def _run(
    connection: sqlite3.Connection, tables: dict[str, frozenset[str]], path: Path, source: int,
    name: str, label: str,
) -> Batch:  # fmt: skip
    grown = Grown()
    unknown = 0
    cursor = connection.execute(
        "select rowid, timestamp, step, metrics from metrics where run_name = ? order by rowid",
        (name,),
    )
    while page := cursor.fetchmany(_PAGE):
        for rowid, stamp, step, words in page:
            content = _json(words)
            if content is None:
                unknown += 1
                continue
            grown.start(rowid, rowid, 0)
            grown.put("_step", step if isinstance(step, int) else None)
            grown.put("_timestamp", seconds_of(stamp))
            for key, value in content.items():
                for inner, plain in flat_numbers(str(key).encode(), value):
                    grown.put(inner.decode("utf-8", "replace"), plain)
    table = grown.table(lines=len(grown) + unknown, unknown=unknown)
    batch = history_batch(table, path, source)
    frames = (batch.readings, _system(connection, tables, name, batch, source))
    kept = [part for part in frames if part is not None and len(part)]
    return Batch(
        readings=pl.concat(kept, how="diagonal") if kept else None,
        events=_events(connection, tables, source, name),
        problems=batch.problems,
        account=batch.account,
        run=label,
        framework=batch.framework or "trackio",
    )


def _json(words: object) -> dict[str, object] | None:
    if not isinstance(words, str | bytes):
        return None
    try:
        content = json.loads(words)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def seconds_of(stamp: object) -> float | None:
    """Unix seconds of an ISO time; one without a zone counts as UTC.

    >>> seconds_of("2001-09-09T01:46:40+00:00"), seconds_of("soon")
    (1000000000.0, None)
    """
    try:
        moment = datetime.fromisoformat(str(stamp))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = datetime.fromisoformat(f"{stamp}+00:00")
    return moment.timestamp()


def _system(
    connection: sqlite3.Connection, tables: dict[str, frozenset[str]], name: str, batch: Batch,
    source: int,
) -> pl.DataFrame | None:  # fmt: skip
    if not tables.get("system_metrics", frozenset()) >= {"timestamp", "run_name", "metrics"}:
        return None
    samples = []
    query = "select rowid, timestamp, metrics from system_metrics where run_name = ? order by rowid"
    for rowid, stamp, words in connection.execute(query, (name,)):
        wall, content = seconds_of(stamp), _json(words)
        if wall is None or content is None:
            continue
        values = {
            inner.decode("utf-8", "replace"): plain
            for key, value in content.items()
            for inner, plain in flat_numbers(str(key).encode(), value)
        }
        samples.append(Sample(wall_s=wall, line=rowid, offset=rowid, length=0, values=values))
    return system_frame(samples, batch.readings, source)


def _events(
    connection: sqlite3.Connection, tables: dict[str, frozenset[str]], source: int, name: str
) -> tuple[Event, ...]:
    ref = LineRef(source=source, line=1, offset=0, length=0)
    events: list[Event] = []
    if tables.get("configs", frozenset()) >= {"run_name", "config"}:
        query = "select config from configs where run_name = ?"
        for (words,) in connection.execute(query, (name,)):
            found: dict[str, str] = {}
            for key, value in (_json(words) or {}).items():
                if not key.startswith("_"):
                    found.update(flat_config(key, json.dumps(value).encode()))
            if found:
                events.append(Event(kind="config", ref=ref, text="", detail=found))
    if tables.get("alerts", frozenset()) >= {"run_name", "title", "text", "step"}:
        query = "select title, text, step from alerts where run_name = ? order by rowid"
        for title, text, step in connection.execute(query, (name,)):
            words = f"{title}: {text}" if text else str(title)
            known = step if isinstance(step, int) else None
            events.append(Event(kind="warning", ref=ref, text=words[:200], step=known))
    return tuple(events)


PARSER = Parser(name="trackio", sniff=sniff, parse=parse)
