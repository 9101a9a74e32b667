"""Is it the same step? Recorded values beside replayed ones, the first difference named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from loganalyze.config import Thresholds
from loganalyze.replay.recipe import Recorded
from loganalyze.replay.result import Equality, LayerSuspect, Match, Reproduced
from loganalyze.replay.runner import Outcome
from loganalyze.replay.state import digest

#: Values of earlier steps that must be bit-equal before the smallest difference tells.
_EXACT_BEFORE = 4
#: An optimizer of normalised steps moves a weight either way: twice its step, and some more.
_MOVES = 4.0
#: Of a tensor's largest value: rounding along the way is far below it, a flipped high bit above.
_OFF = 1e-4


def matches(data: Recorded, outcome: Outcome, rules: Thresholds) -> list[Match]:
    """Loss and gradient norm of one step, where they were recorded."""
    replayed = {"loss": outcome.loss, "grad_norm": outcome.grad_norm}
    return [
        Match(step=data.step, name=name, recorded=data.values[name], replayed=value,
              state=equality(data.values[name], value, rules))
        for name, value in replayed.items()
        if name in data.values
    ]  # fmt: skip


def logged(step: int, values: Mapping[str, float], outcome: Outcome, rules: Thresholds) \
        -> list[Match]:  # fmt: skip
    """Against what the log printed: rounded, so that it is close at best or equal."""
    replayed = {"loss": outcome.loss, "grad_norm": outcome.grad_norm}
    return [
        Match(step=step, name=f"logged_{name}", recorded=values[name], replayed=value,
              state=equality(values[name], value, rules))
        for name, value in replayed.items()
        if name in values
    ]  # fmt: skip


def parameters(
    step: int, after: Mapping[str, Tensor], before: Mapping[str, Tensor], model: nn.Module
) -> list[Match]:
    """The hash of all parameters after the step, where the recorder kept them.

    Close: no element is farther off than `_MOVES` times what the step moved its tensor at most.
    """
    own = dict(model.named_parameters())
    if not after or not own.keys() <= after.keys():
        return []
    pairs = [(digest(after[name]), digest(tensor)) for name, tensor in sorted(own.items())]
    theirs, ours = ("".join(side) for side in zip(*pairs, strict=True))
    same: Equality = "equal"
    if theirs != ours:
        far = any(worst > _MOVES for worst, _ in _gaps(after, before, model))
        same = "differs" if far else "close"
    return [Match(step=step, name="parameters", recorded=_short(theirs), replayed=_short(ours),
                  state=same)]  # fmt: skip


def weights(step: int, held: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> list[Match]:
    """The hash of all parameters right before the update, where the recorder kept them."""
    names = sorted(held.keys() & before.keys())
    if not names:
        return []
    theirs, ours = ("".join(digest(side[name]) for name in names) for side in (held, before))
    far = any(off > _OFF for off, _ in _changes(held, before))
    same: Equality = "equal" if theirs == ours else "differs" if far else "close"
    return [Match(step=step, name="weights", recorded=_short(theirs), replayed=_short(ours),
                  state=same)]  # fmt: skip


def _changes(held: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> list[tuple[float, str]]:
    """Largest difference of each tensor in units of its largest value, the farthest first."""
    found = []
    for name in held.keys() & before.keys():
        one, two = held[name].cpu().double(), before[name].cpu().double()
        gap = (one - two).abs().nan_to_num(0.0 if _same_holes(one, two) else math.inf, math.inf)
        found.append((float(gap.max()) / max(float(two.abs().nan_to_num(0.0).max()), 1e-12), name))
    return sorted(found, reverse=True)


def _same_holes(one: Tensor, two: Tensor) -> bool:
    return bool((one.isfinite() == two.isfinite()).all())


def _gaps(
    after: Mapping[str, Tensor], before: Mapping[str, Tensor], model: nn.Module
) -> list[tuple[float, str]]:
    """Largest difference from the recorded parameters in units of the step's largest move."""
    found = []
    for name, tensor in model.named_parameters():
        now, then = tensor.detach().cpu().double(), before[name].cpu().double()
        gap = (after[name].cpu().double() - now).abs().nan_to_num(math.inf, math.inf).max()
        move = (now - then).abs().nan_to_num(0.0, 0.0).max()
        found.append((float(gap) / max(float(move), 1e-12), name))
    return sorted(found, reverse=True)


def _short(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode(), digest_size=8).hexdigest()


def equality(recorded: float, replayed: float, rules: Thresholds) -> Equality:
    """Bit-equal (NaN equals NaN), close within `replay.tolerance` (relative), or neither."""
    if recorded == replayed or (math.isnan(recorded) and math.isnan(replayed)):
        return "equal"
    if not (math.isfinite(recorded) and math.isfinite(replayed)):
        return "differs"
    limit = rules.value("replay.tolerance") * max(abs(recorded), abs(replayed))
    return "close" if abs(recorded - replayed) <= limit else "differs"


def verdict(found: Sequence[Match], same_place: bool) -> tuple[Reproduced, Match | None]:
    """The worst equality of all, and the first value that is not bit-equal.

    Where earlier recorded steps agree and a later one doesn't, the step was not reproduced; where
    the very first doesn't, this is not the same run. same_place: the environment is as recorded, so
    that bits must agree. What a log printed is rounded: it proves
    nothing bit for bit.
    """
    printed = [match for match in found if match.name.startswith("logged_")]
    exact = [match for match in found if match not in printed]
    found = exact or printed
    first = next((match for match in found if match.state != "equal"), None)
    if not found:
        return "unrecorded", None
    if first is None:
        return "equal", None
    early = [match for match in found if match.step < first.step]
    if (
        same_place and len(early) >= _EXACT_BEFORE
    ):  # a stack that was exact until here does not round anew
        return "not_reproduced", first
    differing = next((match for match in found if match.state == "differs"), None)
    if differing is None:
        return "close", first
    near = any(match.step < differing.step for match in found)
    return ("not_reproduced" if near else "not_the_same"), differing


def altered(
    held: Mapping[str, Tensor], before: Mapping[str, Tensor]
) -> tuple[LayerSuspect, ...]:
    """Layers whose weights were others than the replay's right before the update."""
    return tuple(
        LayerSuspect(name=name.rpartition(".")[0], where="state", ratio=off, against="recorded")
        for off, name in _changes(held, before)
        if off > _OFF
    )


def flipped(
    after: Mapping[str, Tensor], before: Mapping[str, Tensor], model: nn.Module
) -> tuple[LayerSuspect, ...]:
    """Layers whose weights are off by more than a step can move them, the farthest first."""
    if not after:
        return ()
    return tuple(
        LayerSuspect(name=name.rpartition(".")[0], where="state", ratio=worst, against="recorded")
        for worst, name in _gaps(after, before, model)
        if worst > _MOVES
    )
