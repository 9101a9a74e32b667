"""Histories as Parquet: W&B's run-history artifacts and history exports, Trackio's sync, others.

One column per metric; `_step` may be a float. Strings like "NaN" are numbers, lists and structs
are none. Rows have no place in the file: they are cited by their number. A table in which no
column is a known metric is no history of a training.

>>> sniff(Head(path=Path("0000.parquet"), data=b"PAR1", size=4))
0.9
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.csv_table import numbers
from loganalyze_parsers.history import Table, history_batch, knows_any

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"PAR1"
_MOST_COLUMNS = 20_000
_MOST_WORDS = 300  # characters of what the reader says of damage


def sniff(head: Head) -> float:
    """The four bytes at the start."""
    return 0.9 if head.data.startswith(_MAGIC) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch: the columns that hold numbers."""
    import pyarrow as pa  # loaded where it is needed: it takes a while

    failures = (ValueError, LookupError, OSError, pa.ArrowException, pl.exceptions.PolarsError)
    try:
        frame = _read(path)
    except failures as error:
        why = " ".join(str(error).split())[:_MOST_WORDS] or type(error).__name__
        message = f"{path}: not readable as Parquet ({why}); export it again, or copy it anew"
        problem = Problem(rule="unreadable", message=message)
        yield Batch(readings=None, problems=(problem,))
        return
    if not knows_any(frame.columns):
        yield _foreign(path, frame)
        return
    place = np.arange(1, len(frame) + 1, dtype=np.int64)
    table = Table(
        columns={name: _as_numbers(frame[name]) for name in frame.columns},
        line=place,
        offset=place,
        length=np.zeros(len(frame), dtype=np.int64),
        lines=len(frame),
    )
    framework = "wandb" if "_step" in frame.columns else ""
    yield history_batch(table, path, source, framework=framework)


def _read(path: Path) -> pl.DataFrame:
    """Columns of numbers and of text.

    Arrow reads them: of damaged pages polars prints a panic before it raises.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        names = [one.name for one in file.schema_arrow if _may_be_numbers(one.type)]
        names = names[:_MOST_COLUMNS]
        table = file.read(columns=names).select(names)  # `a.b` is that of a struct as well
    halves = [one.with_type(pa.float32()) if pa.types.is_float16(one.type) else one
              for one in table.schema]  # fmt: skip
    frame = pl.from_arrow(table.cast(pa.schema(halves)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _may_be_numbers(kind: pa.DataType) -> bool:
    from pyarrow import types

    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(plain or types.is_string(kind) or types.is_large_string(kind))


def _as_numbers(cells: pl.Series) -> pl.Series:
    return numbers(cells) if cells.dtype == pl.String() else cells.cast(pl.Float64)


def _foreign(path: Path, frame: pl.DataFrame) -> Batch:
    shown = ", ".join(frame.columns[:5])
    rows = {"row without a known metric": len(frame)} if len(frame) else {}
    message = f"{path}: no column is a known training metric ({shown}, ...); it is left out"
    return Batch(
        readings=None,
        problems=(Problem(rule="no_known_metric", message=message),),
        account=Account(lines=len(frame), ignored=rows),
    )


PARSER = Parser(name="parquet_history", sniff=sniff, parse=parse)
