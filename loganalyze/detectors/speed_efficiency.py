"""How well the hardware is used: MFU, GPU utilisation, and the shares of waiting."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.model import Evidence, Finding, Severity, Threshold
from loganalyze.running import median
from loganalyze.tracks import FloatArray, IntArray, Track, row_ref, tracks

#: No step of any run takes longer; larger numbers are misprints.
_LONGEST_S = 1e9


def detect_mfu(context: Context) -> list[Finding]:
    """low_mfu: the median of the run's last two thirds lies below the bands, or above reason."""
    th = context.thresholds
    for track in context.tracks("mfu"):
        level = _level(track, int(th.value("low_mfu.records")))
        if level is None:
            continue
        if level > th.value("low_mfu.formula"):
            return [_low(context, "low_mfu", "info", track, level, th["low_mfu.formula"])]
        if level < th.value("low_mfu.low"):
            lasting = len(track) >= th.value("low_mfu.warning_records")
            poor = level < th.value("low_mfu.poor") and lasting and _told_large(context)
            name = "low_mfu.poor" if level < th.value("low_mfu.poor") else "low_mfu.low"
            severity: Severity = "warning" if poor else "info"
            seeds = (th["seed.mfu_low"],)
            return [_low(context, "low_mfu", severity, track, level, th[name], seeds)]
    return []


def _told_large(context: Context) -> bool:
    """Whether the configuration names a model wide enough to fill a GPU."""
    widths = [
        context.run.meta.config.get(name, "") for name in ("hidden_size", "n_embd", "d_model")
    ]
    return any(w.isdecimal() and int(w) >= context.value("low_mfu.large_hidden") for w in widths)


def detect_gpu_util(context: Context) -> list[Finding]:
    """low_gpu_util: the GPUs idle for much of the run."""
    th = context.thresholds
    lows: list[tuple[float, Track]] = []
    for track in context.tracks("gpu_util"):
        level = _level(track, int(th.value("throughput.least_records")))
        if level is not None and level < th.value("low_gpu_util.low"):
            lows.append((level, track))
    if not lows:
        return []
    level, track = min(lows, key=lambda low: low[0])
    poor = level < th.value("low_gpu_util.poor") and len(track) >= th.value("low_gpu_util.records")
    name = "low_gpu_util.poor" if poor else "low_gpu_util.low"
    seeds = (th["seed.gpu_util_low"],)
    severity: Severity = "warning" if poor else "info"
    return [_low(context, "low_gpu_util", severity, track, level, th[name], seeds)]


def _level(track: Track, records: int) -> float | None:
    """Median of the positive values after the first third; None for too few of them.

    The first third is start-up; some trainers print a placeholder of 0 or -1 until they know.
    """
    values = track.values[len(track) // 3 :]
    good = values[(values > 0) & (values < _LONGEST_S)]
    return median(good) if len(good) >= records * 2 // 3 else None


def _low(
    context: Context,
    kind: str,
    severity: Severity,
    track: Track,
    level: float,
    threshold: Threshold,
    seeds: tuple[Threshold, ...] = (),
) -> Finding:
    begin = len(track) // 3
    off = np.abs(np.nan_to_num(track.values[begin:], nan=np.inf) - level)
    at = begin + int(np.argmin(off))
    return finding(
        kind,
        severity,
        track=track,
        first=int(track.steps[begin]),
        last=int(track.steps[-1]),
        peak=int(track.steps[at]),
        statistics={"level": level, "records": len(track)},
        threshold=threshold,
        rules=seeds,
        evidence=(point(context, track, at, "efficiency_level", expected=f"{threshold.value:g}"),),
    )


# -- shares of waiting ----------------------------------------------------------------------


def detect_communication(context: Context) -> list[Finding]:
    """comm_overhead: share of the step that goes into communication."""
    seeds = (context.thresholds["seed.comm_share"],)
    return _share(context, "comm_time_s", "comm_overhead", seeds)


def detect_data_wait(context: Context) -> list[Finding]:
    """data_stall: share of the step that goes into waiting for data."""
    return _share(context, "data_time_s", "data_stall", ())


def _share(context: Context, metric: str, kind: str, seeds: tuple[Threshold, ...]) -> list[Finding]:
    """One finding for the segment and rank with the largest median share."""
    th = context.thresholds
    by_place = {(t.segment, t.rank): t for t in tracks(context.run, "step_time_s")}
    worst: tuple[float, Track, int] | None = None
    for track in context.tracks(metric):
        whole = by_place.get((track.segment, track.rank)) or by_place.get((track.segment, None))
        if whole is None:
            continue
        shares, at = _shares(track, whole)
        if len(shares) < th.value(f"{kind}.records"):
            continue
        middle = median(shares)
        if middle <= 1.0 and (worst is None or middle > worst[0]):
            worst = (middle, track, int(at[np.argmin(np.abs(shares - middle))]))
    if worst is None or worst[0] < th.value(f"{kind}.info_share"):
        return []
    share, track, where = worst
    warn = th[f"{kind}.warning_share"]
    return [_share_finding(context, kind, track, where, share, warn, seeds)]


def _shares(part: Track, whole: Track) -> tuple[FloatArray, IntArray]:
    """part / whole at the steps that both have, and the points of `part` they come from."""
    _, mine, theirs = np.intersect1d(part.steps, whole.steps, return_indices=True)
    own, total = part.values[mine], whole.values[theirs]
    good = (own >= 0) & (own < _LONGEST_S) & (total > 1e-9) & (total < _LONGEST_S)
    return own[good] / total[good], mine[good].astype(np.int64)


def _share_finding(
    context: Context,
    kind: str,
    track: Track,
    at: int,
    share: float,
    warn: Threshold,
    seeds: tuple[Threshold, ...],
) -> Finding:
    severe = share >= warn.value
    return finding(
        kind,
        "warning" if severe else "info",
        track=track,
        first=int(track.steps[0]),
        last=int(track.steps[-1]),
        peak=int(track.steps[at]),
        statistics={"share": share, "records": len(track)},
        threshold=warn if severe else context.thresholds[f"{kind}.info_share"],
        rules=seeds,
        evidence=(
            Evidence(
                label="waiting_time",
                step=int(track.steps[at]),
                value=float(track.values[at]),
                unit="s",
                ref=row_ref(context.run, int(track.rows[at])),
            ),
        ),
    )


EFFICIENCY = (
    Detector(name="mfu", kinds=("low_mfu",), needs=(("mfu",),), run=detect_mfu),
    Detector(name="gpu_util", kinds=("low_gpu_util",), needs=(("gpu_util",),), run=detect_gpu_util),
    Detector(
        name="communication",
        kinds=("comm_overhead",),
        needs=(("comm_time_s",), ("step_time_s",)),
        run=detect_communication,
    ),
    Detector(
        name="data_wait",
        kinds=("data_stall",),
        needs=(("data_time_s",), ("step_time_s",)),
        run=detect_data_wait,
    ),
)
