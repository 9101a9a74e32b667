"""What the instruments saw of one step: plain numbers, ready for JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from loganalyze.config import load_data

Numbers = Mapping[str, float]
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A module whose output was seen, in the order in which the forward pass finished it.

    activation, output_gradient: stats.summary of its output and of the loss's gradient there.
    attention: entropy (nats) and largest logit, mean and extreme over heads.
    """

    name: str
    kind: str
    group: str
    order: int
    activation: Numbers
    output_gradient: Numbers = field(default_factory=dict)
    attention: Numbers = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: its weights before the step, its gradient before clipping, its update.

    update_ratio: L2 of the update over L2 of the weights.
    """

    name: str
    layer: str
    group: str
    weight: Numbers
    gradient: Numbers = field(default_factory=dict)
    update_l2: float | None = None
    update_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Loss per sample (mean over its counted tokens) and per token position, in nats."""

    losses: tuple[float, ...]
    positions: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All statistics of one step."""

    layers: tuple[Layer, ...]
    parameters: tuple[Parameter, ...]
    samples: Samples | None


def group_of(name: str) -> str:
    """embedding, attention, ffn, norm, output or other, by a dotted name.

    The words nearest to the parameter decide: `attn.norm.weight` is a norm.
    """
    for piece in reversed(name.lower().split(".")):
        whole = (piece, piece.rstrip("0123456789"))
        for parts in (whole, piece.split("_"), (piece,)):
            for group, words in load_data("replay/groups.toml").items():
                loose = parts == (piece,)
                if any(w in parts or (loose and len(w) > 3 and w in piece) for w in words):
                    return str(group)
    return "other"


def role_of(name: str) -> str:
    """A name without its numbers: the same for the same layer of every block."""
    return _DIGITS.sub("*", name)


def groups(parameters: tuple[Parameter, ...]) -> dict[str, dict[str, float]]:
    """Mean, smallest and largest gradient norm (L2) of each group of parameters."""
    found: dict[str, list[float]] = {}
    for parameter in parameters:
        if parameter.gradient:
            found.setdefault(parameter.group, []).append(parameter.gradient["l2"])
    return {
        group: {"mean": sum(norms) / len(norms), "min": min(norms), "max": max(norms),
                "count": float(len(norms))}
        for group, norms in found.items()
    }  # fmt: skip


def concentration(parameters: tuple[Parameter, ...]) -> float | None:
    """Largest gradient norm of a parameter over the median one; None without gradients."""
    norms = [p.gradient["l2"] for p in parameters if p.gradient]
    middle = median(norms) if norms else 0.0
    return max(norms) / middle if middle > 0 else None


def hard_share(losses: tuple[float, ...], share: float) -> float | None:
    """The part of the whole loss that the hardest `share` of samples carries (at least one)."""
    total = sum(losses)
    if not losses or not total > 0:
        return None
    count = max(1, round(share * len(losses)))
    return sum(sorted(losses)[-count:]) / total
