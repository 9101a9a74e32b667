"""A run on disk: `runs/<run>/` with readings/*.parquet, events.parquet and run.json.

Plain Parquet, readable by DuckDB, polars and Spark. A run is written beside its place and exchanged
with the old one in one step of the file system, so a killed writer leaves the old run or the new
one. Where the system knows no exchange (neither Linux nor macOS, or some network file systems),
there are two steps; an old run that was only moved away is put back by whoever looks for it next.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from loganalyze.errors import OutputError, StoreError
from loganalyze.leftovers import abandoned, workshop
from loganalyze.model import (
    Account,
    LineRef,
    Problem,
    Ranks,
    RunLog,
    RunMeta,
    Segment,
    Source,
)
from loganalyze.store_parts import read_parts, scan_parts, write_parts

SCHEMA = "loganalyze.run/2"
_META = "run.json"
_READINGS = "readings"
RANKS = "ranks.parquet"
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
        sweep(store)
        with workshop(store, run.meta.id[:20]) as made:
            fresh = made / "run"
            fresh.mkdir()
            parts = _write_rows(run, fresh)
            run.events.write_parquet(fresh / "events.parquet", compression="zstd")
            (fresh / _META).write_text(_dump(run, parts), encoding="utf-8")
            _swap(fresh, place)
    except OSError as error:
        raise OutputError(
            f"{place}: cannot be written ({error.strerror or error})",
            hint="choose another folder with --store",
        ) from error
    return place


def _write_rows(run: RunLog, fresh: Path) -> tuple[str, ...]:
    """All rows of a run; those of a wide job lie in parts already."""
    if run.ranks is None:
        return write_parts(run.readings, fresh / _READINGS)
    (fresh / _READINGS).mkdir()
    for part in run.ranks.parts:
        _link(part, fresh / _READINGS / part.name)
    run.ranks.states.write_parquet(fresh / RANKS, compression="zstd")
    return tuple(part.name for part in run.ranks.parts)


def _link(part: Path, name: Path) -> None:
    try:
        os.link(part, name)
    except OSError:  # another file system, or one without links
        shutil.copyfile(part, name)


def _swap(fresh: Path, place: Path) -> None:
    for turn in range(_TURNS):
        try:
            os.rename(fresh, place)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                _put_back(fresh.parent, place)
                raise
        if _exchanged(fresh, place):
            return
        with suppress(FileNotFoundError):  # another writer may be doing the same
            os.rename(place, fresh.parent / f"old{turn:02d}")
    _put_back(fresh.parent, place)
    raise OSError(errno.EBUSY, "other writers put theirs there again and again")


def _put_back(folder: Path, place: Path) -> None:
    """The last run that was moved into the folder to its place, if nothing stands there."""
    old = max(folder.glob("old*"), default=None)
    if old is not None and not place.exists():
        os.rename(old, place)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two paths in one step; False where the system or file system cannot.

    renameat2(2) with RENAME_EXCHANGE on Linux, renamex_np(2) with RENAME_SWAP on macOS: both 2.
    """
    import ctypes

    if sys.platform == "win32":
        return False
    libc: Any = ctypes.CDLL(None)
    names = os.fsencode(one), os.fsencode(other)
    here = -100  # AT_FDCWD
    if hasattr(libc, "renameat2"):
        return bool(libc.renameat2(here, names[0], here, names[1], 2) == 0)
    return hasattr(libc, "renamex_np") and bool(libc.renamex_np(*names, 2) == 0)


def restore(store: Path) -> None:
    """Put every run back that a killed writer had moved away and not yet replaced."""
    for folder in abandoned(store):
        for meta in sorted(folder.glob(f"old*/{_META}"), reverse=True):
            with suppress(OSError, ValueError, KeyError, TypeError):
                name = json.loads(meta.read_text(encoding="utf-8"))["meta"]["id"]
                if not (store / Path(name).name).exists():
                    os.rename(meta.parent, store / Path(name).name)


def sweep(store: Path) -> None:
    """Put back what `restore` does, and clear away what killed writers left in the store."""
    restore(store)
    for folder in abandoned(store):
        shutil.rmtree(folder, ignore_errors=True)


def _dump(run: RunLog, parts: Sequence[str]) -> str:
    document = {
        "schema": SCHEMA,
        "meta": asdict(run.meta),
        "parts": list(parts),
        **({} if run.ranks is None else {"leads": list(run.ranks.leads)}),
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
        ranks = _ranks(place, document) if "leads" in document else None
        readings = _rows(place, document, ranks)
        events = pl.read_parquet(place / "events.parquet")
        return RunLog(
            meta=_meta(document["meta"]),
            readings=readings,
            events=events,
            problems=tuple(_problem(entry) for entry in document["problems"]),
            sources=tuple(_source(entry) for entry in document["sources"]),
            ranks=ranks,
        )
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{place}: not a readable run directory ({error})", hint="ingest the logs again"
        ) from error


def _ranks(place: Path, document: Mapping[str, Any]) -> Ranks:
    return Ranks(
        states=pl.read_parquet(place / RANKS),
        leads=tuple(document["leads"]),
        parts=tuple(place / _READINGS / name for name in document["parts"]),
    )


def _rows(place: Path, document: Mapping[str, Any], ranks: Ranks | None) -> pl.DataFrame:
    """All rows, or of a wide job those of the leads."""
    if ranks is None or not ranks.parts:
        return read_parts(place / _READINGS, document["parts"])
    leads = pl.col("rank").is_in(list(ranks.leads))
    return scan_parts(ranks.parts).filter(leads).collect()


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
