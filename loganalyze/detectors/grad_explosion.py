"""grad_explosion: the gradient norm leaves its own past by factors."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.grad_common import Norms, clip_value, norms
from loganalyze.detectors.loss_common import beyond_noise, loss_events
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.running import median, row_middles
from loganalyze.series import Floats, past_median, stretches
from loganalyze.series_events import Excursion
from loganalyze.series_levels import WINDOW, Search
from loganalyze.series_stretches import all_excursions, last_parts, level_before
from loganalyze.tracks import Track

MOST = 30  # findings of one track; the strongest are kept
_NEAR_ZERO = 1e-12


def run(context: Context) -> list[Finding]:
    """Bursts of the norm, norms beyond all usual from the start, and rises beside a loss event."""
    found: list[Finding] = []
    for norm in norms(context):
        if len(norm.at) < 2:
            continue
        always = _always_high(context, norm)
        if always is not None:
            found.append(always)
            continue
        bursts = _bursts(context, norm)
        bursts += _by_factor(context, norm, bursts)
        bursts += _beside_loss(context, norm, bursts)
        bursts += _new_level(context, norm, bursts)
        bursts += _start(context, norm)
        found.extend(bursts)
    return found


def _bursts(context: Context, norm: Norms) -> list[Finding]:
    y = np.log(np.maximum(norm.values, _NEAR_ZERO))
    search = Search(
        z=context.value("grad_explosion.z"),
        coarse_z=context.value("grad_explosion.z"),
        chance=context.value("grad_explosion.chance"),
        floor=context.value("grad_explosion.floor"),
        skip=norm.skip,
    )
    made = []
    for event in all_excursions(y, search):
        high = np.exp(event.height) >= context.value("grad_explosion.ratio_info")
        if high and not _returns(context, norm, event):
            made.append(_finding(context, norm, event))
    made.sort(key=lambda item: -float(item.statistics["ratio"] or 0.0))
    return made[:MOST]


def _returns(context: Context, norm: Norms, event: Excursion) -> bool:
    """Whether a norm only comes back from nothing to where it stood before it vanished."""
    low = context.value("seed.grad_norm_low")
    if np.exp(event.base) >= low:
        return False
    before = norm.values[: event.onset]
    usual = before[before >= low]
    top = float(norm.values[event.onset : event.end + 1].max())
    known = len(usual) >= context.value("grad_explosion.joint_points")
    return known and top < context.value("grad_explosion.ratio_warning") * median(usual)


def _finding(context: Context, norm: Norms, event: Excursion) -> Finding:
    severity, name = _severity(context, norm, event)
    return _state(
        context, norm, event.onset, event.end, float(np.exp(event.base)), severity, name,
        z=event.z, recovered={True: "yes", False: "no", None: "unknown"}[event.recovered],
    )  # fmt: skip


def _severity(context: Context, norm: Norms, event: Excursion) -> tuple[Severity, str]:
    part = norm.values[event.onset : event.end + 1]
    base, ratio = float(np.exp(event.base)), float(np.exp(event.height))
    high = int((part > base * context.value("grad_explosion.ratio_warning")).sum())
    lasting = context.value("grad_explosion.lasting_points")
    lasts = event.recovered is False or high >= 2 * lasting
    rare = max(
        context.value("grad_explosion.chance_warning"),
        context.value("loss_spike.false_per_run") / len(norm.values),
    )
    ratio_major = context.value("grad_explosion.ratio_major")
    sure = event.chance <= rare or high >= 4 * lasting or ratio > ratio_major
    if event.recovered and _while_warming(context, norm, event):
        return "info", "grad_explosion.ratio_info"
    joint = _loss_moves(context, norm, event.onset, event.end)
    if joint:
        return ("critical" if lasts and high else "warning"), "grad_explosion.joint_points"
    if not sure or not high:
        return "info", "grad_explosion.ratio_info"
    if ratio > ratio_major or high >= lasting:
        huge = float(part.max()) > context.value("seed.grad_norm_high") and high >= lasting
        worse = lasts and (huge or ratio > ratio_major)
        return ("critical" if worse else "warning"), "grad_explosion.ratio_major"
    return "warning", "grad_explosion.ratio_warning"


def _while_warming(context: Context, norm: Norms, event: Excursion) -> bool:
    """Whether a burst lies in the warm-up or right behind it, and the loss is lower after it.

    While the rate rises the norm bumps in healthy runs; what it costs, the loss tells by itself.
    """
    for lr, loss in zip(_same(context, "lr", norm), _same(context, "loss", norm), strict=False):
        top = float(np.nanmax(lr.values[: max(len(lr) // 3, 1)]))
        warm = int(lr.steps[int(np.argmax(lr.values >= 0.95 * top))])
        first, last = int(norm.steps[event.onset]), int(norm.steps[event.end])
        before = loss.values[loss.steps < first][-5:]
        after = loss.values[loss.steps > last][:5]
        early = int(lr.steps[0]) <= 2 * lr.interval and last <= 2 * warm
        if early and len(before) and len(after) and median(after) < median(before):
            return True
    return False


def _same(context: Context, metric: str, norm: Norms) -> list[Track]:
    """The longest track of a metric in the norm's segment, if there is one."""
    own = [t for t in context.tracks(metric) if t.segment == norm.track.segment and len(t)]
    return [max(own, key=len)] if own else []


