"""Is it the same step? Recorded values beside replayed ones, the first difference named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import torch
from torch import Tensor, nn

from loganalyze.config import Thresholds
from loganalyze.replay.recipe import Recorded
from loganalyze.replay.result import Equality, LayerSuspect, Match, Reproduced
from loganalyze.replay.runner import Outcome
from loganalyze.replay.state import digest

#: Values of earlier steps that must be bit-equal before the smallest difference tells.
_EXACT_BEFORE = 4


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


def parameters(step: int, after: Mapping[str, Tensor], model: nn.Module) -> list[Match]:
    """The hash of all parameters after the step, where the recorder kept them."""
    own = dict(model.named_parameters())
    if not after or not own.keys() <= after.keys():
        return []
    pairs = [(digest(after[name]), digest(tensor)) for name, tensor in sorted(own.items())]
    theirs, ours = ("".join(side) for side in zip(*pairs, strict=True))
    unequal = [name for name, pair in zip(sorted(own), pairs, strict=True) if pair[0] != pair[1]]
    same: Equality = "equal"
    if unequal:
        near = all(torch.allclose(after[n].cpu(), own[n].detach().cpu(), 1e-3, 1e-6, equal_nan=True)
                   for n in unequal)  # fmt: skip
        same = "close" if near else "differs"
    return [Match(step=step, name="parameters", recorded=_short(theirs), replayed=_short(ours),
                  state=same)]  # fmt: skip


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


def verdict(found: Sequence[Match]) -> tuple[Reproduced, Match | None]:
    """The worst equality of all, and the first value that is not bit-equal.

    Where earlier recorded steps agree and a later one doesn't, the step was not reproduced; where
    the very first doesn't, this is not the same run. What a log printed is rounded: it proves
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
    if len(early) >= _EXACT_BEFORE:  # a stack that was exact until here does not round anew
        return "not_reproduced", first
    differing = next((match for match in found if match.state == "differs"), None)
    if differing is None:
        return "close", first
    near = any(match.step < differing.step for match in found)
    return ("not_reproduced" if near else "not_the_same"), differing


def flipped(
    after: Mapping[str, Tensor], model: nn.Module, rules: Thresholds
) -> Iterable[LayerSuspect]:
    """Parameters that differ from the recorded ones far more than the rest, the farthest first.

    A flipped bit moves one element; a step on other gradients moves all of them alike.
    """
    gaps = {
        name: (after[name].cpu().double() - tensor.detach().cpu().double()).abs().flatten()
        for name, tensor in model.named_parameters()
        if name in after
    }
    if not gaps:
        return
    usual = median(float(gap.nan_to_num(math.inf).median()) for gap in gaps.values()) or 1e-12
    worst = sorted(((float(gap.nan_to_num(math.inf).max()), name) for name, gap in gaps.items()),
                   reverse=True)  # fmt: skip
    for size, name in worst:
        if size > rules.value("replay.single_jump") * usual:
            yield LayerSuspect(
                name=name.rpartition(".")[0], where="state", ratio=size / usual, against="recorded"
            )
