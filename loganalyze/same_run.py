"""Inputs that tell one curve are one run: a trainer's console, its state file, its tracker.

Two inputs of different makes belong together where they give the same losses at the same steps.
A console that counts its rows, because it prints no step, is laid along the other's rows in their
order, and takes its steps. Numbers that both give are kept once; what only one of them gives (a
time per step, a crash) stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.assemble import training_rows
from loganalyze.attempts import attempts, places_of
from loganalyze.frames_join import merged_frames
from loganalyze.model import Event
from loganalyze.parts import Parts, Pending

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Rows that must agree before two inputs are held for one run.
_LEAST = 3
#: Rows from which on a common beginning is enough: what follows was run a second time.
_LEAST_BEGINNING = 10
_SHARE = 0.95
#: The Trainer prints 4 decimals, since v5 4 digits; trackers store single precision.
_DECIMALS, _DIGITS = 5.1e-5, 5.1e-4
_COMPARED = ("loss", "grad_norm", "lr")
_RESULTS = "huggingface_results"


class Curve(Struct, frozen=True, kw_only=True):
    """A run's records in order: steps, places, and the metrics compared (NaN: not said)."""

    steps: IntArray
    places: IntArray
    values: dict[str, FloatArray]

    def __len__(self) -> int:
        """Number of records."""
        return len(self.steps)

    def part(self, own: slice) -> Curve:
        """Some of its records."""
        values = {name: numbers[own] for name, numbers in self.values.items()}
        return Curve(steps=self.steps[own], places=self.places[own], values=values)


class Match(Struct, frozen=True, kw_only=True):
    """Records of two curves that meet, by index, and how many of them agree.

    The first `same` of them are equal, the others were run twice.
    """

    host: IntArray
    guest: IntArray
    same: int


#: An attempt of a guest: its parts, where it meets the host's curve, and its own curve.
Telling = tuple[Parts, Match, Curve]


def joined(read: Sequence[Pending]) -> list[Pending]:
    """The groups, with those that tell the curve of another joined to it."""
    curves = {id(one): _curve(one) for one in read} if len(read) > 1 else {}
    hosts: list[Pending] = []
    for one in sorted(read, key=lambda p: (_is_console(p), -len(curves.get(id(p)) or ()))):
        own = curves.get(id(one))
        host = own and next((h for h in hosts if _joins(h, one, curves[id(h)], own)), None)
        if not host:
            hosts.append(one)
    kept = {id(host) for host in hosts}
    rest = [one for one in read if id(one) in kept]
    return [one for one in rest if not _is_result(one) or not _beside(one, rest)]


def _is_console(one: Pending) -> bool:
    return all(source.parser == "text" for source in one.sources)


def _curve(one: Pending) -> Curve | None:
    """The records of a group that is one run with a loss and no ranks apart; else None."""
    if one.group.named or len(one.by_run) != 1:
        return None
    (parts,) = one.by_run.values()
    names = ["step", "rank", "source", "offset", *_COMPARED, "samples_seen", "step_time_s"]
    frames = [
        training_rows(f).select(n for n in names if n in f.columns)
        for f in parts.frames
        if "loss" in f.columns
    ]
    if not frames:
        return None
    rows = pl.concat(frames, how="diagonal").filter(pl.col("loss").is_not_null())
    if not len(rows) or rows["rank"].n_unique() > 1:
        return None
    values = {n: rows[n].fill_null(np.nan).to_numpy() for n in _COMPARED if n in rows.columns}
    steps = rows["step"].cast(pl.Int64).to_numpy()
    return Curve(steps=steps, places=places_of(rows), values=values)


def _joins(host: Pending, guest: Pending, one: Curve | None, other: Curve) -> bool:
    """Whether the guest told the host's curve; then it is part of the host."""
    if one is None or not (_makes_differ(host, guest) or _is_checkpoint(host, guest)):
        return False
    (parts,) = guest.by_run.values()
    told = _tellings(parts, one, other) if _is_console(guest) else []
    if not told and (found := match(one, other)) is not None:
        told = [(parts, found, other)]
    if told:
        _take_in(host, guest, one, told)
    return bool(told)


def _tellings(parts: Parts, host: Curve, guest: Curve) -> list[Telling]:
    """The attempts of a console that holds several, if each tells a part of the host's curve."""
    cut = [(part, guest.part(own)) for part, own in attempts(parts, guest.steps, guest.places)]
    told = [(part, found, own) for part, own in cut if (found := match(host, own)) is not None]
    return told if len(told) == len(cut) > 1 else []


