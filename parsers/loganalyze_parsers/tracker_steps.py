"""Which column of a tracker's table is the training step.

A tracker counts its own log() calls (`_step`); the user's step, where it was logged, is the one
that people know their run by. It must look like a step: whole numbers that do not go back, but for
a few resumes, on most of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from loganalyze_parsers.tracker_names import STEP_TAGS, plain

COUNTER = "_step"
#: Steps back that resumes may explain: three, or this share of the rows.
_BACK_MAX, _BACK_SHARE = 3, 0.01
_COVERED_SHARE = 0.5
_MOST_STEP = 2.0**62


def pick_steps(
    columns: Mapping[str, pl.Series], preferred: Sequence[str] = ()
) -> tuple[str | None, pl.Series | None]:
    """Name of the step column and the steps (Int64; gaps take the step before, else after).

    preferred: columns that the log itself declares as x axis, the surest first.
    """
    by_name = {(COUNTER if tag == COUNTER else plain(tag)): tag for tag in columns}
    order = [*preferred, *(by_name[name] for name in STEP_TAGS if name in by_name)]
    for tag in dict.fromkeys(order):
        if tag in columns and (tag == COUNTER or _is_axis(columns[tag])):
            return tag, _filled(_completed(columns[tag], columns.get(COUNTER)))
    return None, None


def _is_axis(values: pl.Series) -> bool:
    known = values.drop_nulls().to_numpy()
    if len(known) == 0 or len(known) < _COVERED_SHARE * len(values):
        return False
    if not np.isfinite(known).all() or (np.abs(known) > _MOST_STEP).any():
        return False
    if (known != np.floor(known)).any() or (known < 0).any():
        return False
    if len(known) > 2 and known.min() == known.max():
        return False
    back = int((np.diff(known) < 0).sum())
    return back <= max(_BACK_MAX, int(_BACK_SHARE * len(known)))


def _completed(values: pl.Series, counter: pl.Series | None) -> pl.Series:
    """The axis with its gaps from the tracker's counter, where both are the same elsewhere."""
    if counter is None or not bool((values == counter).fill_null(True).all()):
        return values
    return pl.select(pl.coalesce(values, counter)).to_series()


def _filled(values: pl.Series) -> pl.Series:
    finite = pl.select(pl.when(values.is_finite() & (values.abs() < _MOST_STEP)).then(values))
    steps = finite.to_series().cast(pl.Int64, strict=False)
    return steps.fill_null(strategy="forward").fill_null(strategy="backward")
