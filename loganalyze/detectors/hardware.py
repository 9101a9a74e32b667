"""Temperature, clock and power of the GPUs."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.model import Evidence, Finding, Severity, Threshold
from loganalyze.series_trend import Level, levels, running_median
from loganalyze.tracks import FloatArray, IntArray, Track, within

_CALM_WIDTH = 5
#: What a sensor may read, in °C, Hz, W or s; 0 stands for "no reading".
_POSSIBLE = (1e-9, 1e12)


def _readings(context: Context, metric: str) -> list[Track]:
    """Tracks of a sensor without zeros, NaN and misprints; none that is empty."""
    kept = [within(track, *_POSSIBLE) for track in context.tracks(metric)]
    return [track for track in kept if len(track)]


def detect_overheat(context: Context) -> list[Finding]:
    """gpu_overheat: one finding for the hottest GPU, with the number of hot ones."""
    th = context.thresholds
    alert, pause = th["gpu_overheat.alert_c"], th["gpu_overheat.pause_c"]
    rules: tuple[tuple[Severity, Threshold], ...] = (("critical", pause), ("warning", alert))
    hot: list[tuple[Severity, Threshold, Track, IntArray]] = []
    for track in _readings(context, "gpu_temp_c"):
        for severity, threshold in rules:
            at = np.flatnonzero(track.values > threshold.value).astype(np.int64)
            if len(at) >= min(th.value("gpu_overheat.records"), len(track)):
                hot.append((severity, threshold, track, at))
                break
    if not hot:
        return []
    severity, threshold, track, at = max(hot, key=lambda h: float(np.nanmax(h[2].values)))
    worst = int(np.nanargmax(track.values))
    seeds = tuple(
        th[name]
        for name in ("seed.gpu_temp_alert", "seed.gpu_temp_pause")
        if track.values[worst] > th.value(name)
    )
    return [
        finding(
            "gpu_overheat",
            severity,
            track=track,
            first=int(track.steps[at[0]]),
            last=int(track.steps[at[-1]]),
            peak=int(track.steps[worst]),
            statistics={
                "peak_c": float(track.values[worst]),
                "hot_share": len(at) / len(track),
                "records": len(at),
                "ranks": len({entry[2].rank for entry in hot}),
            },
            threshold=threshold,
            rules=seeds,
            evidence=(point(context, track, worst, "gpu_temperature", unit="°C"),),
        )
    ]


def detect_throttle(context: Context) -> list[Finding]:
    """gpu_throttle: clock (or power, where no clock is logged) falls below the GPU's own level."""
    metric = "gpu_sm_clock_hz" if context.has("gpu_sm_clock_hz") else "gpu_power_w"
    fallen = [
        (track, level, usual)
        for track in _readings(context, metric)
        for level, usual in _fallen(context, track)
    ]
    if not fallen:
        return []
    track, level, usual = min(fallen, key=lambda entry: entry[1].median - entry[2])
    return [_throttle(context, track, level, usual, len({entry[0].rank for entry in fallen}))]


def _fallen(context: Context, track: Track) -> list[tuple[Level, float]]:
    """Lasting levels of the log value below the usual one before them."""
    th = context.thresholds
    least = int(th.value("gpu_throttle.records"))
    values = track.values
    if len(track) < 2 * least or not np.all(values > 0):
        return []
    clock = track.metric == "gpu_sm_clock_hz"
    share = th.value("gpu_throttle.clock_share" if clock else "gpu_throttle.power_share")
    logs = running_median(np.log(values), _CALM_WIDTH)
    found = levels(
        logs,
        least=least,
        z=th.value("gpu_throttle.z"),
        floor=th.value("gpu_throttle.noise_floor"),
        step=-float(np.log(share)) / 2.0,
    )
    before = [(level, float(np.median(logs[: level.start]))) for level in found[1:]]
    return [(level, usual) for level, usual in before if level.median < usual + np.log(share)]


def _throttle(context: Context, track: Track, level: Level, usual: float, gpus: int) -> Finding:
    th = context.thresholds
    clock = track.metric == "gpu_sm_clock_hz"
    threshold = th["gpu_throttle.clock_share" if clock else "gpu_throttle.power_share"]
    hottest = _hottest(context, track, level)
    hot = hottest is not None and hottest > th.value("gpu_throttle.hot_c")
    slower = _slower(context, track, level)
    worst = level.start + int(np.argmin(track.values[level.start : level.stop]))
    evidence: list[Evidence] = [
        point(context, track, worst, "gpu_clock" if clock else "gpu_power",
              unit="Hz" if clock else "W", expected=f"{np.exp(usual):.4g}"),
    ]  # fmt: skip
    return finding(
        "gpu_throttle",
        "warning" if hot or slower else "info",
        track=track,
        first=int(track.steps[level.start]),
        last=int(track.steps[level.stop - 1]),
        peak=int(track.steps[worst]),
        statistics={
            "usual": float(np.exp(usual)),
            "level": float(np.exp(level.median)),
            "share_of_usual": float(np.exp(level.median - usual)),
            "hottest_c": hottest,
            "slower": int(slower),
            "ranks": gpus,
        },
        threshold=threshold,
        evidence=tuple(evidence),
    )


def _window(context: Context, metric: str, track: Track, level: Level) -> FloatArray:
    """Values of another metric, any rank's, at the steps of a level."""
    first, last = track.steps[level.start], track.steps[level.stop - 1]
    parts = [
        other.values[(other.steps >= first) & (other.steps <= last)]
        for other in _readings(context, metric)
        if other.segment == track.segment
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _hottest(context: Context, track: Track, level: Level) -> float | None:
    values = _window(context, "gpu_temp_c", track, level)
    return float(np.nanmax(values)) if len(values) and np.isfinite(values).any() else None


def _slower(context: Context, track: Track, level: Level) -> bool:
    """Whether the steps took longer at the same time than in the rest of the segment."""
    inside = _window(context, "step_time_s", track, level)
    others = [t.values for t in _readings(context, "step_time_s") if t.segment == track.segment]
    if not len(inside) or not others:
        return False
    share = context.value("gpu_throttle.slower_share")
    return bool(np.nanmedian(inside) > (1.0 + share) * np.nanmedian(np.concatenate(others)))


HARDWARE = (
    Detector(
        name="gpu_temperature",
        kinds=("gpu_overheat",),
        needs=(("gpu_temp_c",),),
        run=detect_overheat,
        local=True,
    ),
    Detector(
        name="gpu_clock",
        kinds=("gpu_throttle",),
        needs=(("gpu_sm_clock_hz", "gpu_power_w"),),
        run=detect_throttle,
        local=True,
    ),
)
