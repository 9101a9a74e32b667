"""Ranks against each other: the slow one, and the one whose numbers differ."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.rank_groups import rank_count, together
from loganalyze.detectors.rank_missing import MISSING
from loganalyze.model import Evidence, Finding, Severity, Threshold
from loganalyze.series_trend import MAD_TO_SD, levels
from loganalyze.tracks import FloatArray, IntArray, row_ref

#: Time a rank spends on its own work. comm_time_s is waiting: there the culprit has least.
OWN_TIME = ("step_time_s", "forward_time_s", "backward_time_s", "data_time_s", "optimizer_time_s")
_SAME = ("grad_norm", "loss")
#: Standard errors by which a measured excess may lie below the least one.
_WITHIN = 3.0
#: Numbers beyond this are misprints, or what _parted treats like Inf.
_LARGEST = 1e30


class Grid(Struct, frozen=True, kw_only=True):
    """One metric of one segment as steps x ranks; only steps that every rank has."""

    metric: str
    segment: int
    steps: IntArray
    ranks: IntArray
    values: FloatArray
    rows: IntArray


def grids(context: Context, metric: str, least: float | None = None) -> list[Grid]:
    """Complete grids with at least the wanted numbers of ranks and steps, one a segment."""
    frame = context.run.readings
    ranks = context.value("straggler_rank.ranks") if least is None else least
    if metric not in frame.columns or frame["rank"].drop_nulls().n_unique() < ranks:
        return []
    rows = (
        frame.select("step", "segment", "rank", value=pl.col(metric))
        .with_row_index("row")
        .drop_nulls(["step", "rank", "value"])
        .unique(["segment", "step", "rank"], keep="first", maintain_order=True)
    )
    found = []
    for key, part in rows.partition_by("segment", as_dict=True, maintain_order=True).items():
        grid = _grid(context, metric, int(str(key[0])), part, ranks)
        if grid is not None:
            found.append(grid)
    return found


def _grid(
    context: Context, metric: str, segment: int, part: pl.DataFrame, least: float
) -> Grid | None:
    ranks = part["rank"].n_unique()
    if ranks < least:
        return None
    part = part.filter(pl.len().over("step") == ranks).sort("step", "rank")
    steps = part["step"].unique(maintain_order=True).to_numpy().astype(np.int64)
    if len(steps) < context.value("straggler_rank.records"):
        return None
    return Grid(
        metric=metric,
        segment=segment,
        steps=steps,
        ranks=part["rank"].to_numpy()[:ranks].astype(np.int64),
        values=part["value"].to_numpy().astype(np.float64).reshape(len(steps), ranks),
        rows=part["row"].to_numpy().astype(np.int64).reshape(len(steps), ranks),
    )


# -- slow ranks -----------------------------------------------------------------------------


def detect_stragglers(context: Context) -> list[Finding]:
    """straggler_rank: a rank whose own work takes longer, or that waits least for the others."""
    for metric in OWN_TIME:
        found = [f for grid in grids(context, metric) for f in _slow(context, grid, 1.0)]
        if found:
            return together(context, found)
    found = [f for grid in grids(context, "comm_time_s") for f in _slow(context, grid, -1.0)]
    return together(context, found)


def _slow(context: Context, grid: Grid, sign: float) -> list[Finding]:
    """Slow ranks of a grid; over the whole segment, or over its last half."""
    positive = ((grid.values > 1e-9) & (grid.values < _LARGEST)).all(axis=1)
    if positive.sum() < context.value("straggler_rank.records"):
        return []
    logs = np.log(grid.values[positive])
    apart = sign * (logs - np.median(logs, axis=1, keepdims=True))
    half = len(apart) // 2
    guilty, excess = _outliers(context, apart, sign)
    if not len(guilty) and half >= context.value("straggler_rank.records"):
        guilty, excess = _outliers(context, apart[half:], sign)
    steps, rows = grid.steps[positive], grid.rows[positive]
    return [
        _straggler(context, grid, steps, rows[:, at], apart[:, at], int(at), float(share), sign)
        for at, share in zip(guilty, excess, strict=True)
    ]


def _outliers(context: Context, apart: FloatArray, sign: float) -> tuple[IntArray, FloatArray]:
    """Ranks whose median deviation stands out of all ranks and of its own noise.

    A few at most: many slow ranks are a stage of the pipeline, not a straggler.
    """
    th = context.thresholds
    middle = np.median(apart, axis=0)
    noise = MAD_TO_SD * np.median(np.abs(apart - middle), axis=0)
    error = 1.2533 * noise / np.sqrt(len(apart))
    spread = MAD_TO_SD * np.median(np.abs(middle - np.median(middle)))
    z = th.value("straggler_rank.z")
    least = th.value("straggler_rank.info_share" if sign > 0 else "straggler_rank.wait_share")
    near = middle > np.log1p(least) - _WITHIN * error  # a rank at the limit is not half a rank
    out = near & (middle > z * spread) & (middle > z * error)
    at = np.flatnonzero(out).astype(np.int64)
    usual = np.delete(apart, at, axis=1)
    most = max(1, int(th.value("straggler_rank.most") * rank_count(context, apart.shape[1])))
    if not len(at) or len(at) > most:
        return at[:0], middle[:0]
    excess = np.median(apart[:, at] - np.median(usual, axis=1, keepdims=True), axis=0)
    return at, np.expm1(excess)


def _straggler(
    context: Context, grid: Grid, steps: IntArray, rows: IntArray, apart: FloatArray,
    at: int, share: float, sign: float,
) -> Finding:  # fmt: skip
    severity, threshold = _straggler_severity(context, share, sign)
    begin = _onset(context, apart)
    worst = begin + int(np.argmax(apart[begin:]))
    others = float(np.median(grid.values))
    value = float(grid.values[np.searchsorted(grid.steps, steps[worst]), at])
    made = finding(
        "straggler_rank",
        severity,
        metric=grid.metric,
        first=int(steps[begin]),
        last=int(steps[-1]),
        peak=int(steps[worst]),
        statistics={
            "excess_share": share,
            "rank_time": others * float(np.exp(sign * np.median(apart[begin:]))),
            "usual_time": others,
            "ranks": rank_count(context, len(grid.ranks)),
            "waits_least": int(sign < 0),
        },
        threshold=threshold,
        evidence=(
            Evidence(
                label="rank_time",
                step=int(steps[worst]),
                value=value,
                unit="s",
                expected=f"{others:.4g}",
                ref=row_ref(context.run, int(rows[worst])),
            ),
        ),
    )
    return _placed(made, grid.segment, int(grid.ranks[at]))


def _placed(made: Finding, segment: int, rank: int | None) -> Finding:
    return replace(made, segment=segment, rank=rank)


def _straggler_severity(context: Context, share: float, sign: float) -> tuple[Severity, Threshold]:
    th = context.thresholds
    if sign < 0:
        return "info", th["straggler_rank.wait_share"]
    warn = th["straggler_rank.warning_share"]
    return ("warning", warn) if share >= warn.value else ("info", th["straggler_rank.info_share"])


def _onset(context: Context, apart: FloatArray) -> int:
    """Where the rank's deviation began: the first level near its last one."""
    least = int(context.value("straggler_rank.records"))
    found = levels(apart, least=least, z=context.value("straggler_rank.z"), floor=1e-4, step=5e-3)
    last = max(level.median for level in found)
    return next((level.start for level in found if level.median >= last / 2.0), 0)


