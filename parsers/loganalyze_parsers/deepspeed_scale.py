"""DeepSpeed's loss scaler: every wording of an overflow since v0.2.

    [deepscale] OVERFLOW! Rank 1 Skipping step. Attempted loss scale: 65536.0, reducing to 32768.0
    [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4096, but hysteresis is 2.
        Reducing hysteresis to 1
    Grad overflow on iteration 12 / Reducing dynamic loss scale from 4096 to 2048.0
    Overflow detected. Skipping step. Attempted loss scale: 4096, reducing to 2048.0

One skipped step is one `overflow` event with old_scale and new_scale (equal while hysteresis is
used up, and at the minimum). Every rank may say it: the copies of other ranks are ignored.
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.deepspeed_state import Overflow, State, event, parsed, rank_of, wall_of
from loganalyze_parsers.numbers import NUMBER, number
from loganalyze_parsers.tqdm_bar import find_bars

_OVERFLOW = lazy.pattern(
    r"(?:OVERFLOW!(?: Rank (?P<rank>-?\d{1,6}))? Skipping step\.|"
    r"Overflow detected\. Skipping step\.|fp16 dynamic loss scale overflow! Skipping step\.)"
    rf"(?: Attempted loss scale: (?P<old>{NUMBER}), (?:reducing to (?P<new>{NUMBER})"
    r"|but hysteresis is (?P<hysteresis>\d+)))?"
)
_ITERATION = lazy.pattern(r"Grad overflow on iteration:? (\d{1,15})")
_REDUCING = lazy.pattern(
    rf"Reducing dynamic loss scale from (?P<old>{NUMBER}) to (?P<new>{NUMBER})"
)
_GROWING = lazy.pattern(
    rf"Increasing dynamic loss scale from (?P<old>{NUMBER}) to (?P<new>{NUMBER})"
)
_COPY = "overflow told by every rank"
_ENGINES = 2  # DeepSpeed-Chat trains an actor and a critic
_ONE_STEP_S = 1.0  # without an iteration number, the same words within a second are one step
#: Words of the scaler that carry no number of their own.
_TALK = (
    "No Grad overflow for", "dynamic loss scale", "Restoring hysteresis",
    "Consecutive hysteresis",
)  # fmt: skip


def take_scale(line: Line, state: State) -> Taken | None:
    """Overflow events, growth notes, and the scaler's other words."""
    text = line.text
    match = _OVERFLOW.search(text)
    if match is not None:
        return _overflow(line, match, state)
    match = _REDUCING.search(text)
    if match is not None:
        return _fused(line, (parsed(match["old"]), parsed(match["new"])), state)
    match = _ITERATION.search(text)
    if match is not None:
        state.overflow_iteration = int(match[1])
        return Taken(ignored=_COPY)
    match = _GROWING.search(text)
    if match is not None:
        return _growth(line, match, state)
    return Taken(ignored="loss scaler talk") if any(word in text for word in _TALK) else None


def _overflow(line: Line, match: re.Match[str], state: State) -> Taken:
    old, new = number(match["old"] or ""), number(match["new"] or "")
    if match["rank"] is None and old is not None and new is not None:
        return _fused(line, (old, new), state)
    rank = rank_of(line, line.text) if match["rank"] is None else int(match["rank"])
    if state.overflow_rank is None:
        state.overflow_rank = rank
    if rank != state.overflow_rank:
        return Taken(ignored=_COPY)
    if new is None and match["hysteresis"] is not None:
        new = old  # the step is skipped, the scale stays
    bars = find_bars(line.text[: match.start()])
    step = bars[-1].done if bars else state.step
    if state.chat:  # told while the generation batch after the last row is trained on
        step = 0 if state.chat_step is None else state.chat_step + 1
    detail: dict[str, float] = {}
    if old is not None and new is not None:
        engine = _engine(state, old, new, step) if state.chat else 0
        suffix = f"_engine{engine}" if engine else ""
        detail = {f"old_scale{suffix}": old, f"new_scale{suffix}": new}
    if match["hysteresis"] is not None:
        detail["hysteresis"] = parsed(match["hysteresis"])
    return Taken(events=[event(line, "overflow", step, **detail)])


def _engine(state: State, old: float, new: float, step: int | None) -> int:
    """Which engine's scaler speaks (0 the actor's): the one that stood at `old`.

    One that has spoken at this step is out; a scaler may have grown since, never shrunk.
    """
    free = [k for k, (_, spoken) in enumerate(state.scalers) if spoken != step]
    fits = [k for k in free if state.scalers[k][0] <= old]
    if fits:
        engine = max(fits, key=lambda k: (state.scalers[k][0], -k))
    elif len(state.scalers) < _ENGINES:
        engine = len(state.scalers)
        state.scalers.append((old, None))
    else:
        engine = free[0] if free else 0
    state.scalers[engine] = (new, step)
    return engine


def _fused(line: Line, scales: tuple[float, float], state: State) -> Taken:
    """The fused optimizer: every rank says it, with the iteration on a line before."""
    iteration = state.overflow_iteration
    step = state.step if iteration is None else iteration
    wall_s = wall_of(line, len(line.text))
    told = Overflow(step, scales, wall_s)
    if state.overflow_told is not None and _same(state.overflow_told, told, iteration):
        return Taken(ignored=_COPY)
    state.overflow_told = told
    old, new = scales
    return Taken(events=[event(line, "overflow", step, old_scale=old, new_scale=new)])


def _same(before: Overflow, now: Overflow, iteration: int | None) -> bool:
    """Whether two messages tell of one skipped step."""
    if (before.step, before.scales) != (now.step, now.scales):
        return False
    if iteration is not None or before.wall_s is None or now.wall_s is None:
        return True
    return now.wall_s - before.wall_s < _ONE_STEP_S


def _growth(line: Line, match: re.Match[str], state: State) -> Taken:
    key = (state.step, parsed(match["old"]), parsed(match["new"]))
    if key == state.growth_seen:
        return Taken(ignored="loss scaler talk")
    state.growth_seen = key
    detail = {"old_scale": key[1], "new_scale": key[2]}
    return Taken(events=[event(line, "note", state.step, **detail)])
