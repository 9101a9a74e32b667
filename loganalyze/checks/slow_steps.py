"""Checks on what slow steps have that the others have not: which part, which loss, what work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze.checks.base import (
    Check,
    CheckContext,
    Floats,
    median,
    missing,
    seen,
    spread,
    yes_or_no,
)
from loganalyze.model import CheckResult
from loganalyze.series_trend import running_median

#: Parts of a step as the trainers time them. What holds others counts once: see _parts.
_COMPUTE = ("forward_time_s", "backward_time_s")
_BOTH = "raw/timer forward-backward"
_REST = ("data_time_s", "comm_time_s", "optimizer_time_s")


class Slow(Struct, frozen=True, kw_only=True):
    """Steps that log a time and a part of it. excess: seconds above the usual, of slow steps only.

    sampled: fewer than half of the steps are timed. explained: share of the excess in the part.
    """

    count: int
    explained: float
    sampled: bool


def _by_step(context: CheckContext, names: Sequence[str]) -> pl.DataFrame | None:
    """Mean over the ranks of columns by step; None if one of them is not logged."""
    frame = context.run.readings
    if any(name not in frame.columns for name in names):
        return None
    return frame.group_by("segment", "step").agg(pl.col(n).mean() for n in names).sort("step")


def _explained(context: CheckContext, parts: Sequence[str]) -> Slow | None:
    """How much of the slow steps' excess lies in the sum of these parts."""
    means = _by_step(context, ("step_time_s", *parts))
    if means is None or not parts:
        return None
    rows = means.select("step_time_s", *parts).drop_nulls().to_numpy()
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < 10:
        return None
    sampled = len(rows) < 0.5 * means["step_time_s"].drop_nulls().len()
    whole, part = rows[:, 0], rows[:, 1:].sum(axis=1)
    usual = median(whole)
    slow = whole - usual > 0.3 * usual
    if not slow.any():
        return Slow(count=0, explained=0.0, sampled=sampled)
    excess = (part - median(part))[slow] / (whole - usual)[slow]
    return Slow(count=int(slow.sum()), explained=median(excess), sampled=sampled)


def _judge(check: str, slow: Slow | None, name: str, *, less: bool = False) -> CheckResult:
    """Supported above one half (or below a third); few timed steps can't rule out."""
    if slow is None:
        return missing(check, name)
    if not slow.count:
        return missing(check, "every_step" if slow.sampled else name)
    answer = slow.explained < 0.33 if less else slow.explained > 0.5
    if not answer and slow.sampled and slow.count < 3:  # other slow steps were not timed
        return missing(check, "every_step")
    wanted = "< 0.33" if less else "> 0.5"
    return yes_or_no(check, answer, seen("explained_share", slow.explained, "share", wanted))


def data_explains_slow_steps(context: CheckContext) -> CheckResult:
    """In the slow steps waiting for data makes up more than half of the time they took longer."""
    slow = _explained(context, ("data_time_s",))
    return _judge("data_explains_slow_steps", slow, "data_time_s")


def compute_explains_slow_steps(context: CheckContext) -> CheckResult:
    """The slow steps computed longer: forward and backward pass make up most of the excess."""
    columns = context.run.readings.columns
    parts = (_BOTH,) if _BOTH in columns else tuple(n for n in _COMPUTE if n in columns)
    slow = _explained(context, parts)
    return _judge("compute_explains_slow_steps", slow, "forward_time_s")


def outside_the_timers(context: CheckContext) -> CheckResult:
    """No timed part of the step explains the slow ones: the host paused beside the training.

    Asked only where data, forward and backward pass are timed.
    """
    columns = context.run.readings.columns
    compute = (_BOTH,) if _BOTH in columns else tuple(n for n in _COMPUTE if n in columns)
    rest = tuple(name for name in _REST if name in columns)
    if "data_time_s" not in columns:
        return missing("outside_the_timers", "data_time_s")
    slow = _explained(context, (*compute, *rest)) if compute else None
    return _judge("outside_the_timers", slow, "forward_time_s", less=True)


def _slow_mask(context: CheckContext, times: Floats) -> npt.NDArray[np.bool_]:
    usual = running_median(times, 51)
    return np.asarray(times > 1.5 * usual, dtype=np.bool_)


