"""A run on disk: `runs/<run>/` with readings/*.parquet, events.parquet and run.json.

Plain Parquet, readable by DuckDB, polars and Spark. A run is written beside its place and moved
there in one rename, so a killed writer leaves either the old run or the new one.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from loganalyze.errors import OutputError, StoreError
from loganalyze.model import Account, LineRef, Problem, RunLog, RunMeta, Segment, Source
from loganalyze.store_parts import read_parts, write_parts

SCHEMA = "loganalyze.run/2"
_META = "run.json"
_READINGS = "readings"
#: Attempts to put a run in its place while other writers put theirs.
_TURNS = 20


def is_run(path: Path) -> bool:
    """Whether a path is a run directory of ours."""
    return (path / _META).is_file()


def write_run(run: RunLog, store: Path) -> Path:
    """Write a run below the store; returns its directory. Raises OutputError."""
    place = store / run.meta.id
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=store, prefix=f".{run.meta.id}.") as made:
            fresh = Path(made) / "run"
            fresh.mkdir()
            parts = write_parts(run.readings, fresh / _READINGS)
            run.events.write_parquet(fresh / "events.parquet", compression="zstd")
            (fresh / _META).write_text(_dump(run, parts), encoding="utf-8")
            _swap(fresh, place)
    except OSError as error:
        raise OutputError(
            f"{place}: cannot be written ({error.strerror or error})",
            hint="choose another folder with --store",
        ) from error
    return place


def _swap(fresh: Path, place: Path) -> None:
    for turn in range(_TURNS):
        old = fresh.parent / f"old{turn}"
        with suppress(FileNotFoundError):  # another writer may be doing the same
            os.rename(place, old)
        try:
            os.rename(fresh, place)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or turn == _TURNS - 1:
                if old.exists():
                    os.rename(old, place)
                raise


def _dump(run: RunLog, parts: Sequence[str]) -> str:
    document = {
        "schema": SCHEMA,
        "meta": asdict(run.meta),
        "parts": list(parts),
        "problems": [asdict(problem) for problem in run.problems],
        "sources": [asdict(source) for source in run.sources],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True, default=dict) + "\n"


def read_run(place: Path) -> RunLog:
    """The run of a directory. Raises StoreError where it is missing, damaged or too new."""
    try:
        document = json.loads((place / _META).read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            raise StoreError(
                f"{place}: written as {document.get('schema')}, this version reads {SCHEMA}",
                hint="ingest the logs again",
            )
        readings = read_parts(place / _READINGS, document["parts"])
        events = pl.read_parquet(place / "events.parquet")
        return RunLog(
            meta=_meta(document["meta"]),
            readings=readings,
            events=events,
            problems=tuple(_problem(entry) for entry in document["problems"]),
            sources=tuple(_source(entry) for entry in document["sources"]),
        )
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{place}: not a readable run directory ({error})", hint="ingest the logs again"
        ) from error


def _meta(entry: Mapping[str, Any]) -> RunMeta:
    segments = tuple(Segment(**segment) for segment in entry["segments"])
    return RunMeta(**{**entry, "segments": segments})


def _problem(entry: Mapping[str, Any]) -> Problem:
    ref = entry["ref"]
    return Problem(**{**entry, "ref": LineRef(**ref) if ref else None})


def _source(entry: Mapping[str, Any]) -> Source:
    account = entry["account"]
    samples = tuple(account["unknown_samples"])
    return Source(**{**entry, "account": Account(**{**account, "unknown_samples": samples})})
