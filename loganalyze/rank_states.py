"""The ranks of a wide job, reduced: for every rank a state of fixed size, and states can be merged.

A state counts a rank's records, its first and last step, its lowest and highest value, and sums
its distance from the middle of all ranks at each step. Sums are of integers, so that states of
parts give the same bytes in any order. The middle of a step is the median over a sample of the
ranks: all of them up to SAMPLE, else those with the lowest hash, a sample that neither the order
of ranks nor the layout of the job (every eighth rank is one place in a node) can bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.store_parts import scan_parts

#: Times that a rank spends on its own work, or waiting; and values that all ranks should share.
TIMES = (
    "step_time_s", "forward_time_s", "backward_time_s", "data_time_s", "optimizer_time_s",
    "comm_time_s",
)  # fmt: skip
SHARED = ("loss", "grad_norm")
#: Name of the state that counts a rank's rows with a step, whatever they say.
ROWS = "rows"
#: Ranks whose median is the middle: its error, 1.25 sd / 32, is common to all ranks and cancels.
SAMPLE, LEAST_SAMPLE = 1024, 64
_SAMPLE_ROWS = 4_000_000
#: Distances are cut here, in robust standard deviations over the ranks: one stall is no level.
_CUT, _CUT_LOG = 6.0, 0.05
#: Distances are summed in these units: of a logarithm, and of a standard deviation.
UNIT_LOG, UNIT_SD = 1e-6, 1e-4
_LARGEST = 1e30
#: Values apart by more than this share disagree (published traces: up to 1e-3 is no sign).
_APART = 1e-3
_KEYS = ("metric", "segment", "rank")
_PLACE = ("source", "line", "offset", "length")
_SUMS = (
    "count", "distance", "squares", "late_count", "late_distance", "late_squares", "apart",
)  # fmt: skip
#: Middles are looked up in a table of all steps up to this size.
_CELLS = 10_000_000
Ints = npt.NDArray[np.int64]


def unit(metric: str) -> float:
    """What one of a metric's summed distances is: of ln(value), or of a standard deviation."""
    return UNIT_LOG if metric in TIMES else UNIT_SD


