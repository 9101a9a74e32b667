"""Runs in, a Comparison out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loganalyze.compare.curves import aligned, curve
from loganalyze.compare.facts import cost, setting_differences
from loganalyze.compare.interval import judged, median_interval
from loganalyze.compare.model import Comparison, Judgement, MetricDifference, Pair, Parting
from loganalyze.compare.parting import odd_window, parting
from loganalyze.config import Metric, Thresholds, metrics
from loganalyze.errors import UsageError
from loganalyze.model import RunLog
from loganalyze.tracks import FloatArray, IntArray

#: What decides which run is better, the first that both logs have.
DECISIVE = ("val_loss", "loss", "reward")
_LATE = 0.8  # the last fifth


def compare_runs(
    runs: Sequence[RunLog], thresholds: Thresholds, chosen: Sequence[str] = ()
) -> Comparison:
    """Every run against the first. chosen: only these metrics. UsageError for an unknown one."""
    known = metrics()
    for name in chosen:
        if name not in known:
            hint = f"one of {', '.join(known)}"
            raise UsageError(f"{name}: no such metric", hint=hint)
    base, *others = runs
    return Comparison(
        base=base.meta.id,
        costs=tuple((run.meta.id, cost(run)) for run in runs),
        pairs=tuple(_pair(base, other, thresholds, chosen) for other in others),
    )


def _pair(base: RunLog, other: RunLog, thresholds: Thresholds, chosen: Sequence[str]) -> Pair:
    names = chosen or tuple(metrics())
    least = int(thresholds.value("compare.least_common"))
    found = [
        difference
        for name in names
        if (difference := _difference(base, other, metrics()[name], thresholds)) is not None
    ]
    steps, one, two = aligned(curve(base, "loss"), curve(other, "loss"))
    return Pair(
        other=other.meta.id,
        common_first=int(steps[0]) if len(steps) else None,
        common_last=int(steps[-1]) if len(steps) else None,
        common=len(steps),
        parting=_parting(steps, one, two, thresholds) if len(steps) >= least else None,
        metrics=tuple(found),
        settings=setting_differences(base.meta.config, other.meta.config),
        settings_known=(len(base.meta.config), len(other.meta.config)),
        verdict=_verdict(found),
    )


def _parting(steps: IntArray, one: FloatArray, two: FloatArray, thresholds: Thresholds) -> Parting:
    window = odd_window(
        len(steps),
        thresholds.value("compare.window_share"),
        int(thresholds.value("compare.window_least")),
        int(thresholds.value("compare.window_most")),
    )
    sigmas = thresholds.value("compare.band_sigma")
    return parting(steps, one, two, window=window, sigmas=sigmas)


def _difference(
    base: RunLog, other: RunLog, metric: Metric, thresholds: Thresholds
) -> MetricDifference | None:
    """None where there are no common steps at which both are numbers."""
    _, one, two = aligned(curve(base, metric.name), curve(other, metric.name))
    good = np.isfinite(one) & np.isfinite(two)
    if not good.any():
        return None
    d = (two - one)[good]
    middle, low, high = median_interval(d)
    level = float(np.median(one[good]))
    lost, gone = int((~np.isfinite(one)).sum()), int((~np.isfinite(two)).sum())
    negligible = thresholds.value("compare.negligible")
    few = len(d) < thresholds.value("compare.least_common") and low != high
    return MetricDifference(
        metric=metric.name,
        unit=metric.unit,
        points=len(d),
        base=level,
        other=float(np.median(two[good])),
        difference=middle,
        low=low,
        high=high,
        late=float(np.median(d[int(len(d) * _LATE) :])),
        base_nonfinite=lost,
        other_nonfinite=gone,
        equal=lost == gone == 0 and not d.any(),
        judgement="unclear" if few else judged(low, high, level, metric.better, negligible),
    )


def decisive(found: Sequence[MetricDifference]) -> MetricDifference | None:
    """The metric that decides; None where it is NaN in the loss of one run, or nothing."""
    by_name = {difference.metric: difference for difference in found}
    loss = by_name.get("loss")
    if loss is not None and loss.base_nonfinite != loss.other_nonfinite:
        return None
    clear = (by_name[name] for name in DECISIVE if name in by_name)
    return next((difference for difference in clear if difference.judgement != "unclear"), None)


def _verdict(found: Sequence[MetricDifference]) -> Judgement:
    """Of the decisive metric; more NaN in the loss is worse, whatever else."""
    one = decisive(found)
    if one is not None:
        return one.judgement
    loss = next((difference for difference in found if difference.metric == "loss"), None)
    if loss is None or loss.base_nonfinite == loss.other_nonfinite:
        return "unclear"
    return "worse" if loss.other_nonfinite > loss.base_nonfinite else "better"
