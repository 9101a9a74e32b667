"""GPU memory against its limits: near the card's size, fragmented, or unequal over ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loganalyze.detectors.base import Context, finding, point
from loganalyze.model import Evidence, Finding, Severity, Threshold
from loganalyze.running import median
from loganalyze.tracks import FloatArray, IntArray, Track, within

RESERVED = ("mem_reserved_bytes", "mem_peak_reserved_bytes")
PEAK = ("mem_peak_allocated_bytes", "mem_allocated_bytes")


#: A memory size in bytes, or a share of it, that some machine may have.
_SIZES = (1e-9, 1e18)
_COUNTS = (0.0, 1e15)


def sizes(context: Context, metric: str) -> list[Track]:
    """Tracks of a memory metric without zeros, NaN and misprints; none that is empty."""
    kept = [within(track, *_SIZES) for track in context.tracks(metric)]
    return [track for track in kept if len(track)]


def memory_limit(context: Context) -> float | None:
    """Memory of the smallest card in bytes; None if the log does not tell."""
    totals = [track.values for track in sizes(context, "mem_total_bytes")]
    return float(np.concatenate(totals).min()) if totals else None


def detect_near_limit(context: Context) -> list[Finding]:
    """memory_near_limit: reserved, peak or used memory against the card's; allocator retries."""
    limit = memory_limit(context)
    found = [] if limit is None else _near(context, limit)
    return found or _retries(context)


def _near(context: Context, limit: float) -> list[Finding]:
    th = context.thresholds
    rules = (
        (PEAK, None, th["memory_near_limit.peak_warning"]),
        (
            RESERVED,
            th["memory_near_limit.reserved_info"],
            th["memory_near_limit.reserved_warning"],
        ),
        (
            ("mem_used_bytes",),
            th["memory_near_limit.reserved_info"],
            th["memory_near_limit.used_warning"],
        ),
    )
    hits = [
        hit
        for metrics, info, warn in rules
        for metric in metrics
        for track in sizes(context, metric)
        if (hit := _above(track, limit, info, warn, int(th.value("memory_near_limit.records"))))
    ]
    if not hits:
        return []
    order = {"info": 0, "warning": 1}
    severity, threshold, track, at = max(hits, key=lambda h: (order[h[0]], h[2].values[h[3][-1]]))
    worst = int(at[np.argmax(track.values[at])])
    seeds = th["seed.memory_reserved_high"]
    return [
        finding(
            "memory_near_limit",
            severity,
            track=track,
            first=int(track.steps[at[0]]),
            last=int(track.steps[at[-1]]),
            peak=int(track.steps[worst]),
            statistics={
                "limit_bytes": limit,
                "peak_bytes": float(track.values[worst]),
                "peak_share": float(track.values[worst] / limit),
                "records": len(at),
                "ranks": len({hit[2].rank for hit in hits}),
            },
            threshold=threshold,
            rules=(seeds,) if any(h[2].metric in RESERVED for h in hits) else (),
            evidence=(
                point(context, track, worst, "memory_peak", unit="B", expected=f"{limit:.4g}"),
            ),
        )
    ]


_Hit = tuple[Severity, Threshold, Track, IntArray]


def _above(
    track: Track, limit: float, info: Threshold | None, warn: Threshold, records: int
) -> _Hit | None:
    share = track.values / limit
    for severity, threshold in (("warning", warn), ("info", info)):
        if threshold is None:
            continue
        at = np.flatnonzero(share > threshold.value)
        if len(at) >= min(records, len(track)):
            return ("warning" if severity == "warning" else "info", threshold, track, at)
    return None


def _retries(context: Context) -> list[Finding]:
    """The allocator had to flush its cache and try again: at the limit, whatever its size."""
    for track in (within(t, *_COUNTS) for t in context.tracks("alloc_retries")):
        rises = np.flatnonzero(np.diff(track.values) > 0) + 1
        if len(rises):
            return [
                finding(
                    "memory_near_limit",
                    "warning",
                    track=track,
                    first=int(track.steps[rises[0]]),
                    last=int(track.steps[rises[-1]]),
                    statistics={"retries": float(track.values[-1] - track.values[0])},
                    threshold=context.thresholds["memory_near_limit.retries"],
                    evidence=(point(context, track, int(rises[0]), "memory_retries"),),
                )
            ]
    return []


# -- fragmentation and imbalance ------------------------------------------------------------