def loss_differs_in_slow_steps(context: CheckContext) -> CheckResult:
    """The loss of the slow steps differs from that of their neighbours: other data, not waits."""
    means = _by_step(context, ("step_time_s", "loss"))
    first = context.first or 0
    if means is None:
        return missing("loss_differs_in_slow_steps", "step_time_s", "loss")
    rows = means.filter(pl.col("step") >= first).select("step_time_s", "loss").drop_nulls()
    pairs = rows.to_numpy()
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if len(pairs) < 30:
        return missing("loss_differs_in_slow_steps", "every_step")
    slow = _slow_mask(context, pairs[:, 0])
    if slow.sum() < 3 or slow.mean() > 0.4:
        return missing("loss_differs_in_slow_steps", "step_time_s")
    away = pairs[:, 1] - running_median(pairs[:, 1], 11)
    others = away[~slow]
    error = max(spread(others), 1e-6) * 1.2533 / np.sqrt(slow.sum())
    deviations = abs(median(away[slow]) - median(others)) / error
    evidence = seen("deviations", deviations, "", "< 5")
    return yes_or_no("loss_differs_in_slow_steps", deviations > 5, evidence)


def more_tokens_in_slow_steps(context: CheckContext) -> CheckResult:
    """Rate times duration: the slow steps worked through more tokens than the others."""
    for rate in ("tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s"):
        frame = context.run.readings
        if rate not in frame.columns or "step_time_s" not in frame.columns:
            continue
        product = (pl.col("step_time_s") * pl.col(rate)).alias("work")  # of a rank, then over ranks
        means = frame.group_by("segment", "step").agg(product.mean(), pl.col("step_time_s").mean())
        pairs = means.sort("step").select("step_time_s", "work").drop_nulls().to_numpy()
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        slow = _slow_mask(context, pairs[:, 0]) if len(pairs) >= 30 else np.zeros(0, dtype=np.bool_)
        if slow.sum() < 3 or slow.mean() > 0.4:
            continue
        work = pairs[:, 1]
        ratio = median(work[slow]) / max(median(work[~slow]), 1e-12)
        evidence = seen("change_ratio", ratio, "", "> 1.3")
        return yes_or_no("more_tokens_in_slow_steps", ratio > 1.3, evidence)
    return missing("more_tokens_in_slow_steps", "tokens_per_s")


def one_rank_got_slower(context: CheckContext) -> CheckResult:
    """One rank's own time rose by a tenth or more at the incident while the others kept theirs."""
    own = [t for t in context.tracks("step_time_s") if t.rank is not None]
    first = context.first
    if len(own) < 2 or first is None:
        return missing("one_rank_got_slower", "per_rank_compute")
    ratios = {}
    for track in own:
        before = track.values[track.steps < first][-100:]
        during = track.values[(track.steps >= first) & (track.steps <= (context.last or first))]
        before, during = before[np.isfinite(before)], during[np.isfinite(during)]
        if len(before) >= 10 and len(during) >= 5:
            ratios[track.rank] = median(during) / max(median(before), 1e-12)
    if len(ratios) < 2:
        return missing("one_rank_got_slower", "per_rank_compute")
    rank, worst = max(ratios.items(), key=lambda item: item[1])
    others = max(value for other, value in ratios.items() if other != rank)
    alone = worst > 1.1 and others < 1 + 0.3 * (worst - 1)
    evidence = (seen("rank", float(rank or 0)), seen("change_ratio", worst, "", "< 1.1"))
    return yes_or_no("one_rank_got_slower", alone, *evidence)


def period_of_few_steps(context: CheckContext) -> CheckResult:
    """The slow steps come every 16 steps or more often, as the turn of a loader's worker does.

    Loaders run 2 to 16 workers (incident: every eighth batch was late); collections of garbage
    are dozens of steps apart. Equal combs of a log of every n-th step are one shorter period.
    """
    told = [f.statistics.get("period_steps") for f in context.of_kind("throughput_stall")]
    periods = [float(p) for p in told if isinstance(p, int | float) and p > 0]
    if not periods:
        return missing("period_of_few_steps", "stall_period")
    alike = sum(abs(p - periods[0]) < 0.02 * periods[0] for p in periods)
    period = periods[0] / alike
    evidence = seen("stall_period", period, "step", "<= 16")
    return yes_or_no("period_of_few_steps", period <= 16, evidence)


def long_pauses(context: CheckContext) -> CheckResult:
    """The pauses last for more than three seconds, as writing a checkpoint does."""
    told = [f.statistics.get("stall_time") for f in context.of_kind("throughput_stall")]
    times = [float(t) for t in told if isinstance(t, int | float)]
    if not times:
        return missing("long_pauses", "stall_period")
    return yes_or_no("long_pauses", times[0] > 3, seen("pause", times[0], "s", "> 3"))


SLOW_STEPS: dict[str, Check] = {
    check.__name__: check
    for check in (
        data_explains_slow_steps, compute_explains_slow_steps, outside_the_timers,
        loss_differs_in_slow_steps, more_tokens_in_slow_steps, one_rank_got_slower,
        period_of_few_steps, long_pauses,
    )
}  # fmt: skip
