"""Memory of GPUs and hosts: leaks, nearness to the limit, fragmentation, imbalance."""

from __future__ import annotations

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.memory_growth import Growth, growths
from loganalyze.detectors.memory_limits import (
    PEAK,
    RESERVED,
    detect_fragmentation,
    detect_imbalance,
    detect_near_limit,
    memory_limit,
    sizes,
)
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.tracks import Track

#: What shows a leak, most telling first: memory after the step before peaks and caches.
LEAK_METRICS = (
    "mem_allocated_bytes",
    "mem_active_bytes",
    "mem_peak_allocated_bytes",
    "mem_reserved_bytes",
    "mem_peak_reserved_bytes",
    "mem_used_bytes",
)
HOST_METRICS = ("host_rss_bytes", "host_mem_used_bytes", "host_mem_share")


def detect_leaks(context: Context) -> list[Finding]:
    """memory_leak: the first metric that grows steadily tells it, once for all ranks."""
    for metric in LEAK_METRICS:
        found = _leak(context, metric, "memory_leak")
        if found is not None:
            return [found]
    return []


def detect_host_leaks(context: Context) -> list[Finding]:
    """host_memory_leak, told by the process's own memory before that of the host."""
    for metric in HOST_METRICS:
        found = _leak(context, metric, "host_memory_leak")
        if found is not None:
            return [found]
    return []


def _leak(context: Context, metric: str, kind: str) -> Finding | None:
    grown = [
        (track, growth) for track in sizes(context, metric) for growth in growths(context, track)
    ]
    if not grown:
        return None
    limit = memory_limit(context) if kind == "memory_leak" else _host_limit(metric)
    track, worst = max(grown, key=lambda pair: pair[1].share)
    severity, threshold = _leak_severity(context, kind, track, worst, limit)
    last_track, last = max(grown, key=lambda pair: (pair[0].segment, pair[1].stop))
    return finding(
        kind,
        severity,
        track=track,
        first=min(int(t.steps[g.start]) for t, g in grown if t.rank == track.rank),
        last=int(track.steps[worst.stop - 1]),
        peak=int(track.steps[worst.stop - 1]),
        statistics={
            "slope_per_step": worst.slope.slope,
            "slope_low": worst.slope.low,
            "slope_high": worst.slope.high,
            "growth_share": worst.share,
            "begin_bytes": worst.begin,
            "end_bytes": worst.end,
            "limit_bytes": limit,
            "full_at_step": _full_at(last_track, last, limit),
            "teeth": len({(t.segment, g.start) for t, g in grown if t.rank == track.rank}),
            "ranks": len({t.rank for t, _ in grown}),
        },
        threshold=threshold,
        evidence=(
            point(context, track, worst.start, "memory_begin", unit="B"),
            point(context, track, worst.stop - 1, "memory_end", unit="B"),
        ),
    )


def _leak_severity(
    context: Context, kind: str, track: Track, growth: Growth, limit: float | None
) -> tuple[Severity, Threshold]:
    th = context.thresholds
    full = _full_at(track, growth, limit)
    spent = int(track.steps[growth.stop - 1] - track.steps[growth.start])
    soon = th["memory_leak.soon"]
    if full is not None and full - int(track.steps[growth.stop - 1]) <= soon.value * spent:
        return "critical", soon
    host = kind == "host_memory_leak"
    warn = th["host_memory_leak.warning_share" if host else "memory_leak.warning_share"]
    if growth.share >= warn.value and not (host and _small(context, track, growth)):
        return "warning", warn
    return "info", th["memory_leak.info_share"]


def _small(context: Context, track: Track, growth: Growth) -> bool:
    """Whether a host's growth is nothing to a server, whatever its share."""
    unit = "share" if track.metric == "host_mem_share" else "bytes"
    return growth.end - growth.begin < context.value(f"host_memory_leak.least_{unit}")


def _full_at(track: Track, growth: Growth, limit: float | None) -> int | None:
    """The step at which the line reaches the limit; None without limit or beyond 2**53."""
    if limit is None or growth.slope.slope <= 0:
        return None
    ahead = (limit - growth.end) / growth.slope.slope
    last = int(track.steps[growth.stop - 1])
    return last + int(max(0.0, ahead)) if ahead < 2**53 else None


def _host_limit(metric: str) -> float | None:
    return 1.0 if metric == "host_mem_share" else None


MEMORY = (
    Detector(name="memory_leak", kinds=("memory_leak",), needs=(LEAK_METRICS,), run=detect_leaks),
    Detector(
        name="memory_near_limit",
        kinds=("memory_near_limit",),
        needs=(("mem_total_bytes", "alloc_retries"), (*PEAK, *RESERVED, "mem_used_bytes")),
        run=detect_near_limit,
    ),
    Detector(
        name="memory_fragmentation",
        kinds=("memory_fragmentation",),
        needs=(RESERVED, PEAK),
        run=detect_fragmentation,
    ),
    Detector(
        name="memory_imbalance",
        kinds=("memory_imbalance",),
        needs=((*PEAK, *RESERVED, "mem_used_bytes"),),
        run=detect_imbalance,
    ),
    Detector(
        name="host_memory_leak",
        kinds=("host_memory_leak",),
        needs=(HOST_METRICS,),
        run=detect_host_leaks,
    ),
)