def _loss_moves(context: Context, norm: Norms, first: int, last: int) -> bool:
    """Whether the loss of the same segment leaves its past within a few points of the stretch."""
    reach = int(context.value("grad_explosion.joint_points")) * norm.track.interval
    start, stop = int(norm.steps[first]) - reach, int(norm.steps[last]) + reach
    return any(
        curve.steps[event.onset] <= stop and curve.steps[event.end] >= start
        for curve, events in loss_events(context)
        if curve.track.segment == norm.track.segment
        for event in events
        if np.expm1(event.height if curve.log else 0.0) >= 0.02
        and beyond_noise(context, curve, event)
    )


def _state(
    context: Context, norm: Norms, first: int, last: int, base: float, severity: Severity,
    name: str, **more: float | int | str | None,
) -> Finding:  # fmt: skip
    part = norm.values[first : last + 1]
    peak = first + int(np.argmax(part))
    at = norm.at
    evidence = [
        point(context, norm.track, int(at[max(first - 1, 0)]), "norm_before"),
        point(context, norm.track, int(at[peak]), "norm_peak", expected=f"{base:.4g}"),
    ]
    return finding(
        "grad_explosion",
        severity,
        track=norm.track,
        first=int(norm.steps[first]),
        last=int(norm.steps[last]),
        peak=int(norm.steps[peak]),
        statistics={
            "base": base,
            "peak": float(part.max()),
            "ratio": float(part.max()) / max(base, _NEAR_ZERO),
            "length_points": last - first + 1,
            "loss_scale_removed": "yes" if norm.scaled else "no",
            **more,
        },
        threshold=context.thresholds[name],
        rules=_seed_rules(context, part),
        evidence=tuple(evidence),
    )


def _seed_rules(context: Context, part: Floats) -> tuple[Threshold, ...]:
    top = float(part.max())
    names = ("seed.grad_norm_healthy_high", "seed.grad_norm_high")
    rules = [context.thresholds[name] for name in names if top > context.value(name)]
    clip = clip_value(context)
    if clip is not None and part.max() > clip * context.value("seed.grad_clip_multiple"):
        rules.append(context.thresholds["seed.grad_clip_multiple"])
    return tuple(rules)


def _by_factor(context: Context, norm: Norms, known: list[Finding]) -> list[Finding]:
    """Norms tens of times the running median in a run so restless that they are no outliers there.

    One finding over all bursts of ten times: such a run bursts again and again.
    """
    usual = past_median(norm.values, WINDOW)
    usual[: max(norm.skip, int(context.value("grad_explosion.known_points")))] = np.nan
    usual[usual < context.value("seed.grad_norm_low")] = np.nan  # back from nothing
    told = [item for item in known if item.severity != "info"]
    high = np.flatnonzero(norm.values > context.value("grad_explosion.ratio_warning") * usual)
    at = [i for i in high.tolist() if not _told_at(told, int(norm.steps[i]))]
    beyond = context.value("grad_explosion.ratio_major")
    if not any(norm.values[i] > beyond * usual[i] for i in at):
        return []
    return [
        _state(
            context, norm, at[0], at[-1], float(usual[at[0]]), "warning",
            "grad_explosion.ratio_major", bursts=len(at),
        )
    ]  # fmt: skip


def _told_at(known: list[Finding], step: int) -> bool:
    return any(_overlaps(item, step, step) for item in known)


