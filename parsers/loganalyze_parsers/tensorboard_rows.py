"""Scalars of an event file -> rows: one a step, a second one where a tag comes again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze import lazy
from loganalyze.model import Problem
from loganalyze_parsers.tfevents_records import HEAD, TAIL, RecordBlock
from loganalyze_parsers.tfevents_scalars import Odd, Scalars
from loganalyze_parsers.tracker_frames import readings_of
from loganalyze_parsers.tracker_join import joined_rows
from loganalyze_parsers.tracker_names import is_twin, plain

IntArray = npt.NDArray[np.int64]

#: Folders that Keras and others put the validation writer's file into, with the same tags.
_VALIDATION = lazy.pattern(r"(?:val(?:id(?:ation)?)?|eval(?:uation)?)$")
#: torchtitan may give every rank a folder of its own.
RANK_FOLDER = lazy.pattern(r"rank[_-]?(\d+)$")


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
        if not len(kept):
            return len(tag)
        record = scalars.record[kept]
        self._parts.append(
            pl.DataFrame(
                {
                    "step": scalars.step[kept],
                    "line": (record + before + 1).astype(np.int32),
                    "offset": block.offset[record],
                    "length": (block.size[record] + HEAD + TAIL).astype(np.int32),
                    "wall_s": scalars.wall_s[kept],
                    "tag": tag[kept].astype(np.int32),
                    "value": scalars.value[kept].astype(np.float32),  # as the file has them
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
        if found.is_empty():  # twins and damage only
            return None, ()
        if self._odd:
            found = found.sort("line", maintain_order=True)
        rows = joined_rows(found, self.tags, equal_is_same=True)
        frame, problems = readings_of(rows, source, str(self._path))
        rank = RANK_FOLDER.match(self._path.parent.name)
        if frame is not None and rank is not None:
            frame = frame.with_columns(rank=pl.lit(int(rank[1]), dtype=pl.Int32))
        return frame, problems
