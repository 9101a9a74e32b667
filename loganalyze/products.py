"""Tells what this program wrote from logs: a folder named as input may hold reports of its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from loganalyze.store import EVENTS, META

#: What our files say at their beginning or their end (Parquet).
_MARKS = (b'"schema": "loganalyze.', b'"schema":"loganalyze.', b"loganalyze.findings/",
          b"loganalyze.replay/", b'"name": "loganalyze"')  # fmt: skip
_SUFFIXES = frozenset({".json", ".jsonl", ".sarif", ".parquet", ".txt"})
_LOOKED_AT = 4096


def is_stored_run(names: Collection[str]) -> bool:
    """Whether a folder with files of these names is a run that ingest stored."""
    return META in names and EVENTS in names


def is_product(path: Path) -> bool:
    """Whether a file is a report, a table or a comparison that this program wrote.

    One that cannot be read is none: the reader will say why.
    """
    if path.suffix not in _SUFFIXES:
        return False
    try:
        with path.open("rb") as file:
            ends = file.read(_LOOKED_AT)
            file.seek(max(path.stat().st_size - _LOOKED_AT, len(ends)))
            ends += file.read()
    except OSError:
        return False
    return ends.startswith(b"loganalyze ") or any(mark in ends for mark in _MARKS)
