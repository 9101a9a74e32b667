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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
from msgspec.structs import asdict, replace

from loganalyze.errors import OutputError, StoreError
from loganalyze.leftovers import abandoned, flush, workshop
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
from loganalyze.plain_data import as_dict
from loganalyze.store_parts import read_parts, scan_parts, write_parts

SCHEMA = "loganalyze.run/2"
META = "run.json"
READINGS = "readings"
RANKS, EVENTS = "ranks.parquet", "events.parquet"
#: Attempts to put a run in its place while other writers put theirs.
_TURNS = 20


def is_run(path: Path) -> bool:
    """Whether a path is a run directory of ours."""
    return (path / META).is_file()


def write_run(run: RunLog, store: Path) -> Path:
    """Write a run below the store; returns its directory. Raises OutputError."""

    def fill(fresh: Path) -> None:
        parts = _write_rows(run, fresh)
        run.events.write_parquet(fresh / EVENTS, compression="zstd")
        (fresh / META).write_text(dump(run, parts), encoding="utf-8")

    return put(store, run.meta.id, fill)


def put(store: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Put a directory that `fill` fills in its place in the store. Raises OutputError."""
    place = store / name
    try:
        store.mkdir(parents=True, exist_ok=True)
        sweep(store)
        with workshop(store, name[:20]) as made:
            fresh = made / "run"
            fresh.mkdir()
            fill(fresh)
            flush(*sorted(fresh.rglob("*")), fresh)
            _swap(fresh, place)
            flush(store)
        _rows_below.cache_clear()
    except OSError as error:
        raise OutputError(
            f"{place}: cannot be written ({error.strerror or error})",
            hint="choose another folder with --store",
        ) from error
    return place


def _write_rows(run: RunLog, fresh: Path) -> tuple[str, ...]:
    """All rows of a run; those of a wide job lie in parts already."""
    if run.ranks is None:
        return write_parts(run.readings, fresh / READINGS)
    (fresh / READINGS).mkdir()
    for part in run.ranks.parts:
        link(part, fresh / READINGS / part.name)
    run.ranks.states.write_parquet(fresh / RANKS, compression="zstd")
    return tuple(part.name for part in run.ranks.parts)


def link(part: Path, name: Path) -> None:
    """The same file under another name, or a copy of it. Raises OSError."""
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
        for meta in sorted(folder.glob(f"old*/{META}"), reverse=True):
            with suppress(OSError, ValueError, KeyError, TypeError):
                name = json.loads(meta.read_text(encoding="utf-8"))["meta"]["id"]
                if not (store / Path(name).name).exists():
                    os.rename(meta.parent, store / Path(name).name)


def sweep(store: Path) -> None:
    """Put back what `restore` does, and clear away what killed writers left in the store."""
    restore(store)
    for folder in abandoned(store):
        shutil.rmtree(folder, ignore_errors=True)


def dump(run: RunLog, parts: Sequence[str]) -> str:
    """What run.json holds of a run whose rows lie in these parts."""
    document = {
        "schema": SCHEMA,
        "meta": as_dict(run.meta),
        "parts": list(parts),
        **({} if run.ranks is None else {"leads": list(run.ranks.leads)}),
        "problems": [as_dict(problem) for problem in run.problems],
        "sources": [as_dict(source) for source in run.sources],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True, default=dict) + "\n"


def read_run(place: Path) -> RunLog:
    """The run of a directory. Raises StoreError where it is missing, damaged or too new."""
    run, document = read_head(place)
    with _reading(place):
        ranks = _ranks(place, document) if "leads" in document else None
        return replace(run, readings=_rows(place, document, ranks), ranks=ranks)


class StoredRun(RunLog, frozen=True, kw_only=True):
    """A run whose rows are read when they are asked for; those of the last one asked are held."""

    place: Path

    @property  # type: ignore[misc]  # in place of the field
    def readings(self) -> pl.DataFrame:
        """The rows. Raises StoreError where they are damaged."""
        return _rows_below(self.place)


def open_run(place: Path) -> RunLog:
    """As read_run, but the rows are read later: for many runs, of which one is looked at."""
    run, document = read_head(place)
    with _reading(place):
        ranks = _ranks(place, document) if "leads" in document else None
    return StoredRun(**{**asdict(run), "ranks": ranks}, place=place)


@lru_cache(maxsize=1)
def _rows_below(place: Path) -> pl.DataFrame:
    return read_run(place).readings


def read_head(place: Path) -> tuple[RunLog, Mapping[str, Any]]:
    """A run without its rows, and what run.json holds. Raises StoreError as read_run."""
    with _reading(place):
        document = json.loads((place / META).read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            raise StoreError(
                f"{place}: written as {document.get('schema')}, this version reads {SCHEMA}",
                hint="ingest the logs again",
            )
        run = RunLog(
            meta=_meta(document["meta"]),
            readings=pl.DataFrame(),
            events=pl.read_parquet(place / EVENTS),
            problems=tuple(_problem(entry) for entry in document["problems"]),
            sources=tuple(_source(entry) for entry in document["sources"]),
        )
        return run, document


@contextmanager
def _reading(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{place}: not a readable run directory ({error})", hint="ingest the logs again"
        ) from error


def _ranks(place: Path, document: Mapping[str, Any]) -> Ranks:
    return Ranks(
        states=pl.read_parquet(place / RANKS),
        leads=tuple(document["leads"]),
        parts=tuple(place / READINGS / name for name in document["parts"]),
    )


def _rows(place: Path, document: Mapping[str, Any], ranks: Ranks | None) -> pl.DataFrame:
    """All rows, or of a wide job those of the leads."""
    if ranks is None or not ranks.parts:
        return read_parts(place / READINGS, document["parts"])
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
    told = Account(**{**account, "unknown_samples": samples})
    return Source(**{**entry, "account": told, "pieces": tuple(entry.get("pieces", ()))})