# -- ranks that disagree --------------------------------------------------------------------


def detect_divergence(context: Context) -> list[Finding]:
    """rank_divergence: a reduced value that stops being equal, or one rank's lasting outlier."""
    for metric in _SAME:
        for grid in grids(context, metric, 2):  # two are enough to be unequal
            odd = len(grid.ranks) >= context.value("straggler_rank.ranks")
            found = _parted(context, grid) or (_outlier(context, grid) if odd else None)
            if found is not None:
                return [found]
    return []


def _parted(context: Context, grid: Grid) -> Finding | None:
    """Values that were the same on every rank, and are not any more."""
    th = context.thresholds
    tolerance = th["rank_divergence.tolerance"]
    good = np.abs(grid.values) < _LARGEST
    values = np.where(good, grid.values, 0.0)
    middle = np.median(values, axis=1, keepdims=True)
    off = np.abs(values - middle) / np.maximum(np.abs(middle), 1e-12)
    off = np.where(good, off, np.inf)
    off[good.mean(axis=1) < 0.5] = 0.0  # most ranks agree that the value is not finite
    apart = off.max(axis=1) > tolerance.value
    same = int(np.argmax(apart)) if apart.any() else len(apart)
    least = int(th.value("rank_divergence.records"))
    if same < least or not apart.any() or apart[same:].sum() < min(least, len(apart) - same):
        return None
    if apart[same:].mean() < th.value("rank_divergence.lasting"):
        return None
    return _divergence(context, grid, same, int(np.argmax(off[same])), tolerance)


def _outlier(context: Context, grid: Grid) -> Finding | None:
    """One rank far from all others, all the time, where the values differ anyway."""
    th = context.thresholds
    threshold = th["rank_divergence.z"]
    if not np.all(np.abs(grid.values) < _LARGEST):
        return None
    apart = grid.values - np.median(grid.values, axis=1, keepdims=True)
    spread = MAD_TO_SD * np.median(np.abs(apart), axis=1, keepdims=True)
    if np.median(spread) <= 0:
        return None
    middle = np.median(apart / np.maximum(spread, 1e-12), axis=0)
    share = np.abs(np.median(apart, axis=0)) / max(abs(float(np.median(grid.values))), 1e-12)
    out = (np.abs(middle) > threshold.value) & (share > th.value("rank_divergence.share"))
    if out.sum() != 1:
        return None
    return _divergence(context, grid, 0, int(np.argmax(out)), threshold)


def _divergence(
    context: Context, grid: Grid, start: int, rank: int, threshold: Threshold
) -> Finding:
    others = float(np.median(grid.values[start]))
    made = finding(
        "rank_divergence",
        "warning",
        metric=grid.metric,
        first=int(grid.steps[start]),
        last=int(grid.steps[-1]),
        statistics={
            "value": float(grid.values[start, rank]),
            "others": others,
            "ranks": rank_count(context, len(grid.ranks)),
            "same_before": start,
        },
        threshold=threshold,
        evidence=(
            Evidence(
                label="rank_value",
                step=int(grid.steps[start]),
                value=float(grid.values[start, rank]),
                expected=f"{others:.6g}",
                ref=row_ref(context.run, int(grid.rows[start, rank])),
            ),
        ),
    )
    return _placed(made, grid.segment, int(grid.ranks[rank]))


RANKS = (
    Detector(
        name="stragglers",
        kinds=("straggler_rank",),
        needs=((*OWN_TIME, "comm_time_s"),),
        run=detect_stragglers,
    ),
    Detector(
        name="rank_divergence",
        kinds=("rank_divergence",),
        needs=(_SAME,),
        run=detect_divergence,
    ),
    MISSING,
)
