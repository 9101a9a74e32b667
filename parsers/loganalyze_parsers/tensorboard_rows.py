"""Scalars of an event file -> rows: one a step, a second one where a tag comes again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.model import Problem
from loganalyze_parsers.tfevents_records import HEAD, TAIL, RecordBlock
from loganalyze_parsers.tfevents_scalars import Odd, Scalars
from loganalyze_parsers.tracker_frames import Rows, readings_of, scattered
from loganalyze_parsers.tracker_names import is_twin, plain

IntArray = npt.NDArray[np.int64]

#: Folders that Keras and others put the validation writer's file into, with the same tags.
_VALIDATION = re.compile(r"(?:val(?:id(?:ation)?)?|eval(?:uation)?)$")


class Columns:
    """Scalars as they come, by block; frame() joins them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._prefix = "val/" if _VALIDATION.match(path.parent.name.lower()) else ""
        self._ids: dict[str, int] = {}
        self._parts: list[pl.DataFrame] = []
        self._odd: list[tuple[int, int, int, int, float, int, float]] = []

    @property
    def tags(self) -> tuple[str, ...]:
        """Distinct tags, in the order found."""
        return tuple(self._ids)

    def add(self, block: RecordBlock, scalars: Scalars, before: int) -> int:
        """Take a block's usual scalars; returns how many were twins. before: records so far."""
        ids = np.array([self._id(tag) for tag in scalars.tag], dtype=np.int64)
        if not len(ids):
            return 0
        tag = ids[scalars.tag_of]
        kept = np.flatnonzero(tag >= 0)
        record = scalars.record[kept]
        self._parts.append(
            pl.DataFrame(
                {
                    "step": scalars.step[kept],
                    "line": record + before + 1,
                    "offset": block.offset[record],
                    "length": block.size[record] + HEAD + TAIL,
                    "wall_s": scalars.wall_s[kept],
                    "tag": tag[kept],
                    "value": scalars.value[kept],
                }
            )
        )
        return len(tag) - len(kept)

    def add_odd(self, block: RecordBlock, one: Odd, before: int) -> bool:
        """Take the scalars of one other record; False if all of them are twins."""
        offset = int(block.offset[one.record])
        length = int(block.size[one.record]) + HEAD + TAIL
        line = one.record + before + 1
        found = False
        for tag, value in one.scalars:
            index = self._id(tag)
            if index >= 0:
                found = True
                self._odd.append((one.step, line, offset, length, one.wall_s, index, value))
        return found

    def _id(self, tag: str) -> int:
        """Number of a tag, -1 for a twin."""
        if is_twin(tag):
            return -1
        if self._prefix and not plain(tag).startswith(("val", "eval")):
            tag = self._prefix + tag
        return self._ids.setdefault(tag, len(self._ids))

    def frame(self, source: int) -> tuple[pl.DataFrame | None, tuple[Problem, ...]]:
        """The rows, and what could not be taken at face value."""
        names = ("step", "line", "offset", "length", "wall_s", "tag", "value")
        parts = list(self._parts)
        if self._odd:
            parts.append(pl.DataFrame(self._odd, schema=names, orient="row"))
        if not parts:
            return None, ()
        found = pl.concat(parts, how="vertical_relaxed")
        if self._odd:
            found = found.sort("line", maintain_order=True)
        found = _with_turns(found, len(self._ids))
        return readings_of(self._rows(_in_order(found)), source, str(self._path))

    def _rows(self, found: pl.DataFrame) -> Rows:
        first = found.unique("row", keep="first", maintain_order=True).sort("row")
        count = len(first)
        columns = {}
        parts = found.partition_by("tag", as_dict=True)
        for tag, index in self._ids.items():
            part = parts.get((index,))
            if part is not None:
                columns[tag] = scattered(part["row"].to_numpy(), part["value"].to_numpy(), count)
        return Rows(
            step=first["step"],
            wall_s=first["wall_s"],
            line=first["line"].to_numpy(),
            offset=first["offset"].to_numpy(),
            length=first["length"].to_numpy(),
            columns=columns,
        )


def _with_turns(found: pl.DataFrame, tags: int) -> pl.DataFrame:
    """With `turn`: how often the tag was written for this step before."""
    key = found["step"].to_numpy().astype(np.uint64) * np.uint64(tags + 1)
    key += found["tag"].to_numpy().astype(np.uint64)
    key.sort()
    if not (key[1:] == key[:-1]).any():
        return found.with_columns(turn=pl.lit(0, dtype=pl.Int64))
    # A trainer's last log call gives the epoch a second time: the same number is no new row.
    found = found.unique(["tag", "step", "value"], keep="first", maintain_order=True)
    return found.with_columns(turn=pl.int_range(pl.len()).over("tag", "step"))


def _in_order(found: pl.DataFrame) -> pl.DataFrame:
    """With `row`: rows are the steps (and turns) in the order of their first scalar."""
    key = found["step"].to_numpy()
    if found["turn"].max():
        key = found.select(pl.struct("step", "turn").rank("dense")).to_series().to_numpy()
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return found.with_columns(row=pl.Series(place[back]))
