"""All detectors, and the one function that runs them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from loganalyze.config import Thresholds
from loganalyze.detectors.against import against
from loganalyze.detectors.audit import CONFIG_AUDIT
from loganalyze.detectors.audit_changes import CHANGES
from loganalyze.detectors.audit_curves import CONTRADICTIONS
from loganalyze.detectors.base import LONG, Context, Detector, named
from loganalyze.detectors.coverage import COVERAGE
from loganalyze.detectors.experts import EXPERTS
from loganalyze.detectors.grad_explosion import DETECTOR as GRAD_EXPLOSION
from loganalyze.detectors.grad_low import OSCILLATION as GRAD_OSCILLATION
from loganalyze.detectors.grad_low import VANISHING as GRAD_VANISHING
from loganalyze.detectors.grad_ratios import (
    CLIP_RATE,
    CONCENTRATION,
    HARD_SAMPLES,
    UPDATE_RATIO,
)
from loganalyze.detectors.hardware import HARDWARE
from loganalyze.detectors.in_stretches import detect_long
from loganalyze.detectors.life import FAILURE_EVENTS
from loganalyze.detectors.life_saves import SAVES_AND_RESTARTS
from loganalyze.detectors.loss_divergence import DETECTOR as LOSS_DIVERGENCE
from loganalyze.detectors.loss_epochs import DETECTOR as LOSS_EPOCHS
from loganalyze.detectors.loss_scale import ALL_SKIPPED, COLLAPSE, SKIPPED
from loganalyze.detectors.loss_shape import DISCONTINUITY, MISSCALED, OSCILLATION
from loganalyze.detectors.loss_spikes import DETECTOR as LOSS_SPIKES
from loganalyze.detectors.loss_standstill import DETECTOR as LOSS_STANDSTILL
from loganalyze.detectors.lr_schedule import DETECTOR as LR_SCHEDULE
from loganalyze.detectors.memory import MEMORY
from loganalyze.detectors.nonfinite import GRAD as GRAD_NONFINITE
from loganalyze.detectors.nonfinite import LOSS as LOSS_NONFINITE
from loganalyze.detectors.normal import Normal
from loganalyze.detectors.ranks import RANKS
from loganalyze.detectors.resume_data import DETECTOR as RESUME_DATA
from loganalyze.detectors.rl import RL
from loganalyze.detectors.speed import SPEED_OVER_TIME
from loganalyze.detectors.speed_efficiency import EFFICIENCY
from loganalyze.detectors.val_loss import DETECTOR as VAL_LOSS
from loganalyze.detectors.weights import STOPPED
from loganalyze.engine import cores
from loganalyze.long_runs import is_long
from loganalyze.model import DetectorRun, Finding, RunLog, severity_rank
from loganalyze.spill import release

DETECTORS: tuple[Detector, ...] = (
    LOSS_NONFINITE,
    LOSS_SPIKES,
    LOSS_DIVERGENCE,
    LOSS_STANDSTILL,
    LOSS_EPOCHS,
    OSCILLATION,
    DISCONTINUITY,
    RESUME_DATA,
    MISSCALED,
    VAL_LOSS,
    GRAD_NONFINITE,
    GRAD_EXPLOSION,
    GRAD_VANISHING,
    GRAD_OSCILLATION,
    CLIP_RATE,
    CONCENTRATION,
    UPDATE_RATIO,
    STOPPED,
    COLLAPSE,
    SKIPPED,
    ALL_SKIPPED,
    LR_SCHEDULE,
    HARD_SAMPLES,
    SPEED_OVER_TIME,
    *EFFICIENCY,
    *MEMORY,
    *HARDWARE,
    *RANKS,
    EXPERTS,
    FAILURE_EVENTS,
    SAVES_AND_RESTARTS,
    *RL,
    CONFIG_AUDIT,
    CONTRADICTIONS,
    CHANGES,
    *COVERAGE,
)

__all__ = ("DETECTORS", "Context", "Detector", "detect", "detect_and_show")

#: They begin first: one of them begun last would keep all but one core waiting.
_SLOWEST = tuple(one.name for one in (LOSS_SPIKES, GRAD_EXPLOSION, SPEED_OVER_TIME))


def detect(
    run: RunLog,
    thresholds: Thresholds,
    *,
    baseline: Sequence[Normal] = (),
    off: Collection[str] = (),
) -> tuple[tuple[Finding, ...], tuple[DetectorRun, ...]]:
    """Run every detector on a run.

    Returns findings in the order of their steps, with ids `<code>-<n>`, and one DetectorRun for
    each detector, in the order of DETECTORS. baseline: what healthy runs taught; findings are
    judged against it. off: names of detectors not to run.
    """
    _, found, states = detect_and_show(run, thresholds, baseline=baseline, off=off)
    return found, states


def detect_and_show(
    run: RunLog,
    thresholds: Thresholds,
    *,
    baseline: Sequence[Normal] = (),
    off: Collection[str] = (),
) -> tuple[RunLog, tuple[Finding, ...], tuple[DetectorRun, ...]]:
    """As detect(), and first the run to explain and to draw: of a very long one its overview."""
    context = Context(run=run, thresholds=thresholds, profile=thresholds.profile)
    able, states = _able(context, off)
    if is_long(run):
        run, found, context = detect_long(run, thresholds, able, _looked)
    else:
        found = _looked(context, able)
    if baseline:
        with np.errstate(all="ignore"):
            found = against(context, baseline, found)
    return run, _numbered(found), tuple(states)


def _able(context: Context, off: Collection[str]) -> tuple[list[Detector], list[DetectorRun]]:
    """The detectors that have what they need, and the state of every one."""
    states: list[DetectorRun] = []
    able: list[Detector] = []
    for detector in DETECTORS:
        missing = detector.missing(context)
        if detector.name in off:
            states.append(DetectorRun(detector=detector.name, status="off"))
        elif missing:
            states.append(DetectorRun(detector=detector.name, status="skipped", missing=missing))
        else:
            able.append(detector)
            states.append(DetectorRun(detector=detector.name, status="ran"))
    return able, states


def _looked(context: Context, able: Sequence[Detector]) -> list[Finding]:
    """What the detectors find, in their order; those of a long run work beside each other."""

    def look(detector: Detector) -> list[Finding]:
        with np.errstate(all="ignore"):  # logs may hold absurd numbers; they judge themselves
            made = detector.run(context)
        release()
        return made

    if len(context.run.readings) < LONG:
        return [finding for detector in able for finding in look(detector)]
    slowest_first = sorted(able, key=lambda detector: detector.name not in _SLOWEST)
    with ThreadPoolExecutor(cores()) as pool:  # numpy leaves the interpreter free
        under_way = {detector.name: pool.submit(look, detector) for detector in slowest_first}
        return [finding for detector in able for finding in under_way[detector.name].result()]


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
