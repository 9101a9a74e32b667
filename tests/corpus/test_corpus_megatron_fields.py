"""No number of a Megatron training line is dropped: an independent naive reader counts them."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from paths import CORPUS, needs_corpus

from loganalyze.ingest import ingest
from loganalyze.model import READING_COLUMNS

pytestmark = [pytest.mark.corpus, needs_corpus]
FILES = sorted(p for p in CORPUS.glob("megatron/*") if p.suffix in (".out", ".log", ".o"))
_NUMBER = re.compile(r"^[-+]?(?:\d|nan|inf)", re.IGNORECASE)
_RECORD = re.compile(r"\biteration +\d+/ *\d+ *\|")
#: Printed where nothing was measured, so not kept: said in the module, not dropped in silence.
_PLACEHOLDERS = ("loss scale: -1.0", "grad norm: 0.000")


def naive_fields(line: str) -> int:
    """How many `key: number |` fields a whole training line has, counted by splitting."""
    record = line[_RECORD.search(line).start() :]  # type: ignore[union-attr]
    fields = [field.strip() for field in record.split("|")[1:-1]]
    values = [f.rpartition(":")[2].strip() for f in fields if f not in _PLACEHOLDERS]
    return sum(bool(_NUMBER.match(value)) for value in values)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_number_of_a_training_line_is_kept(path: Path) -> None:
    """As many metrics as the naive reader counts fields (pairs now/average give one more)."""
    (run,) = ingest([str(path)]).runs
    metrics = [name for name in run.readings.columns if name not in READING_COLUMNS]
    lines = path.read_bytes().split(b"\n")
    rows = run.readings.filter(pl.col("step").is_not_null())
    checked = 0
    for row in rows.iter_rows(named=True):
        text = lines[row["line"] - 1].decode("utf-8", "replace").rstrip()
        if len(_RECORD.findall(text)) != 1 or not text.endswith("|"):
            continue
        kept = sum(row[name] is not None for name in metrics)
        assert kept >= naive_fields(text), text
        checked += 1
    assert checked or not _RECORD.search(b"\n".join(lines).decode("utf-8", "replace"))
