"""Steps that were run twice: a metric before a restart beside the same step after it."""

from __future__ import annotations

import math

import polars as pl
from msgspec import Struct

from loganalyze.model import RunLog

_METRICS = ("loss", "grad_norm", "reward")


class Rerun(Struct, frozen=True, kw_only=True):
    """A metric at the steps that a segment ran again.

    common: steps with a number on both sides. equal: of these, how many are the same as far as
    the side with fewer digits was printed. step, before, after: where the two differ most;
    row_before, row_after: rows of the readings.
    """

    metric: str
    common: int
    equal: int
    step: int
    before: float
    after: float
    row_before: int
    row_after: int

    @property
    def largest(self) -> float:
        """The largest difference, after - before."""
        return self.after - self.before


def rerun(run: RunLog, segment: int) -> Rerun | None:
    """What a resumed segment gives at steps that an earlier one had logged; None if at no step.

    The first metric of loss, gradient norm and reward that both sides have is compared; of several
    earlier attempts the last one counts. NaN on both sides is equal, on one side the largest
    difference.
    """
    for metric in _METRICS:
        if metric in run.readings.columns:
            found = _compared(run, metric, segment)
            if found is not None:
                return found
    return None


def _printed(before: pl.Series, after: pl.Series) -> pl.Series:
    """How far two prints of one number may lie apart: half of a last digit of the coarser side.

    Digits count from the first one that is not zero, as many as the longest number of a side has.
    """
    digits = min(_digits(before), _digits(after))
    if _digits(before) == _digits(after):
        return before * 0.0
    size = before.abs().fill_nan(0.0).clip(lower_bound=1e-12)
    return 0.51 * 10.0 ** (size.log10().floor() + 1.0 - digits)


def _digits(values: pl.Series) -> int:
    told = (f"{value:.7g}" for value in values.head(50) if math.isfinite(value))
    return max((len(_significant(text)) for text in told), default=0)


def _significant(text: str) -> str:
    return text.partition("e")[0].replace(".", "").lstrip("-0")


def _compared(run: RunLog, metric: str, segment: int) -> Rerun | None:
    rows = (
        run.readings.select("step", "segment", "rank", value=pl.col(metric))
        .with_row_index("row")
        .filter(pl.col("value").is_not_null() & pl.col("step").is_not_null())
    )
    own = rows.filter(pl.col("segment") == segment).unique(["step", "rank"], keep="last")
    earlier = rows.filter(pl.col("segment") < segment).sort("segment", "row")
    earlier = earlier.unique(["step", "rank"], keep="last", maintain_order=True)
    both = earlier.join(own, on=["step", "rank"], suffix="_after", nulls_equal=True)
    if not len(both):
        return None
    away = pl.col("value_after") - pl.col("value")
    unequal = pl.col("value").is_nan() != pl.col("value_after").is_nan()
    gap = pl.when(unequal).then(float("inf")).otherwise(away.abs().fill_nan(0.0))
    both = both.with_columns(gap=gap).sort("gap", "step", descending=[True, False])
    worst = both.row(0, named=True)
    return Rerun(
        metric=metric,
        common=len(both),
        equal=int((both["gap"] <= _printed(both["value"], both["value_after"])).sum()),
        step=worst["step"],
        before=worst["value"],
        after=worst["value_after"],
        row_before=worst["row"],
        row_after=worst["row_after"],
    )