def _makes_differ(host: Pending, guest: Pending) -> bool:
    """Whether they are of different sorts; a host's first input is what it was at first."""
    return host.sources[0].parser != guest.sources[0].parser


def _is_checkpoint(host: Pending, guest: Pending) -> bool:
    """Whether one is the state in a checkpoint's folder beside the other, or below its folder."""
    one, other = (Path(p.sources[0].path).parent for p in (host, guest))
    roots = [f.parent if f.name.startswith("checkpoint-") else f for f in (one, other)]
    return roots[0] == roots[1] and one != other


def match(host: Curve, guest: Curve) -> Match | None:
    """Which records of two curves are the same, by step or by order; None if they differ.

    By order where that lays more of them together: a console counts some of its steps wrong.
    """
    step = _by_step(host, guest)
    if step is not None and len(step.guest) == len(guest):
        return step
    order = _by_order(host, guest)
    both = [found for found in (step, order) if found is not None]
    return max(both, key=lambda found: found.same, default=None)


def _by_step(host: Curve, guest: Curve) -> Match | None:
    if len(np.unique(host.steps)) < len(host) or len(np.unique(guest.steps)) < len(guest):
        return None
    _, one, other = np.intersect1d(host.steps, guest.steps, return_indices=True)
    if 2 * len(one) < min(len(host), len(guest)):
        return None
    return _agree(host, guest, one, other)


def _by_order(host: Curve, guest: Curve) -> Match | None:
    """The guest's rows laid along the host's from the first place where three in a row agree."""
    loss, wanted = host.values["loss"], guest.values["loss"]
    if len(wanted) < _LEAST or len(loss) < _LEAST:
        return None
    last = len(loss) - _LEAST + 1
    starts = np.flatnonzero(
        np.logical_and.reduce([_close(loss[k : last + k], wanted[k]) for k in range(_LEAST)])
    )
    for start in starts[:100].tolist():
        count = min(len(loss) - start, len(wanted))
        one = np.arange(start, start + count, dtype=np.int64)
        found = _agree(host, guest, one, np.arange(count, dtype=np.int64))
        if found is not None:
            return found
    return None


def _agree(host: Curve, guest: Curve, one: IntArray, other: IntArray) -> Match | None:
    """Whether the records that meet are equal, or equal up to where the host was resumed."""
    if len(one) < _LEAST:
        return None
    names = [n for n in _COMPARED if n in host.values and n in guest.values]
    equal = np.ones(len(one), dtype=bool)
    for name in names:
        a, b = host.values[name][one], guest.values[name][other]
        equal &= _close(a, b) | np.isnan(a) | np.isnan(b)
    losses = host.values["loss"][one]
    told = losses[np.isfinite(losses)]
    varied = len(told) > 0 and float(np.ptp(told)) > 10 * (_DECIMALS + _DIGITS * abs(told[0]))
    if not varied and not ({"grad_norm"} & set(names)):
        return None
    if equal.mean() >= _SHARE:
        return Match(host=one, guest=other, same=len(one))
    same = int(np.argmin(equal))
    if same >= _LEAST_BEGINNING and 2 * same >= len(one):
        return Match(host=one, guest=other, same=same)
    return None


def _close(a: FloatArray, b: FloatArray | float) -> npt.NDArray[np.bool_]:
    """Equal as printed; NaN equals NaN."""
    both = np.isnan(a) & np.isnan(b)
    with np.errstate(invalid="ignore"):
        near: npt.NDArray[np.bool_] = np.abs(a - b) <= np.maximum(_DECIMALS, _DIGITS * np.abs(a))
    close: npt.NDArray[np.bool_] = near | both | (a == b)
    return close


def _take_in(host: Pending, guest: Pending, one: Curve, told: Sequence[Telling]) -> None:
    """The guest's sources, what only it says, and its events at the host's steps."""
    (target,) = host.by_run.values()
    shift = len(host.sources)
    for parts, found, other in reversed(told):  # an earlier attempt stands before what came later
        _take_attempt(target, moved_parts(parts, shift), found, one, other)
    host.sources.extend(guest.sources)
    same, count = (sum(n) for n in zip(*((f.same, len(f.host)) for _, f, _ in told), strict=True))
    what = f"{guest.group.name} tells the same losses ({same} of {count} records)"
    host.group = replace(host.group, reason=f"{host.group.reason}; {what}")


