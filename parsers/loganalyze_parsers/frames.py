"""Rows to columns: the readings frame that every parser yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from loganalyze.model import Problem, Reading

KEY_SCHEMA: Mapping[str, pl.DataType] = {
    "step": pl.Int64(),
    "rank": pl.Int32(),
    "wall_s": pl.Float64(),
    "source": pl.Int32(),
    "line": pl.Int64(),
    "offset": pl.Int64(),
    "length": pl.Int64(),
}


#: Steps and places beyond this are none: a double, as trackers use, holds no larger integer.
_MOST_STEP, _MOST_RANK = 2**53, 2**31 - 1
#: Columns with so many cells for one number are filled number by number.
_SPARSE = 8
#: Rows are put between others by pieces where they are fewer than one in so many.
_FEW = 64


def within(value: int | None, most: int) -> int | None:
    """The value, or None where it is absent or its size is beyond `most`.

    >>> within(12, 2**53), within(10**30, 2**53)
    (12, None)
    """
    return value if value is not None and abs(value) <= most else None


class Names:
    """Which names of numbers an input may bring, so that rows times columns stay bounded.

    Once the columns would exceed `least`, and rows times columns `cells`, no further name is
    taken; those of canonical metrics always are.
    """

    def __init__(self, cells: int = 10_000_000, least: int = 512) -> None:
        """No name yet. Real text logs have at most some hundreds of them."""
        self._cells, self._least = cells, least
        self._taken: set[str] = set()
        self._rows = 0
        self.left_out: dict[str, None] = {}

    def admitted(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        """The readings without the numbers whose names are one too many."""
        self._rows += len(readings)
        most = max(self._least, self._cells // max(self._rows, 1))
        for reading in readings:
            for name in reading.values:
                if name in self._taken or not name.startswith("raw/"):
                    continue
                if len(self._taken) < most:
                    self._taken.add(name)
                elif len(self.left_out) < self._least:
                    self.left_out[name] = None
        if not self.left_out:
            return readings
        return [replace(r, values=self._own(r.values)) for r in readings]

    def kept(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame without the columns whose names are one too many."""
        self._rows += len(frame)
        most = max(self._least, self._cells // max(self._rows, 1))
        own = [name for name in frame.columns if name.startswith("raw/")]
        fresh = [name for name in own if name not in self._taken]
        self._taken.update(fresh[: max(most - len(self._taken), 0)])
        over = [name for name in fresh if name not in self._taken]
        self.left_out.update(dict.fromkeys(over[: self._least - len(self.left_out)]))
        return frame.drop(over) if over else frame

    def _own(self, values: Mapping[str, float]) -> dict[str, float]:
        return {
            name: value
            for name, value in values.items()
            if name in self._taken or not name.startswith("raw/")
        }

    def problems(self, where: str) -> tuple[Problem, ...]:
        """What is told of names that were left out; nothing if none was."""
        if not self.left_out:
            return ()
        message = (
            f"{where}: numbers under more than {len(self._taken)} different names; those that "
            f"came later are left out, the first is {next(iter(self.left_out))[4:80]!r}"
        )
        return (Problem(rule="limit_reached", message=message),)


def sparse_column(rows: npt.ArrayLike, values: npt.ArrayLike, count: int) -> pl.Series:
    """A Float64 column of `count` cells: values at the given rows (the last wins), else null."""
    full = np.zeros(count, dtype=np.float64)
    absent = np.ones(count, dtype=np.bool_)
    at = np.asarray(rows, dtype=np.int64)
    full[at] = np.asarray(values, dtype=np.float64)
    absent[at] = False
    return masked_column(full, absent)


def masked_column(values: npt.NDArray[np.float64], absent: npt.NDArray[np.bool_]) -> pl.Series:
    """A Float64 column that is null where `absent` is true."""
    return pl.Series(values).set(pl.Series(absent), None)


def readings_frame(readings: Sequence[Reading]) -> pl.DataFrame | None:
    """One row per reading: the key columns, then a Float64 column per metric that occurs."""
    if not readings:
        return None
    columns: dict[str, list[object] | pl.Series] = {
        "step": [within(r.step, _MOST_STEP) for r in readings],
        "rank": [within(r.rank, _MOST_RANK) for r in readings],
        "wall_s": [r.wall_s for r in readings],
        "source": [r.ref.source for r in readings],
        "line": [r.ref.line for r in readings],
        "offset": [r.ref.offset for r in readings],
        "length": [r.ref.length for r in readings],
    }
    names = dict.fromkeys(name for reading in readings for name in reading.values)
    held = sum(len(reading.values) for reading in readings)
    if len(names) * len(readings) > _SPARSE * held:
        columns.update(_scattered(readings, names))
    else:
        for name in names:
            columns[name] = [r.values.get(name) for r in readings]
    schema = {**KEY_SCHEMA, **{name: pl.Float64() for name in names}}
    return pl.DataFrame(columns, schema=schema)


def joined_rows(bulk: Sequence[pl.DataFrame], readings: Sequence[Reading]) -> pl.DataFrame | None:
    """Rows read by the column and rows read one by one, in the order of their offsets."""
    frame = readings_frame(readings)
    if frame is not None and not frame["offset"].is_sorted():  # some are told with a later line
        frame = frame.sort("offset", maintain_order=True)
    frames = [*bulk, *([] if frame is None else [frame])]
    if len(bulk) == 1 and frame is not None and _FEW * len(frame) < len(bulk[0]):
        return _among(bulk[0], frame)
    if len(frames) > 1:
        return pl.concat(frames, how="diagonal").sort("offset", maintain_order=True)
    return frames[0] if frames else None


def _among(many: pl.DataFrame, few: pl.DataFrame) -> pl.DataFrame:
    """Two frames, each in the order of its offsets, as one: a few rows between many.

    By pieces, which takes half the time of sorting all rows.
    """
    edges = np.searchsorted(many["offset"].to_numpy(), few["offset"].to_numpy()).tolist()
    pieces = [many.clear()]  # its columns come first
    for row, (begin, end) in enumerate(pairwise([0, *edges, len(many)])):
        pieces.extend(p for p in (many.slice(begin, end - begin), few.slice(row, 1)) if len(p))
    return pl.concat(pieces, how="diagonal", rechunk=True)


def _scattered(readings: Sequence[Reading], names: Mapping[str, None]) -> dict[str, pl.Series]:
    """Columns of which most cells are empty: the time is that of the numbers, not of the cells."""
    found: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in names}
    for row, reading in enumerate(readings):
        for name, value in reading.values.items():
            rows, values = found[name]
            rows.append(row)
            values.append(value)
    return {name: sparse_column(*pair, len(readings)) for name, pair in found.items()}