def _beside_loss(context: Context, norm: Norms, known: list[Finding]) -> list[Finding]:
    """Rises around a loss event that the norm's own past is too short or too wild to show."""
    made: list[Finding] = []
    reach = int(context.value("grad_explosion.joint_points"))
    for curve, events in loss_events(context):
        if curve.track.segment != norm.track.segment or curve.track.rank != norm.track.rank:
            continue
        for event in events:
            first, last = np.searchsorted(
                norm.steps,
                (curve.steps[event.onset], curve.steps[min(event.end, event.onset + 50)]),
            )
            near = norm.values[max(first - reach, 0) : first]
            part = norm.values[first : last + 1]
            if event.onset < norm.skip or not len(near) or not len(part):
                continue
            base = float(np.min(near) if len(near) < 3 else median(near))
            ratio = float(part.max()) / max(base, _NEAR_ZERO)
            if ratio < context.value("grad_explosion.ratio_warning"):
                continue
            high = stretches(part > base * context.value("grad_explosion.ratio_info"))
            a, b = int(first) + high[0][0], int(first) + high[-1][1]
            if any(_overlaps(item, int(norm.steps[a]), int(norm.steps[b])) for item in known):
                continue
            made.append(_state(context, norm, a, b, base, "warning", "grad_explosion.joint_points"))
    return made[:MOST]


def _new_level(context: Context, norm: Norms, known: list[Finding]) -> list[Finding]:
    """A norm that ends many times above its lowest level, however slowly it got there.

    Where the whole run does not show it, its last part may, or the last part of that: one that
    ends where a longer one began has come back from something lower.
    """
    told = [item for item in known if item.severity != "info"]
    begin = min(norm.skip, len(norm.values) // 10)
    made, level = _grown(context, norm, begin), 0.0
    if not made or made[0].severity == "info":
        share, least = context.value("late.part"), int(context.value("late.points"))
        for first in last_parts(len(norm.values), share, least):
            level = max(level, level_before(norm.values, first))
            late = _grown(context, norm, first)
            worse = context.value("grad_explosion.drift_warning")
            if late and float(late[0].statistics["end"] or 0.0) >= worse * level:
                made = late
                break
    return [
        item for item in made
        if not any(_overlaps(one, item.step_first or 0, item.step_last or 0) for one in told)
    ]  # fmt: skip


def _grown(context: Context, norm: Norms, skip: int) -> list[Finding]:
    """What ends many times above the lowest level behind point `skip`."""
    values = norm.values[skip:]
    count = min(40, len(values))
    if count < 5:
        return []
    size = len(values) // count
    lower, upper = row_middles(values[len(values) - count * size :].reshape(count, size))
    shape = 0.5 * (np.log(lower) + np.log(upper))  # the medians of the logarithms
    low = int(np.argmin(shape))
    tail = max(2, count // 10)
    end = median(shape[-tail:])
    ratio = float(np.exp(end - shape[low]))
    vanished = float(np.exp(shape[low])) < context.value("seed.grad_norm_low")
    if vanished and low and end < shape[:low].max() + 1.0:  # back from nothing, no new level
        return []
    if low >= count - tail or ratio < context.value("grad_explosion.drift_info"):
        return []
    near = np.flatnonzero(shape[low:] <= shape[low] + 0.5 * (end - shape[low]))
    onset = low + int(near[-1]) + 1
    if float(shape[min(onset, count - 1) :].min()) < shape[low] + 0.3 * (end - shape[low]):
        return []
    first = skip + len(values) - count * size + min(onset, count - 1) * size
    last = len(norm.values) - 1
    worse = ratio >= context.value("grad_explosion.drift_warning")
    severity: Severity = "warning" if worse else "info"
    base = float(np.exp(shape[low]))
    item = _state(
        context, norm, first, last, base, severity, "grad_explosion.drift_warning",
        end=float(np.exp(end)), recovered="no",
    )  # fmt: skip
    return [item]


def _overlaps(item: Finding, first: int, last: int) -> bool:
    return (item.step_first or 0) <= last and (item.step_last or 0) >= first


def _start(context: Context, norm: Norms) -> list[Finding]:
    """Norms of thousands in the first steps: the weights are not what they should be."""
    early = norm.values[: norm.skip]
    limit = context.value("grad_explosion.absolute")
    high = np.flatnonzero(early > limit)
    if norm.skip < 3 or not len(high):
        return []
    item = _state(context, norm, 0, int(high[-1]), limit, "warning", "grad_explosion.absolute")
    return [item]


def _always_high(context: Context, norm: Norms) -> Finding | None:
    """A norm beyond all usual from the first points on: nothing in the log to compare it with."""
    limit = context.value("grad_explosion.absolute")
    values = norm.values
    if median(values) < limit or median(values[: max(3, norm.skip)]) < limit:
        return None
    return _state(context, norm, 0, len(values) - 1, limit, "warning", "grad_explosion.absolute")


DETECTOR = Detector(
    name="grad_explosion",
    kinds=("grad_explosion",),
    needs=(("grad_norm",),),
    run=run,
    local=True,
    also_whole=("grad_explosion",),
)
