"""Scalars one by one, or one file a metric -> rows: one a step, a second one where a tag recurs.

Event files, MLflow and SwanLab keep each metric apart. What was logged at one step belongs into
one row; where a step was logged again (a resume), its second value goes into a second row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze_parsers.frames import KEY_SCHEMA
from loganalyze_parsers.tracker_frames import Rows, scattered

IntArray = npt.NDArray[np.int64]

_TURN, _PLACE = "turn__", "place__"
#: Metrics that parsers derive from the clock: every file of a run gives them, once is enough.
_FROM_CLOCKS = frozenset({"step_time_s"})
#: Bytes within which the scalars of a row are cited as one place.
_MOST_SPAN = 16 * 1024
#: Columns of a frame of single scalars; tag is an index into the list of tags.
SCALAR_COLUMNS = ("step", "line", "offset", "length", "wall_s", "tag", "value")


def joined_rows(found: pl.DataFrame, tags: Sequence[str], *, equal_is_same: bool = False) -> Rows:
    """Rows of scalars, in the order of their first one.

    found: SCALAR_COLUMNS, as written. equal_is_same: a tag that comes again for its step with the
    same number makes no row (a trainer's last log call gives the epoch a second time); not where
    a resumed run may have written the same numbers again.
    """
    found, turn = _with_turns(found, len(tags), equal_is_same)
    row, first = _rows_of(found["step"].to_numpy(), turn)
    tag = found["tag"].to_numpy()
    value = found["value"].to_numpy()
    order = np.argsort(tag, kind="stable")
    edges = np.searchsorted(tag[order], np.arange(len(tags) + 1))
    columns = {}
    for index, name in enumerate(tags):
        mine = order[edges[index] : edges[index + 1]]
        if len(mine):
            columns[name] = scattered(row[mine], value[mine], len(first))
    places = found.select("step", "wall_s", "line", "offset", "length")[first]
    return Rows(
        step=places["step"],
        wall_s=places["wall_s"],
        line=places["line"].to_numpy().astype(np.int64),
        offset=places["offset"].to_numpy().astype(np.int64),
        length=_lengths(found, row, first),
        columns=columns,
    )


def _lengths(found: pl.DataFrame, row: IntArray, first: IntArray) -> IntArray:
    """Bytes that each row cites: all its scalars where they stand together, else the first."""
    offset = found["offset"].to_numpy().astype(np.int64)
    length = found["length"].to_numpy().astype(np.int64)
    own: IntArray = length[first]
    if bool((np.diff(row) < 0).any()):  # a row's scalars are scattered over the file
        return own
    last = np.append(first[1:], len(row)) - 1
    span = offset[last] + length[last] - offset[first]
    together: IntArray = np.where((span > 0) & (span <= _MOST_SPAN), span, own)
    return together


def _with_turns(
    found: pl.DataFrame, tags: int, equal_is_same: bool
) -> tuple[pl.DataFrame, IntArray | None]:
    """How often each tag was written for its step before; None where none was written twice."""
    key = found["step"].to_numpy().astype(np.uint64) * np.uint64(tags + 1)
    key += found["tag"].to_numpy().astype(np.uint64)
    key.sort()
    if not (key[1:] == key[:-1]).any():
        return found, None
    if equal_is_same:
        found = found.unique(["tag", "step", "value"], keep="first", maintain_order=True)
    turn = found.select(pl.int_range(pl.len()).over("tag", "step")).to_series()
    return found, turn.to_numpy() if turn.max() else None


def _rows_of(step: IntArray, turn: IntArray | None) -> tuple[IntArray, IntArray]:
    """Row of every scalar, and the first scalar of every row: steps (and turns) as they come."""
    if turn is None and (step[1:] >= step[:-1]).all():
        first = np.concatenate(([0], np.flatnonzero(step[1:] != step[:-1]) + 1))
        size = np.diff(np.append(first, len(step)))
        return np.repeat(np.arange(len(first), dtype=np.int64), size), first
    key = step
    if turn is not None:
        both = pl.DataFrame({"step": step, "turn": turn})
        key = both.select(pl.struct("step", "turn").rank("dense")).to_series().to_numpy()
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    order = np.argsort(first)
    place[order] = np.arange(len(first))
    return place[back], first[order]


def join_columns(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One frame of several that hold one metric each: rows meet by rank, step and turn.

    frames: readings frames. The one with the loss (else the first) leads: its order stays, its
    places are cited; a row that only another frame has goes behind the row before it there. A
    column that two frames have stays that of the first; the other becomes `raw/<name>#<n>`.
    """
    made: pl.DataFrame | None = None
    ordered = sorted(frames, key=lambda frame: "loss" not in frame.columns)
    for number, frame in enumerate(ordered):
        turn = pl.int_range(pl.len()).over("rank", "step")
        frame = frame.with_columns(turn.alias(_TURN))
        if made is None:
            made = frame.with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias(_PLACE))
            continue
        clash = set(frame.columns) & set(made.columns) - {*KEY_SCHEMA, _TURN}
        frame = frame.drop(clash & _FROM_CLOCKS)
        clash -= _FROM_CLOCKS
        names = {name: f"raw/{name.removeprefix('raw/')}#{number + 1}" for name in clash}
        made = _met(made, frame.rename(names))
    if made is None:
        return pl.DataFrame(schema=dict(KEY_SCHEMA))
    return made.drop(_TURN, _PLACE)


def _met(made: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Full join; where both have the row, the place and time of the first stay."""
    keys = ["rank", "step", _TURN]
    known = made.select(*keys, _PLACE)
    found = frame.join(known, on=keys, how="left", nulls_equal=True, maintain_order="left")
    found = found.with_columns(
        (pl.col(_PLACE).forward_fill() + 0.5).fill_null(-0.5).alias("after__")
    ).drop(_PLACE)
    both = made.join(found, on=keys, how="full", nulls_equal=True, coalesce=True, suffix="__new")
    places = [name for name in KEY_SCHEMA if name not in keys]
    both = both.with_columns(
        *(pl.coalesce(name, f"{name}__new").alias(name) for name in places),
        pl.coalesce(_PLACE, "after__").alias(_PLACE),
    ).drop([f"{name}__new" for name in places], "after__")
    both = both.sort(_PLACE, "source", "line", maintain_order=True)
    return both.with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias(_PLACE))
