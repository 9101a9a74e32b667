"""loss_discontinuity that the steps run twice tell: a state that was lost, data served again."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.model import Finding
from loganalyze.resumed import bump_of, run_twice, served_again, sides
from loganalyze.tracks import Track


def detect_resumed(context: Context) -> list[Finding]:
    """One finding a resumed segment and sort, at most."""
    if context.profile == "rl":
        return []
    known = context.tracks("loss")
    found: list[Finding] = []
    for segment in context.run.meta.segments:
        both = sides(known, segment.index) if segment.relation == "resume" else None
        if both is not None:
            found += (
                _lost_state(context, *both)
                or _bump(context, *both)
                or _replay(context, known, both[1])
            )
    return found


def _lost_state(context: Context, before: Track, after: Track) -> list[Finding]:
    """The first step repeats what it was, the next ones stand higher: weights, but not moments."""
    twice = run_twice(before, after)
    if len(twice.steps) < int(context.value("resume_data.steps")):
        return []
    equal = abs(twice.differences[0]) <= 1e-3 * abs(twice.first[0])
    later = twice.differences[1:9]
    rise, level = float(np.mean(later)), float(np.median(twice.first))
    least = max(context.value("resume_data.rise_nat"), context.value("resume_data.rise") * level)
    if not equal or rise < least or np.mean(later > 0) < 0.8:
        return []
    peak = int(np.argmax(later)) + 1
    at = int(np.searchsorted(after.steps, twice.steps[peak]))
    return [
        _state(
            context,
            after,
            at,
            int(twice.steps[-1]),
            "rise_nat",
            {"shape": "second_step", "jump_nat": float(later.max()), "level": level},
        )
    ]


def _bump(context: Context, before: Track, after: Track) -> list[Finding]:
    """The same data, higher at first and back by the end: what a log of every few steps shows."""
    twice = run_twice(before, after)
    bump = bump_of(twice)
    if bump is None or bump.link < context.value("resume_data.link_same"):
        return []
    level = float(np.median(twice.first))
    least = max(context.value("resume_data.rise_nat"), context.value("resume_data.rise") * level)
    if bump.rise < least or bump.rest > context.value("resume_data.rest") * bump.rise:
        return []
    peak = int(np.argmax(twice.differences))
    at = int(np.searchsorted(after.steps, twice.steps[peak]))
    told: dict[str, float | int | str | None] = {
        "shape": "same_data", "jump_nat": float(twice.differences[peak]), "level": level,
    }  # fmt: skip
    return [_state(context, after, at, int(twice.steps[-1]), "rise_nat", told)]


def _replay(context: Context, known: tuple[Track, ...], after: Track) -> list[Finding]:
    link, deviations, count = served_again(known, after)
    if deviations < context.value("resume_data.z") or link < context.value("resume_data.link"):
        return []
    end = int(after.steps[min(count, len(after) - 1)])
    return [_state(context, after, 0, end, "z",
                   {"shape": "replay", "correlation": link, "records": count})]  # fmt: skip


def _state(
    context: Context, track: Track, at: int, last: int, rule: str,
    statistics: dict[str, float | int | str | None],
) -> Finding:  # fmt: skip
    return finding(
        "loss_discontinuity",
        "warning",
        track=track,
        first=int(track.steps[0]),
        last=last,
        peak=int(track.steps[at]),
        statistics=statistics,
        threshold=context.thresholds[f"resume_data.{rule}"],
        evidence=(point(context, track, at, "loss_onset", unit="nat"),),
    )


DETECTOR = Detector(
    name="resume_data",
    kinds=("loss_discontinuity",),
    needs=(("loss",),),
    run=detect_resumed,
    local=True,
)
