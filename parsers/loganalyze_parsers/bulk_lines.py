"""Lines of a block as a polars column, and back to the key columns of readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from loganalyze_parsers.blocks import Block
from loganalyze_parsers.frames import KEY_SCHEMA

#: A number as every bulk way takes it: no NaN, no thousands commas (those go the slow way).
PLAIN = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


@dataclass(frozen=True, slots=True)
class Lines:
    """text: every line with its line feed; starts and ends: bytes in the block, ends without it."""

    block: Block
    text: pl.Series
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def lines_of(block: Block) -> Lines | None:
    """The block's lines without copying them one by one; None if the bytes are not UTF-8."""
    try:
        block.data.decode()
    except UnicodeDecodeError:
        return None
    starts, ends = block.bounds
    offsets = np.append(starts, len(block.data)).astype(np.int64)
    array = pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(offsets.tobytes()), pa.py_buffer(block.data)
    )
    text = pl.from_arrow(array)
    assert isinstance(text, pl.Series)
    return Lines(block, text, starts, ends)


def framed(
    lines: Lines, rows: npt.NDArray[np.int64], source: int, columns: dict[str, pl.Series]
) -> pl.DataFrame:
    """The frame of the lines at `rows`; columns: step, and wall_s or metrics where known."""
    keys = {
        "source": pl.Series(np.full(len(rows), source, dtype=np.int32)),
        "line": pl.Series(rows + lines.block.first_line),
        "offset": pl.Series(lines.starts[rows] + lines.block.offset),
        "length": pl.Series((lines.ends - lines.starts)[rows]),
    }
    frame = pl.DataFrame({**keys, **columns})
    missing = [name for name in KEY_SCHEMA if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in missing)
    metrics = [name for name in columns if name not in KEY_SCHEMA]
    return frame.select(
        *(pl.col(name).cast(kind) for name, kind in KEY_SCHEMA.items()),
        *(pl.col(name).cast(pl.Float64) for name in metrics),
    )