def detect_fragmentation(context: Context) -> list[Finding]:
    """memory_fragmentation: the cache grows away from what tensors hold."""
    for track, gap, allocated in _gaps(context):
        found = _fragmented(context, track, gap, allocated)
        if found is not None:
            return [found]
    return []


def _gaps(context: Context) -> list[tuple[Track, FloatArray, FloatArray]]:
    """Reserved tracks with reserved - allocated and allocated at the same rows."""
    reserved = next((m for m in RESERVED if context.has(m)), None)
    allocated = next((m for m in PEAK if context.has(m)), None)
    if reserved is None or allocated is None:
        return []
    column = context.run.readings[allocated].to_numpy()
    out = []
    for track in sizes(context, reserved):
        held = column[track.rows].astype(np.float64)
        if np.all((held >= _SIZES[0]) & (held <= _SIZES[1])):
            out.append((track, track.values - held, held))
    return out


def _fragmented(
    context: Context, track: Track, gap: FloatArray, allocated: FloatArray
) -> Finding | None:
    th = context.thresholds
    count = len(track)
    if count < th.value("memory_fragmentation.records"):
        return None
    tenth = max(1, count // 10)
    whole = np.float64(memory_limit(context) or track.values.max())
    late, early = median(gap[-tenth:]) / whole, median(gap[tenth : 2 * tenth]) / whole
    held = (median(allocated[-tenth:]) - median(allocated[tenth : 2 * tenth])) / whole
    grown = late - early
    if late < th.value("memory_fragmentation.gap_share") or held > 0.5 * grown:
        return None
    if grown < th.value("memory_fragmentation.growth_share"):
        return None
    warn = th["memory_fragmentation.warning_share"]
    serious = late >= warn.value and memory_limit(context) is not None
    return finding(
        "memory_fragmentation",
        "warning" if serious else "info",
        track=track,
        first=int(track.steps[tenth]),
        last=int(track.steps[-1]),
        peak=int(track.steps[int(np.argmax(gap))]),
        statistics={"gap_share_begin": early, "gap_share_end": late, "gap_bytes": gap[-1]},
        threshold=warn if serious else th["memory_fragmentation.gap_share"],
        evidence=(
            point(
                context,
                track,
                tenth,
                "memory_reserved",
                unit="B",
                expected=f"{allocated[tenth]:.4g}",
            ),
            point(
                context,
                track,
                count - 1,
                "memory_reserved",
                unit="B",
                expected=f"{allocated[-1]:.4g}",
            ),
        ),
    )


def detect_imbalance(context: Context) -> list[Finding]:
    """memory_imbalance: one rank holds far more than the median rank."""
    metric = next((m for m in (*PEAK, *RESERVED, "mem_used_bytes") if _by_rank(context, m)), None)
    return [] if metric is None else _imbalance(context, _by_rank(context, metric))


def _by_rank(context: Context, metric: str) -> list[Track]:
    """Tracks of the last segment, one a rank; empty with fewer than two ranks."""
    own = [track for track in sizes(context, metric) if track.rank is not None]
    last = max((track.segment for track in own), default=0)
    own = [track for track in own if track.segment == last]
    return own if len(own) >= 2 else []


def _imbalance(context: Context, own: Sequence[Track]) -> list[Finding]:
    th = context.thresholds
    peaks = np.array([np.nanmax(track.values) for track in own])
    middle = median(peaks)
    ratio = float(peaks.max() / middle) if middle > 0 else 1.0
    if ratio < th.value("memory_imbalance.ratio"):
        return []
    limit = memory_limit(context)
    tight = limit is not None and peaks.max() > th.value("memory_near_limit.reserved_info") * limit
    track = own[int(np.argmax(peaks))]
    at = int(np.nanargmax(track.values))
    evidence: tuple[Evidence, ...] = (
        point(context, track, at, "memory_rank", unit="B", expected=f"{middle:.4g}"),
    )
    return [
        finding(
            "memory_imbalance",
            "warning" if tight else "info",
            track=track,
            first=int(track.steps[0]),
            last=int(track.steps[-1]),
            peak=int(track.steps[at]),
            statistics={
                "ratio": ratio,
                "median_bytes": middle,
                "peak_bytes": float(peaks.max()),
                "ranks": len(own),
            },
            threshold=th["memory_imbalance.ratio"],
            evidence=evidence,
        )
    ]
