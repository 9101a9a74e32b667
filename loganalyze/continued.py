"""A job that was started again writes a new file: it belongs to the run whose checkpoint it loads.

Two inputs are one run, the second a resume of the first, where the second says that it loads a
checkpoint which the first says it saved (the same path and step), goes on right behind it, and
saves to the same place. A branch that saves elsewhere is another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from msgspec.structs import replace

from loganalyze.model import Event
from loganalyze.parts import Parts, Pending
from loganalyze.same_run import moved_parts

_SAVES = ("checkpoint_save_begin", "checkpoint_save_end")
#: Logging intervals behind the checkpoint within which the first row must stand.
_NEAR = 3


def chained(read: Sequence[Pending]) -> list[Pending]:
    """The groups, with those that go on from another's checkpoint put behind it."""
    kept: list[Pending] = []
    for one in sorted(read, key=_begin) if len(read) > 1 else read:
        load = _loaded(one)
        host = load and next((h for h in reversed(kept) if _goes_on(h, one, load)), None)
        if load and host:
            _append(host, one, load)
        else:
            kept.append(one)
    order = {id(one): at for at, one in enumerate(read)}
    return sorted(kept, key=lambda one: order[id(one)])


def _only(one: Pending) -> Parts | None:
    parts = list(one.by_run.values())
    return parts[0] if len(parts) == 1 and not one.group.named else None


def _begin(one: Pending) -> tuple[float, int, str]:
    """By the first time that is known, then by step, then by name."""
    parts = _only(one)
    if parts is None:
        return (0.0, 0, one.group.name)
    walls = [f["wall_s"].min() for f in parts.frames if f["wall_s"].null_count() < len(f)]
    first = min((float(w) for w in walls), default=0.0)  # type: ignore[arg-type]
    return (first, _first_step(parts) or 0, one.group.name)


def _first_step(parts: Parts) -> int | None:
    steps = [f["step"].drop_nulls() for f in parts.frames]
    return next((int(s[0]) for s in steps if len(s)), None)


def _loaded(one: Pending) -> Event | None:
    """The checkpoint from which a group's rows go on: the last one loaded before the first row."""
    parts = _only(one)
    step = _first_step(parts) if parts else None
    if parts is None or step is None:
        return None
    loads = [
        e for e in parts.events
        if e.kind == "checkpoint_load" and e.step and e.step < step and e.detail.get("path")
    ]  # fmt: skip
    return loads[-1] if loads else None


def _goes_on(host: Pending, guest: Pending, load: Event) -> bool:
    before, after = _only(host), _only(guest)
    first = _first_step(after) if after else None
    if before is None or after is None or first is None or not before.frames:
        return False
    path = str(load.detail["path"])
    saved = [e for e in before.events if e.kind in _SAVES and e.step == load.step]
    own = [e for e in after.events if e.kind in _SAVES]
    if not any(_same_place(path, e) for e in saved):
        return False
    if own and not any(_same_place(path, e) for e in own):
        return False
    return load.step is not None and first - load.step <= _NEAR * _interval(after)


def _interval(parts: Parts) -> int:
    steps = next(f["step"].drop_nulls().unique().sort() for f in parts.frames if len(f))
    gaps = steps.diff().drop_nulls()
    return max(int(gaps.median() or 1), 1) if len(gaps) else 1  # type: ignore[arg-type]


def _same_place(path: str, save: Event) -> bool:
    """Whether a save went into the folder that was loaded from, or beside it (checkpoint-500)."""
    told = save.detail.get("path")
    if not told:
        return path.rstrip("/") in save.text
    one, other = PurePath(path), PurePath(str(told))
    if len(other.parts) < 2 or len(one.parts) < 2:  # the name alone was printed
        return one.name == other.name or (save.step is not None and one.parent == other.parent)
    return one == other or one.parent == other.parent


def _append(host: Pending, guest: Pending, load: Event) -> None:
    target, parts = _only(host), _only(guest)
    assert target is not None
    assert parts is not None
    target.extend(moved_parts(parts, len(host.sources)))
    host.sources.extend(guest.sources)
    what = f"{guest.group.name} goes on from its checkpoint of step {load.step}"
    host.group = replace(host.group, reason=f"{host.group.reason}; {what}")