def sample(ranks: Iterable[int], most: int = SAMPLE) -> list[int]:
    """At most so many ranks, those with the lowest hash (splitmix64), growing."""
    ordered = np.array(sorted(set(ranks)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = (ordered + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return sorted(int(rank) for rank in ordered[np.argsort(mixed, kind="stable")[:most]])


def sample_size(steps: int) -> int:
    """Ranks of the sample for so many records of each rank: its rows stay bounded."""
    return max(LEAST_SAMPLE, min(SAMPLE, _SAMPLE_ROWS // max(steps, 1)))


def middles(parts: Sequence[Path], metric: str, ranks: Sequence[int]) -> pl.DataFrame:
    """Median and robust standard deviation over the sampled ranks, at each segment and step.

    Of times: of their logarithms. `half`: the middle step of the segment.
    """
    rows = (
        scan_parts(parts)
        .filter(pl.col("rank").is_in(list(ranks)) & pl.col("step").is_not_null() & _valid(metric))
        .select("segment", "step", value=_measured(metric))
    )
    apart = (pl.col("value") - pl.col("value").median()).abs().median()
    return (
        rows.group_by("segment", "step")
        .agg(middle=pl.col("value").median(), spread=1.4826 * apart)
        .sort("segment", "step")
        .with_columns(half=pl.col("step").median().over("segment"))
        .collect(engine="streaming")
    )


def _valid(metric: str) -> pl.Expr:
    value = pl.col(metric)
    return value.is_between(1e-9, _LARGEST) if metric in TIMES else value.abs() < _LARGEST


def _measured(metric: str) -> pl.Expr:
    return pl.col(metric).log() if metric in TIMES else pl.col(metric)


def states_of(part: Path, references: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """States of the ranks in one part; references: middles() by metric. Raises OSError."""
    held = pl.read_parquet_schema(part)
    names = [name for name in references if name in held]
    frame = pl.read_parquet(part, columns=["segment", "step", "rank", *_PLACE, *names])
    frame = frame.filter(pl.col("step").is_not_null() & pl.col("rank").is_not_null())
    found = [_state(frame, name, references[name]) for name in names]
    return pl.concat([_rows(frame), *found], how="diagonal")


def _rows(frame: pl.DataFrame) -> pl.DataFrame:
    """With the place of the last line: of those of the last step, the one written last."""
    last = pl.len() - 1 - pl.col("step").reverse().arg_max()
    rows = _grouped(
        frame.with_row_index("row"), ROWS, pl.len().alias("count").cast(pl.Int64),
        pl.col("row").get(last.cast(pl.Int64)),
    )  # fmt: skip
    return pl.concat([rows.drop("row"), frame.select(_PLACE)[rows["row"]]], how="horizontal")


def _beside(frame: pl.DataFrame, middle: pl.DataFrame) -> pl.DataFrame:
    """The rows whose segment and step have a middle, with it: a join by a table of the steps."""
    low, high = (int(end or 0) for end in (middle["step"].min(), middle["step"].max()))  # type: ignore[arg-type]
    span = high - low + 1
    cells = span * (int(middle["segment"].max() or 0) + 1)  # type: ignore[arg-type]
    if not len(middle) or cells > _CELLS:
        return frame.join(middle, on=["segment", "step"], how="inner", maintain_order="left")
    frame = frame.filter(
        pl.col("step").is_between(low, high) & (pl.col("segment") <= cells // span - 1)
    )
    table = np.full(cells, -1, dtype=np.int64)
    table[_cells(middle, low, span)] = np.arange(len(middle))
    at = table[_cells(frame, low, span)]
    both = pl.concat(
        [frame, middle.select("middle", "spread", "half")[np.maximum(at, 0)]], how="horizontal"
    )
    return both if bool((at >= 0).all()) else both.filter(pl.Series(at >= 0))


def _cells(frame: pl.DataFrame, low: int, span: int) -> Ints:
    """The place of each row's segment and step in a table of all."""
    segments, steps = (frame[name].to_numpy().astype(np.int64) for name in ("segment", "step"))
    cells: Ints = segments * span + (steps - low)
    return cells


def _state(frame: pl.DataFrame, metric: str, middle: pl.DataFrame) -> pl.DataFrame:
    told = frame.select("segment", "step", "rank", metric)
    told = _beside(told.filter(pl.col(metric).is_not_null()), middle)
    valid = _valid(metric)
    off = _measured(metric) - pl.col("middle")
    if metric in TIMES:
        limit = pl.max_horizontal(_CUT * pl.col("spread"), pl.lit(_CUT_LOG))
        apart = pl.lit(False)
        told = told.filter(valid)
    else:
        limit = pl.lit(_CUT)
        tolerated = _APART * pl.max_horizontal(pl.col("middle").abs(), pl.lit(1e-12))
        apart = (off.abs() > tolerated) | ~valid.fill_null(False)
        off = pl.when(pl.col("spread") > 0).then(off / pl.col("spread")).otherwise(0.0)
        off = pl.when(valid).then(off).otherwise(0.0)
    cut = pl.min_horizontal(pl.max_horizontal(off, -limit), limit)
    told = told.select(
        "segment", "rank", "step", metric, off=apart,
        q=(cut / unit(metric)).round().cast(pl.Int64),
        late=(pl.col("step") > pl.col("half")).cast(pl.Int64),
    ).with_columns(qq=pl.col("q") * pl.col("q"))  # fmt: skip
    return _grouped(
        told, metric,
        pl.len().alias("count").cast(pl.Int64),
        pl.col(metric).min().alias("low"), pl.col(metric).max().alias("high"),
        pl.col("q").sum().alias("distance"), pl.col("qq").sum().alias("squares"),
        pl.col("late").sum().alias("late_count"),
        (pl.col("q") * pl.col("late")).sum().alias("late_distance"),
        (pl.col("qq") * pl.col("late")).sum().alias("late_squares"),
        pl.col("off").cast(pl.Int64).sum().alias("apart"),
        pl.col("step").filter(pl.col("off")).min().alias("first_apart"),
    )  # fmt: skip


def _grouped(frame: pl.DataFrame, metric: str, *columns: pl.Expr) -> pl.DataFrame:
    """A row a segment and rank, with its first and last step."""
    return (
        frame.group_by("segment", "rank")
        .agg(
            *columns,
            pl.col("step").min().alias("first_step"),
            pl.col("step").max().alias("last_step"),
        )
        .with_columns(metric=pl.lit(metric))
    )


def merged(states: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One state for each metric, segment and rank, in that order; the order given is no matter."""
    every = pl.concat(states, how="diagonal").sort("last_step", "source", "offset")
    held = set(every.columns)
    return (
        every.group_by(*_KEYS)
        .agg(
            *(pl.col(name).sum() for name in _SUMS if name in held),
            *(pl.col(name).min() for name in ("first_step", "low", "first_apart") if name in held),
            *(pl.col(name).max() for name in ("high",) if name in held),
            *(pl.col(name).last() for name in ("last_step", *_PLACE)),
        )
        .sort(*_KEYS)
    )


def leaning(states: pl.DataFrame, metric: str, *, late: bool = False) -> pl.DataFrame:
    """For each segment and rank: its mean distance, the error of that, and that of all ranks.

    Columns segment, rank, lean (of a rank from the median of all), error (standard error),
    spread (robust standard deviation over the ranks).
    """
    start = "late_" if late else ""
    count, total = pl.col(f"{start}count"), pl.col(f"{start}distance") * unit(metric)
    square = pl.col(f"{start}squares") * unit(metric) ** 2
    mean = total / count
    variance = pl.max_horizontal(square / count - mean**2, pl.lit(0.0))
    lean = pl.col("lean") - pl.col("lean").median().over("segment")
    return (
        states.filter((pl.col("metric") == metric) & (count > 0))
        .select("segment", "rank", lean=mean, error=(variance / count).sqrt())
        .with_columns(lean=lean)
        .with_columns(spread=1.4826 * pl.col("lean").abs().median().over("segment"))
    )


def row_states(readings: pl.DataFrame) -> pl.DataFrame:
    """The states ROWS of a run whose rows are all held; one for each segment and rank."""
    told = readings.select("segment", "step", "rank", *_PLACE)
    told = told.filter(pl.col("step").is_not_null() & pl.col("rank").is_not_null())
    return _rows(told).select(*_KEYS, "count", "first_step", "last_step", *_PLACE).sort(*_KEYS)
