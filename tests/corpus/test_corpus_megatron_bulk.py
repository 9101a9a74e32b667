"""The fast way and the reader give the same rows, on every real file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from loganalyze_parsers import megatron
from loganalyze_parsers.text_files import parse_text
from msgspec.structs import replace
from paths import CORPUS, needs_corpus
from polars.testing import assert_frame_equal

pytestmark = [pytest.mark.corpus, needs_corpus]
FILES = sorted(p for p in CORPUS.glob("megatron/*") if p.suffix in (".out", ".log", ".o"))


def rows(path: Path, *, bulk: bool) -> pl.DataFrame:
    """All rows of a file, columns and rows in a fixed order."""
    dialect = megatron.DIALECT if bulk else replace(megatron.DIALECT, bulk=None)
    batches = list(parse_text(path, 0, (dialect,), lambda text: "any"))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    frame = pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
    if not len(frame):
        return frame
    return frame.select(sorted(frame.columns)).sort("offset", "rank", maintain_order=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_both_ways_agree(path: Path) -> None:
    """Every number, step, rank, time and place is the same, to the last bit."""
    assert_frame_equal(rows(path, bulk=True), rows(path, bulk=False), check_exact=True)
