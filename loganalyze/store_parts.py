"""Readings on disk: parts of plain Parquet, named by their content, in the order of their rows.

`readings/00000-<digest>.parquet`: the same rows give the same bytes and so the same name. Parts
are written at the same time; a part appears under its name only when it is whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from loganalyze.model import READING_COLUMNS
from loganalyze.spill import Spiller, release

#: Rows of a part: enough for Parquet to pack them well, few enough to hold in memory.
PART_ROWS = 1 << 17
#: Rows that are encoded at once: a copy of them and the writer's buffers are in memory.
_GROUP_ROWS = 1 << 16
#: A run of more parts is not held in memory.
MANY_PARTS = 8
_THREADS = min(2, os.cpu_count() or 1)


def write_parts(readings: pl.DataFrame, folder: Path) -> tuple[str, ...]:
    """Write all rows below a new folder; the names of the parts in the order of the rows.

    A frame without rows is one part without rows: its columns are kept. Raises OSError.
    """
    folder.mkdir()
    firsts = range(0, max(len(readings), 1), PART_ROWS)
    with ThreadPoolExecutor(_THREADS) as pool:
        jobs = [pool.submit(_write, readings, first, folder) for first in firsts]
        return tuple(job.result() for job in jobs)


def read_parts(folder: Path, names: Sequence[str]) -> pl.DataFrame:
    """All rows of the parts; very many are moved out of the memory as they come.

    Raises OSError or PolarsError where one is missing or damaged.
    """
    frames: list[pl.DataFrame] = []
    spiller = Spiller(frames)
    for name in names:
        frames.append(pl.read_parquet(folder / name))
        if len(names) > MANY_PARTS:
            spiller.look()
    spiller.finish()
    return pl.concat(frames)


def scan_parts(paths: Sequence[Path]) -> pl.LazyFrame:
    """The rows of parts with different columns; what a part has no column for is null."""
    schema: dict[str, pl.DataType] = {}
    for path in paths:
        for name, kind in pl.read_parquet_schema(path).items():
            schema.setdefault(name, kind)
    return pl.scan_parquet(list(paths), schema=schema, missing_columns="insert")


def _write(readings: pl.DataFrame, first: int, folder: Path) -> str:
    return write_part(readings.slice(first, PART_ROWS), first // PART_ROWS, folder)


def write_part(rows: pl.DataFrame, number: int, folder: Path) -> str:
    """One part, under a name of its own until it is whole; returns its name. Raises OSError."""
    fresh = folder / f".{number}-{os.urandom(4).hex()}"
    _write_rows(rows, fresh)
    with fresh.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = f"{number:05}-{digest[:16]}.parquet"
    fresh.rename(folder / name)
    return name


def _write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Group by group, so that little is copied at once and mapped pages go back in between.

    Integers as differences, which are small where lines follow each other. Lowest and highest
    values for the columns by which rows are looked up; for every metric they cost a tenth more.
    """
    import pyarrow as pa  # loaded where it is needed: it takes a while
    import pyarrow.parquet as pq

    schema = rows.head(0).to_arrow().schema
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=[name for name in READING_COLUMNS if name in schema.names],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    ) as writer:
        for first in range(0, len(rows), _GROUP_ROWS):
            group = rows.slice(first, _GROUP_ROWS)
            writer.write_table(group.rechunk().to_arrow())  # chunks would show in the file's pages
            release()