def _take_attempt(target: Parts, moved: Parts, found: Match, one: Curve, other: Curve) -> None:
    known, true = other.steps[found.guest], one.steps[found.host]
    if not np.array_equal(known, true):
        moved.frames = [_restepped(frame, known, true) for frame in moved.frames]
        moved.events = [_restepped_event(event, known, true) for event in moved.events]
    moved.events = _placed(moved.events, moved.frames)
    again = true[found.same :]
    target.frames = merged_frames(
        target.frames, moved.frames, int(again[0]) if len(again) else None
    )
    target.events.extend(moved.events)
    target.problems.extend(moved.problems)


def moved_parts(parts: Parts, shift: int) -> Parts:
    """The same parts with their sources counted on behind others."""
    return Parts(
        frameworks=parts.frameworks,
        frames=[
            frame.with_columns(source=(pl.col("source") + shift).cast(pl.Int32))
            for frame in parts.frames
        ],
        events=[
            replace(event, ref=replace(event.ref, source=event.ref.source + shift))
            for event in parts.events
        ],
        problems=[
            problem
            if problem.ref is None
            else replace(problem, ref=replace(problem.ref, source=problem.ref.source + shift))
            for problem in parts.problems
        ],
    )


def _restepped(frame: pl.DataFrame, known: IntArray, true: IntArray) -> pl.DataFrame:
    held = frame["step"].is_not_null().to_numpy()
    steps = frame["step"].fill_null(0).cast(pl.Int64).to_numpy()
    series = pl.Series("step", translated(steps, known, true))
    return frame.with_columns(step=pl.when(pl.Series(held)).then(series))


def _restepped_event(event: Event, known: IntArray, true: IntArray) -> Event:
    if event.step is None or event.kind.startswith("checkpoint"):
        return event  # a checkpoint's folder names the step itself
    return replace(event, step=int(translated(np.array([event.step]), known, true)[0]))


def _placed(events: Sequence[Event], frames: Sequence[pl.DataFrame]) -> list[Event]:
    """Events without a step get that of the last row before them, which may not be kept."""
    keys = [frame.select("source", "offset", "step").drop_nulls() for frame in frames]
    rows = pl.concat(keys, how="vertical_relaxed") if keys else pl.DataFrame()
    if not len(rows):
        return list(events)
    by_source = rows.sort("offset").partition_by("source", as_dict=True)
    placed = []
    for event in events:
        own = by_source.get((event.ref.source,))
        at = -1 if own is None else int(own["offset"].search_sorted(event.ref.offset, "right")) - 1
        if event.step is None and own is not None and at >= 0:
            event = replace(event, step=int(own["step"][at]))
        placed.append(event)
    return placed


def translated(steps: IntArray, known: IntArray, true: IntArray) -> IntArray:
    """Steps on the other axis: between known points in proportion, beyond them at the same pace.

    >>> known, true = np.array([1, 2, 3]), np.array([10, 20, 30])
    >>> translated(np.array([0, 2, 5]), known, true).tolist()
    [0, 20, 50]
    """
    inside = np.interp(steps, known, true)
    if len(known) > 1:
        pace = (true[-1] - true[0]) / max(int(known[-1] - known[0]), 1)
        inside = np.where(steps > known[-1], true[-1] + (steps - known[-1]) * pace, inside)
        inside = np.where(steps < known[0], true[0] + (steps - known[0]) * pace, inside)
    return np.maximum(np.rint(inside), 0).astype(np.int64)


def _is_result(one: Pending) -> bool:
    return bool(one.sources) and all(source.parser == _RESULTS for source in one.sources)


def _beside(result: Pending, read: Sequence[Pending]) -> bool:
    """Whether exactly one run of the same folder takes a file of final numbers in."""
    folders = {Path(source.path).parent for source in result.sources}
    hosts = [
        one
        for one in read
        if not _is_result(one)
        and not one.group.named
        and len(one.by_run) == 1
        and "huggingface" in {s.parser for s in one.sources}
        and folders & {Path(source.path).parent for source in one.sources}
    ]
    if len(hosts) != 1 or result.group.named:
        return False
    (host,) = hosts
    (target,) = host.by_run.values()
    for parts in result.by_run.values():
        target.extend(moved_parts(parts, len(host.sources)))
    host.sources.extend(result.sources)
    host.group = replace(
        host.group, reason=f"{host.group.reason}; final numbers beside it: {result.group.name}"
    )
    return True
