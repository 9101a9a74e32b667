"""Tells what this program wrote from logs: a folder named as input may hold reports of its own."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from loganalyze.store import EVENTS, META

_SCHEMA = re.compile(rb'"schema": ?"loganalyze\.')
#: What our files say at their beginning or their end (Parquet), by suffix: no more than a file of
#: ours says, as what is taken for one is left out of a folder without a word.
_MARKS = {
    ".json": _SCHEMA,
    ".jsonl": _SCHEMA,
    ".sarif": re.compile(rb'"name": ?"loganalyze"'),
    ".parquet": re.compile(rb"loganalyze\.(?:findings|replay)/"),
    ".txt": re.compile(rb"\Aloganalyze \d+\.\d\S*\r?\n"),
}
_LOOKED_AT = 4096


def is_stored_run(names: Collection[str]) -> bool:
    """Whether a folder with files of these names is a run that ingest stored."""
    return META in names and EVENTS in names


def is_product(path: Path) -> bool:
    """Whether a file is a report, a table or a comparison that this program wrote.

    One that cannot be read is none: the reader will say why.
    """
    mark = _MARKS.get(path.suffix)
    if mark is None:
        return False
    try:
        with path.open("rb") as file:
            ends = file.read(_LOOKED_AT)
            file.seek(max(path.stat().st_size - _LOOKED_AT, len(ends)))
            ends += file.read()
    except OSError:
        return False
    return mark.search(ends) is not None
