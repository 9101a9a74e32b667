"""loss_scale_collapse, skipped_steps, and runs in which every step was skipped (no_learning)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
from msgspec import Struct

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.loss_common import is_excerpt, loss_events
from loganalyze.model import Evidence, Finding, LineRef, Severity
from loganalyze.series import Floats, stretches
from loganalyze.tracks import Track, longest_row, row_of, row_ref


class Scale(Struct, frozen=True, kw_only=True):
    """The loss scale as told at one place of the log. step: -1 where unknown.

    old: the scale before, where the message says it.
    """

    step: int
    value: float
    old: float | None = None
    ref: LineRef
    overflow: bool


def scales(context: Context, segment: int) -> list[Scale]:
    """What rows and overflow messages tell of the loss scale, in the order written."""
    told = [s for s in _from_events(context, segment) if s.value >= 0]
    for track in context.tracks("loss_scale"):
        if track.segment == segment:
            change = np.flatnonzero(np.r_[True, track.values[1:] != track.values[:-1]])
            told += [
                Scale(
                    step=int(track.steps[i]), value=float(track.values[i]),
                    ref=row_ref(context.run, int(track.rows[i])), overflow=False,
                )
                for i in change if 0 <= track.values[i] < np.inf
            ]  # fmt: skip
            break
    return sorted(told, key=lambda s: (s.ref.source, s.ref.offset, s.ref.line))


def _from_events(context: Context, segment: int) -> list[Scale]:
    found = []
    for row in context.events("overflow").iter_rows(named=True):
        if row["segment"] not in (None, segment):
            continue
        detail = json.loads(row["detail"] or "{}")
        new = detail.get("new_scale", detail.get("scale", -1.0))
        ref = LineRef(
            source=row["source"], line=row["line"], offset=row["offset"], length=row["length"]
        )
        step = -1 if row["step"] is None else row["step"]
        old = detail.get("old_scale")
        found.append(
            Scale(
                step=step, value=float(new), ref=ref, overflow=True,
                old=None if old is None else float(old),
            )
        )  # fmt: skip
    return found


def collapse(context: Context) -> list[Finding]:
    """A scale that halves again and again, or lies on the floor, after the search at the start."""
    found = []
    for segment in context.run.meta.segments or ():
        told = _after_search(context, segment.index)
        item = _halvings(context, told) or _floor(context, told)
        if item:
            found.append(item)
    if not context.run.meta.segments:
        told = scales(context, 0)
        item = _floor(context, told)
        found += [item] if item else []
    return found


def _after_search(context: Context, segment: int) -> list[Scale]:
    """Without the search at the start of a run: falls in a row, as long as the scale is large."""
    told = scales(context, segment)
    excerpt = any(is_excerpt(context, t) for t in _any_tracks(context) if t.segment == segment)
    if excerpt or not told:
        return told
    least = context.value("loss_scale_collapse.search_floor")
    steps = context.value("loss_scale_collapse.search_steps")
    at = 0
    for one, two in pairwise(told):
        falls = two.value <= one.value and two.value >= least
        near = one.step < 0 or two.step < 0 or two.step - max(one.step, told[0].step) <= steps
        if not (falls and near):
            break
        at += 1
    return told[at:]


def _any_tracks(context: Context) -> tuple[Track, ...]:
    for name in ("loss_scale", "loss", "lr"):
        found = context.tracks(name)
        if found:
            return found
    return ()


def _halvings(context: Context, told: list[Scale]) -> Finding | None:
    """At least three halvings within fifty steps."""
    window = context.value("loss_scale_collapse.window_steps")
    least = context.value("loss_scale_collapse.halvings")
    chains = _chains(told)
    found = [
        item for item in (_in_chain(context, chain, window, least) for chain in chains) if item
    ]
    return found[0] if found else None


def _chains(told: list[Scale]) -> list[list[Scale]]:
    """Scales by engine: a message belongs to the chain that ends with the old scale it names."""
    chains: list[list[Scale]] = []
    for scale in told:
        same = [c for c in chains if scale.old is None or c[-1].value == scale.old]
        if same:
            same[-1].append(scale)
        else:
            chains.append([scale])
    return chains


def _in_chain(context: Context, told: list[Scale], window: float, least: float) -> Finding | None:
    falls = [
        (two, float(np.log2(one.value / two.value)))
        for one, two in pairwise(told)
        if 0 < two.value < one.value and two.step - one.step <= window
    ]
    first_old = told[0].old
    if first_old is not None and 0 < told[0].value < first_old:
        falls.insert(0, (told[0], float(np.log2(first_old / told[0].value))))
    hits: list[Scale] = []
    for end, (last, _) in enumerate(falls):
        inside = [f for f in falls[: end + 1] if last.step - f[0].step <= window]
        if sum(f[1] for f in inside) >= least:
            hits += [f[0] for f in inside]
    if not hits:
        return None
    hits.sort(key=lambda s: (s.ref.source, s.ref.offset, s.ref.line))
    first, last = hits[0], hits[-1]
    worst = last.value <= 1.0 or _loss_hurt(context, first.step, last.step)
    return _state(context, told, first, last, "critical" if worst else "warning", "halvings")


def _loss_hurt(context: Context, first: int, last: int) -> bool:
    """Whether the loss left its past at the same time and did not come back."""
    return any(
        event.recovered is not True
        and curve.steps[event.onset] <= last + 10 * curve.track.interval
        and curve.steps[event.end] >= first
        for curve, events in loss_events(context)
        for event in events
    )


def _floor(context: Context, told: list[Scale]) -> Finding | None:
    """A scale below one, or stuck at one while steps overflow."""
    below = [s for s in told if s.value < 1.0]
    stuck = [s for s in told if s.overflow and s.value <= 1.0]
    if not below and len(stuck) < 2:
        return None
    hits = below or stuck
    return _state(
        context, told, hits[0], hits[-1], "critical" if len(hits) > 2 else "warning", "floor"
    )


def _state(
    context: Context, told: list[Scale], first: Scale, last: Scale, severity: Severity, rule: str
) -> Finding:
    top = max(s.value for s in told)
    known = [s.step for s in (first, last) if s.step >= 0]
    return finding(
        "loss_scale_collapse",
        severity,
        metric="loss_scale",
        first=min(known, default=None),
        last=max(known, default=None),
        peak=last.step if last.step >= 0 else None,
        statistics={"highest": top, "lowest": min(s.value for s in told), "changes": len(told)},
        threshold=context.thresholds[f"loss_scale_collapse.{rule}"],
        evidence=tuple(
            Evidence(label=label, step=s.step if s.step >= 0 else None, value=s.value, ref=s.ref)
            for label, s in (("scale_first", first), ("scale_last", last))
        ),
    )


def skipped(context: Context) -> list[Finding]:
    """Steps without an update: a note at the usual rate, worse where they are many or in a row."""
    told = _skips(context)
    if told is None:
        return []
    steps, counts, ref_of = told
    total = int(counts.sum())
    if not total:
        return []
    row = _most_in_a_row(context, steps, counts)
    share = _late_share(context, steps, counts)
    severity: Severity = "info"
    name = "skipped_steps.share_warning"
    if row >= context.value("skipped_steps.row_critical") or _gave_up(context):
        severity, name = "critical", "skipped_steps.row_critical"
    elif share > context.value("skipped_steps.share_warning"):
        severity = "warning"
    hit = np.flatnonzero(counts > 0)
    first, last = hit[0], hit[-1]
    known = [int(s) for s in (steps[first], steps[last]) if s >= 0]
    return [
        finding(
            "skipped_steps",
            severity,
            metric="skipped_steps" if context.has("skipped_steps") else None,
            first=min(known, default=None),
            last=max(known, default=None),
            statistics={"skipped": total, "most_in_a_row": row, "share_after_start": share},
            threshold=context.thresholds[name],
            evidence=(
                Evidence(label="skip_first", step=min(known, default=None), ref=ref_of(first)),
                Evidence(label="skip_last", step=max(known, default=None), ref=ref_of(last)),
            ),
        )
    ]


def _gave_up(context: Context) -> bool:
    """Whether the trainer itself says that it ends because of the overflows."""
    return any('"critical"' in (text or "") for text in context.events("overflow")["detail"])


def _skips(
    context: Context,
) -> tuple[np.ndarray, np.ndarray, Callable[[int], LineRef]] | None:
    """Steps, skipped steps at each, and where it is told: overflow messages or the counters."""
    events = context.events("overflow")
    counters = context.tracks("skipped_steps")
    counted = sum(float(_counts(t).sum()) for t in counters)
    if events.height >= counted and events.height:
        steps = events["step"].fill_null(-1).to_numpy()
        many = [_told_count(text) for text in events["detail"]]
        return steps, np.array(many), partial(row_of, events)
    if not counted:
        return None
    steps = np.concatenate([t.steps for t in counters])
    counts = np.concatenate([_counts(t) for t in counters])
    rows = np.concatenate([t.rows for t in counters])
    return steps, counts, lambda place: row_ref(context.run, int(rows[place]))


def _counts(track: Track) -> Floats:
    """Steps skipped at each record; what cannot be a count is none."""
    sane = np.isfinite(track.values) & (track.values >= 0) & (track.values < 1e9)
    return np.where(sane, track.values, 0.0)


def _told_count(detail: str | None) -> int:
    """Overflows in a row that one message stands for."""
    told = json.loads(detail or "{}")
    for key in ("skipped", "count"):
        if key in told:
            return int(float(told[key]))
    return 1


def _most_in_a_row(context: Context, steps: np.ndarray, counts: np.ndarray) -> int:
    """Longest row of skipped steps: of full intervals, or of messages without a gap."""
    if counts.max() >= context.value("skipped_steps.row_critical"):
        return int(counts.max())
    interval = max(1, context.run.meta.log_interval)
    if context.events("overflow").height:
        return longest_row(steps[steps >= 0], counts[steps >= 0], interval)
    full = counts >= interval
    return max(
        [int(counts[a : b + 1].sum()) for a, b in stretches(full)], default=int(counts.max())
    )


def _late_share(context: Context, steps: np.ndarray, counts: np.ndarray) -> float:
    """Share of skipped steps after the search at the start."""
    segments = context.run.meta.segments
    if not segments:
        return 0.0
    start = segments[0].first + context.value("loss_scale_collapse.search_steps")
    all_steps = sum(max(s.last - max(s.first, start), 0) for s in segments)
    late = float(counts[steps > start].sum())
    return late / all_steps if all_steps >= 100 else 0.0


def all_skipped(context: Context) -> list[Finding]:
    """Every step of the log was skipped: no loss, no update. Usual for the first few steps only."""
    frame = context.run.readings
    told_at = frame["skipped_steps"].is_not_null() & frame["step"].is_not_null()
    records = int(told_at.sum())
    overflows = context.events("overflow").height
    lost = not bool((frame["loss"].is_not_null() & told_at).any()) if "loss" in frame else True
    skips = int(((frame["skipped_steps"] > 0) & told_at).sum())
    told = max(skips, overflows)  # both tell of the same steps: they don't add up
    if not records or (not lost and overflows < records) or told < records:
        return []
    worst = records >= context.value("no_learning.skipped_records")
    steps, last = frame["step"].filter(told_at).to_numpy(), int(told_at.arg_true()[-1])
    return [
        finding(
            "no_learning",
            "critical" if worst else "info",
            metric="skipped_steps",
            first=int(steps.min()),
            last=int(steps.max()),
            statistics={"records": records, "skipped_records": told},
            threshold=context.thresholds["no_learning.skipped_records"],
            evidence=(
                Evidence(
                    label="skip_last", step=frame["step"][last], ref=row_ref(context.run, last)
                ),
            ),
        )
    ]


COLLAPSE = Detector(
    name="loss_scale_collapse",
    kinds=("loss_scale_collapse",),
    needs=(("loss_scale", "event:overflow"),),
    run=collapse,
    local=True,
)
SKIPPED = Detector(
    name="skipped_steps",
    kinds=("skipped_steps",),
    needs=(("skipped_steps", "event:overflow"),),
    run=skipped,
    local=True,
)
ALL_SKIPPED = Detector(
    name="all_skipped", kinds=("no_learning",), needs=(("skipped_steps",),), run=all_skipped
)
