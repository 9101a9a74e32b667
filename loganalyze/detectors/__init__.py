"""All detectors, and the one function that runs them."""

from __future__ import annotations

from collections.abc import Collection

from loganalyze.config import Thresholds
from loganalyze.detectors.base import Context, Detector, named
from loganalyze.detectors.grad_explosion import DETECTOR as GRAD_EXPLOSION
from loganalyze.detectors.hardware import HARDWARE
from loganalyze.detectors.life import FAILURE_EVENTS
from loganalyze.detectors.life_saves import SAVES_AND_RESTARTS
from loganalyze.detectors.loss_spikes import DETECTOR as LOSS_SPIKES
from loganalyze.detectors.memory import MEMORY
from loganalyze.detectors.nonfinite import GRAD as GRAD_NONFINITE
from loganalyze.detectors.nonfinite import LOSS as LOSS_NONFINITE
from loganalyze.detectors.ranks import RANKS
from loganalyze.detectors.speed import SPEED_OVER_TIME
from loganalyze.model import DetectorRun, Finding, RunLog, severity_rank

DETECTORS: tuple[Detector, ...] = (
    LOSS_NONFINITE,
    LOSS_SPIKES,
    GRAD_NONFINITE,
    GRAD_EXPLOSION,
    SPEED_OVER_TIME,
    *MEMORY,
    *HARDWARE,
    *RANKS,
    FAILURE_EVENTS,
    SAVES_AND_RESTARTS,
)

__all__ = ("DETECTORS", "Context", "Detector", "detect")


def detect(
    run: RunLog,
    thresholds: Thresholds,
    *,
    baseline: RunLog | None = None,
    off: Collection[str] = (),
) -> tuple[tuple[Finding, ...], tuple[DetectorRun, ...]]:
    """Run every detector on a run.

    Returns findings in the order of their steps, with ids `<code>-<n>`, and one DetectorRun for
    each detector, in the order of DETECTORS. off: names of detectors not to run.
    """
    context = Context(run=run, thresholds=thresholds, profile=thresholds.profile, baseline=baseline)
    found: list[Finding] = []
    states: list[DetectorRun] = []
    for detector in DETECTORS:
        missing = detector.missing(context)
        if detector.name in off:
            states.append(DetectorRun(detector=detector.name, status="off"))
        elif missing:
            states.append(DetectorRun(detector=detector.name, status="skipped", missing=missing))
        else:
            found.extend(detector.run(context))
            states.append(DetectorRun(detector=detector.name, status="ran"))
    return _numbered(found), tuple(states)


def _numbered(found: list[Finding]) -> tuple[Finding, ...]:
    counts: dict[str, int] = {}
    out = []
    for item in sorted(found, key=_order):
        counts[item.code] = counts.get(item.code, 0) + 1
        out.append(named(item, counts[item.code]))
    return tuple(out)


def _order(item: Finding) -> tuple[object, ...]:
    """Segment, step, severity, code, rank, metric: the same findings always sort alike."""
    return (
        -1 if item.segment is None else item.segment,
        -1 if item.step_first is None else item.step_first,
        -severity_rank(item.severity),
        item.code,
        -1 if item.rank is None else item.rank,
        item.metric or "",
        -1 if item.step_last is None else item.step_last,
    )
