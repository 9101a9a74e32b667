"""loss_spike: the loss leaves its own past upwards, and comes back or does not."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, beyond_noise, loss_events
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.series_events import Excursion

HABIT = 5  # short notes of one track; more are told as one
MOST = 30  # findings of one track; the strongest are kept


class Spike(Struct, frozen=True, kw_only=True):
    """An excursion in the units of the loss. rise: nat; ratio: to the base; length: points."""

    event: Excursion
    base: float
    rise: float
    ratio: float
    length: int
    steps: int


def spike_of(curve: Curve, event: Excursion) -> Spike:
    """The excursion of a curve, its heights in nat and as a ratio."""
    base = float(np.exp(event.base)) if curve.log else event.base
    top = float(np.exp(event.base + event.height)) if curve.log else event.base + event.height
    steps = int(curve.steps[event.end] - curve.steps[event.onset]) + curve.track.interval
    return Spike(
        event=event,
        base=base,
        rise=top - base,
        ratio=top / base if base > 0 else 1.0,
        length=event.end - event.onset + 1,
        steps=steps,
    )


def run(context: Context) -> list[Finding]:
    """Every excursion of the loss that is worth a note."""
    if context.profile == "rl":  # a policy loss has no level of its own
        return []
    found: list[Finding] = []
    for curve, events in loss_events(context):
        spikes = [spike_of(curve, event) for event in events]
        major = [s for s in spikes if is_major(context, curve, s)]
        made = [_finding(context, curve, spike, major) for spike in spikes]
        kept = [item for item in made if item is not None]
        found.extend(_strongest(_without_habit(kept)))
        found.extend(_start(context, curve))
    return found


def _without_habit(found: list[Finding]) -> list[Finding]:
    """Outliers of single batches that come again and again are a habit of the data, told once.

    Of more than HABIT short notes the largest is kept, with how many there are.
    """
    notes = [
        item for item in found
        if item.severity == "info" and int(item.statistics["length_points"] or 0) <= 3
    ]  # fmt: skip
    if len(notes) <= HABIT:
        return found
    largest = max(notes, key=lambda item: float(item.statistics["rise_nat"] or 0.0))
    told = replace(largest, statistics={**largest.statistics, "similar": len(notes)})
    return [item for item in found if item not in notes] + [told]


def _start(context: Context, curve: Curve) -> list[Finding]:
    """A note on a leap in the burst at the start: usual, but the first update was too large."""
    early = curve.values[: curve.skip]
    if len(early) < 3 or not curve.log:
        return []
    at = 1 + int(np.argmax(early[1:]))
    rise, ratio = float(early[at] - early[0]), float(early[at] / early[0])
    rule = context.thresholds["loss_spike.rise_major"]
    if ratio < 1.0 + rule.value or rise < context.value("loss_spike.nat_critical"):
        return []
    return [
        finding(
            "loss_spike",
            "info",
            track=curve.track,
            first=int(curve.steps[1]),
            last=int(curve.steps[at]),
            peak=int(curve.steps[at]),
            statistics={"base": float(early[0]), "rise_nat": rise, "ratio": ratio},
            threshold=rule,
            evidence=(
                point(context, curve.track, int(curve.at[0]), "loss_before", unit="nat"),
                point(context, curve.track, int(curve.at[at]), "loss_peak", unit="nat"),
            ),
        )
    ]


def _strongest(found: list[Finding]) -> list[Finding]:
    def weight(item: Finding) -> tuple[int, float]:
        order = {"critical": 2, "warning": 1, "info": 0}
        return -order[item.severity], -float(item.statistics["rise_nat"] or 0.0)

    return sorted(found, key=weight)[:MOST]


def is_major(context: Context, curve: Curve, spike: Spike) -> bool:
    """The reconciled rule of seed A: +20 % over the running median, beyond noise, 0.1 nat."""
    return (
        spike.ratio > 1.0 + context.value("loss_spike.rise_major")
        and spike.rise >= context.value("loss_spike.nat_warning")
        and _sure(context, curve, spike)
    )


def _sure(context: Context, curve: Curve, spike: Spike) -> bool:
    """Beyond what noise reaches once in a thousand runs; or half as high again in a calm curve.

    So high a leap needs no more than the limit that made it an event, where enough was seen to
    know that the noise is small.
    """
    great = spike.ratio > 1.0 + context.value("loss_spike.rise_great")
    known = spike.event.onset >= context.value("loss_spike.great_points")
    calm = curve.log and spike.event.sigma <= context.value("loss_spike.great_noise")
    return beyond_noise(context, curve, spike.event) or (great and known and calm)


def _severity(
    context: Context, curve: Curve, spike: Spike, major: list[Spike]
) -> tuple[Severity, str]:
    """Severity and the name of the threshold that decided."""
    lasts = spike.event.recovered is not True
    huge = spike.ratio > context.value("loss_spike.ratio_critical")
    sure = _sure(context, curve, spike)
    if not sure or spike.rise < context.value("loss_spike.nat_warning"):
        return "info", "loss_spike.z_info"
    if huge and spike.rise >= context.value("loss_spike.nat_critical"):
        return "critical", "loss_spike.ratio_critical"
    short = spike.event.onset < context.value("loss_spike.short_points")
    if short and spike.rise < context.value("loss_spike.short_nat"):
        return "info", "loss_spike.short_nat"
    if is_major(context, curve, spike):
        worse = lasts or _recurs(context, spike, major)
        return ("critical" if worse else "warning"), "loss_spike.rise_major"
    if lasts or spike.steps > context.value("loss_spike.small_steps"):
        return "info", "loss_spike.small_steps"  # a new level, not a spike
    return "warning", "loss_spike.z_warning"


def _recurs(context: Context, spike: Spike, major: list[Spike]) -> bool:
    """At least the third major one within the span of steps, and they grow."""
    at = next((n for n, other in enumerate(major) if other is spike), 0)
    if at < 2:
        return False
    third = major[at - 2]
    near = spike.event.onset - third.event.onset <= context.value("loss_spike.recurs_points")
    return near and spike.rise > 1.2 * third.rise


def _finding(context: Context, curve: Curve, spike: Spike, major: list[Spike]) -> Finding | None:
    event = spike.event
    severity, name = _severity(context, curve, spike, major)
    small = spike.ratio < context.value("loss_spike.ratio_least")
    last_point = event.recovered is None and event.end == event.onset
    if severity == "info" and (small or last_point):
        return None
    at = curve.at
    before = int(at[max(event.onset - 1, 0)])
    evidence = [
        point(context, curve.track, before, "loss_before", unit="nat"),
        point(
            context, curve.track, int(at[event.peak]), "loss_peak", unit="nat",
            expected=f"{spike.base:.4g}",
        ),
    ]  # fmt: skip
    if event.recovered and event.end + 1 < len(at):
        after = int(at[event.end + 1])
        evidence.append(point(context, curve.track, after, "loss_after", unit="nat"))
    return finding(
        "loss_spike",
        severity,
        track=curve.track,
        first=int(curve.steps[event.onset]),
        last=int(curve.steps[event.end]),
        peak=int(curve.steps[event.peak]),
        statistics=_statistics(spike),
        threshold=context.thresholds[name],
        rules=_seed_rules(context, curve, event),
        evidence=tuple(evidence),
    )


def _statistics(spike: Spike) -> dict[str, float | int | str | None]:
    event = spike.event
    known = {True: "yes", False: "no", None: "unknown"}
    return {
        "base": spike.base,
        "rise_nat": spike.rise,
        "ratio": spike.ratio,
        "z": event.z,
        "z_limit": event.limit,
        "window_points": event.span,
        "length_points": spike.length,
        "cost_steps": spike.steps,
        "recovered": known[event.recovered],
    }


def _seed_rules(context: Context, curve: Curve, event: Excursion) -> tuple[Threshold, ...]:
    """The seeds' fixed step-to-step rules that fire inside the event."""
    start = max(event.onset, 1)
    now, last = curve.values[start : event.end + 1], curve.values[start - 1 : event.end]
    positive = last > 0
    largest = float(np.max(now[positive] / last[positive], initial=0.0))
    rules = []
    if largest > 1.0 + context.value("seed.loss_step_increase"):
        rules.append(context.thresholds["seed.loss_step_increase"])
    if largest > context.value("seed.loss_step_ratio"):
        rules.append(context.thresholds["seed.loss_step_ratio"])
    return tuple(rules)


DETECTOR = Detector(
    name="loss_spikes", kinds=("loss_spike",), needs=(("loss",),), run=run, local=True
)
