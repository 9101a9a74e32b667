"""Reinforcement learning: KL, entropy, reward and length. The policy loss itself is near 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.running import median
from loganalyze.series_trend import running_median, trailing_median
from loganalyze.tracks import FloatArray, Track, within

_LARGEST = 1e12  # beyond this a number is a misprint
_CALM = 5  # records of the running median that a judgement looks at


def _curves(context: Context, metric: str) -> list[Track]:
    """Tracks of a metric without NaN and misprints; none that is empty."""
    kept = [within(track, -_LARGEST, _LARGEST) for track in context.tracks(metric)]
    return [track for track in kept if len(track)]


def _each(
    context: Context, metric: str, judge: Callable[[Context, Track, FloatArray], Finding | None]
) -> list[Finding]:
    """Judge every long enough track of a metric; its finite values, calmed by a running median."""
    found = []
    for track in _curves(context, metric):
        if len(track) >= context.value("rl.records"):
            made = judge(context, track, running_median(track.values, _CALM))
            if made is not None:
                found.append(made)
    return found


def _start(context: Context, values: FloatArray) -> float:
    """The level at the beginning: the median of the first records."""
    return median(values[: int(context.value("rl.start_records"))])


def _last_run(flags: npt.NDArray[np.bool_]) -> int:
    """Length of the stretch of True at the end."""
    no = np.flatnonzero(~flags)
    return len(flags) - (int(no[-1]) + 1 if len(no) else 0)


# -- KL -------------------------------------------------------------------------------------


def detect_kl(context: Context) -> list[Finding]:
    """kl_blowup: KL at many times its earlier value, or negative for long."""
    return _each(context, "kl", _kl_grown) or _each(context, "kl", _kl_negative)


def _kl_grown(context: Context, track: Track, calm: FloatArray) -> Finding | None:
    th = context.thresholds
    ratio = th["kl_blowup.ratio"]
    past = int(th.value("kl_blowup.past_records"))
    before = np.maximum(trailing_median(calm, past), th.value("kl_blowup.floor"))
    high = np.flatnonzero((calm > ratio.value * before) & (calm > th.value("kl_blowup.note")))
    # Policy and reference part from the same point: what KL grows by at first says nothing.
    high = high[high >= th.value("rl.start_records")]
    if len(high) < th.value("kl_blowup.times"):
        return _kl_drift(context, track, calm)
    worst = int(np.argmax(calm))
    lasting = _last_run(calm > th.value("kl_blowup.note")) >= th.value("rl.start_records") // 2
    severe = calm[worst] > th.value("kl_blowup.alarm")
    severity: Severity = "info"
    if severe:
        severity = "critical" if lasting and _reward_lost(context) else "warning"
    return finding(
        "kl_blowup",
        severity,
        track=track,
        first=int(track.steps[high[0]]),
        last=int(track.steps[high[-1]]),
        peak=int(track.steps[worst]),
        statistics={
            "peak": float(calm[worst]),
            "before": float(before[high[0]]),
            "ratio": float(calm[high[0]] / before[high[0]]),
            "lasting": int(lasting),
        },
        threshold=ratio,
        evidence=(
            point(context, track, int(high[0]), "rl_kl", expected=f"{before[high[0]]:.3g}"),
            point(context, track, worst, "rl_kl"),
        ),
    )


def _kl_drift(context: Context, track: Track, calm: FloatArray) -> Finding | None:
    """A level that doubled and stays, at a nat or more, while the reward no longer gains."""
    th = context.thresholds
    width = int(th.value("rl.start_records"))
    ratio = th["kl_blowup.drift_ratio"]
    if len(calm) < 3 * width:
        return None
    end = median(calm[-width // 2 :])
    past = calm[width:-width]
    level = median(past[: max(len(past) // 2, 1)])
    high = calm > 0.5 * (1 + ratio.value) * level
    run = _last_run(high)
    if end < ratio.value * level or end < th.value("kl_blowup.alarm") or run < width // 2:
        return None
    first, worst = len(calm) - run, int(np.argmax(calm))
    if _reward_gained(context, int(track.steps[first])):
        return None
    return finding(
        "kl_blowup",
        "warning",
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[-1]),
        peak=int(track.steps[worst]),
        statistics={"peak": float(calm[worst]), "before": level, "ratio": end / level,
                    "lasting": 1},
        threshold=ratio,
        evidence=(
            point(context, track, first, "rl_kl", expected=f"{level:.3g}"),
            point(context, track, worst, "rl_kl"),
        ),
    )  # fmt: skip


def _reward_gained(context: Context, step: int) -> bool:
    """Whether the reward rose by 5 % or more from a step on: KL is the price of what is learnt."""
    for track in _curves(context, "reward"):
        before, after = track.values[track.steps < step][-20:], track.values[track.steps >= step]
        if len(before) and len(after):
            gain = float(median(after[-20:]) - median(before))
            return gain >= 0.05 * max(abs(median(before)), 1e-9)
    return False


def _kl_negative(context: Context, track: Track, calm: FloatArray) -> Finding | None:
    """An estimate of KL may dip below 0; for ten steps together it must not."""
    records = context.thresholds["kl_blowup.negative_records"]
    below = np.flatnonzero(calm < -context.value("kl_blowup.negative"))
    if len(below) < records.value:
        return None
    worst = int(np.argmin(calm))
    return finding(
        "kl_blowup",
        "warning",
        track=track,
        first=int(track.steps[below[0]]),
        last=int(track.steps[below[-1]]),
        peak=int(track.steps[worst]),
        statistics={"lowest": float(calm[worst]), "records": len(below)},
        threshold=records,
        evidence=(point(context, track, worst, "rl_kl", expected=">= 0"),),
    )


def _reward_lost(context: Context) -> bool:
    return any(_reward_fall(context, track) is not None for track in _curves(context, "reward"))


# -- entropy --------------------------------------------------------------------------------


def detect_entropy(context: Context) -> list[Finding]:
    """entropy_collapse: entropy at the end is a small part of what it was at the start."""
    return _each(context, "entropy", _entropy_lost)


def _entropy_lost(context: Context, track: Track, calm: FloatArray) -> Finding | None:
    th = context.thresholds
    start = _start(context, calm)
    if start < th.value("entropy_collapse.least_start"):
        return None
    for name, severity in (("warning_share", "warning"), ("info_share", "info")):
        threshold = th[f"entropy_collapse.{name}"]
        run = _last_run(calm < threshold.value * start)
        if run >= th.value("entropy_collapse.records"):
            return _entropy_finding(context, track, calm, threshold, severity == "warning", run)
    return None


def _entropy_finding(
    context: Context, track: Track, calm: FloatArray, threshold: Threshold, warn: bool, run: int
) -> Finding:
    start, first = _start(context, calm), len(calm) - run
    lowest = int(np.argmin(calm))
    return finding(
        "entropy_collapse",
        "warning" if warn else "info",
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[-1]),
        peak=int(track.steps[lowest]),
        statistics={
            "start": start,
            "end": float(calm[-1]),
            "share_of_start": float(calm[-1] / start),
        },
        threshold=threshold,
        evidence=(
            point(context, track, first, "rl_entropy", expected=f"{start:.3g}"),
            point(context, track, lowest, "rl_entropy", expected=f"{start:.3g}"),
        ),
    )


# -- reward ---------------------------------------------------------------------------------


def detect_reward(context: Context) -> list[Finding]:
    """reward_anomaly: what was learnt is lost again, or the reward never varies."""
    found = []
    for track in _curves(context, "reward"):
        if len(track) >= context.value("rl.records"):
            made = _reward_fall(context, track) or _reward_constant(context, track)
            found += [made] if made is not None else []
    return found


def _reward_fall(context: Context, track: Track) -> Finding | None:
    """The level falls back from its best by more than half of the gain and of the noise."""
    th = context.thresholds
    width = int(th.value("rl.start_records"))
    if len(track) < 3 * width:
        return None
    level = running_median(track.values, 2 * width)[width // 2 : -(width // 2)]
    begin, noise = float(level[0]), median(np.abs(np.diff(track.values)))
    low = int(np.argmax(np.maximum.accumulate(level) - level))
    best = int(np.argmax(level[: low + 1]))
    fall = float(level[best] - level[low])
    share, gain = th["reward_anomaly.fall_share"], float(level[best]) - begin
    if fall < share.value * gain or fall < th.value("reward_anomaly.noise") * noise or gain <= 0:
        return None
    back = float(level[-1] - level[low]) >= 0.5 * fall
    deep = fall >= th.value("reward_anomaly.deep_share") * gain
    first, last = best + width // 2, low + width // 2
    return finding(
        "reward_anomaly",
        "info" if back or not deep else "warning",
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[-1 if not back else min(last + width, len(track) - 1)]),
        peak=int(track.steps[last]),
        statistics={
            "best": float(level[best]),
            "lowest_after": float(level[low]),
            "begin": begin,
            "recovered": int(back),
        },
        threshold=share,
        evidence=(
            point(context, track, first, "rl_reward"),
            point(context, track, last, "rl_reward", expected=f"{level[best]:.3g}"),
        ),
    )


def _reward_constant(context: Context, track: Track) -> Finding | None:
    """The same number on every line: a default of the reward service, or no signal at all."""
    if np.ptp(track.values) > 0:
        return None
    return finding(
        "reward_anomaly",
        "info",
        track=track,
        first=int(track.steps[0]),
        last=int(track.steps[-1]),
        statistics={"constant": float(track.values[0]), "records": len(track)},
        threshold=context.thresholds["rl.records"],
        evidence=(point(context, track, 0, "rl_reward"),),
    )


# -- length ---------------------------------------------------------------------------------


def detect_length(context: Context) -> list[Finding]:
    """length_explosion: answers grow to many times their length; a warning if reward is lost."""
    return _each(context, "response_length", _length_grown)


def _length_grown(context: Context, track: Track, calm: FloatArray) -> Finding | None:
    th = context.thresholds
    ratio = th["length_explosion.ratio"]
    start = max(_start(context, calm), 1.0)
    run = _last_run(calm > ratio.value * start)
    if run < th.value("rl.start_records") // 2:
        return None
    first, worst = len(calm) - run, int(np.argmax(calm))
    cap = float(track.values.max())
    capped = float(np.mean(track.values[first:] >= 0.98 * cap))
    stuck = capped >= th.value("length_explosion.capped_share")
    return finding(
        "length_explosion",
        "warning" if stuck or _reward_lost(context) else "info",
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[-1]),
        peak=int(track.steps[worst]),
        statistics={
            "start": start,
            "end": float(calm[-1]),
            "ratio": float(calm[-1] / start),
            "at_longest_share": capped,
        },
        threshold=ratio,
        evidence=(
            point(context, track, first, "rl_length", expected=f"{start:.4g}"),
            point(context, track, worst, "rl_length", expected=f"{start:.4g}"),
        ),
    )


RL = (
    Detector(name="kl", kinds=("kl_blowup",), needs=(("kl",),), run=detect_kl),
    Detector(
        name="entropy", kinds=("entropy_collapse",), needs=(("entropy",),), run=detect_entropy
    ),
    Detector(name="reward", kinds=("reward_anomaly",), needs=(("reward",),), run=detect_reward),
    Detector(
        name="response_length",
        kinds=("length_explosion",),
        needs=(("response_length",),),
        run=detect_length,
    ),
)
