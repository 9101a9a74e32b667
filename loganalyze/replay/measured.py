"""What the instruments saw of one step: plain numbers, ready for JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median

from msgspec import Struct, field

from loganalyze.config import load_data

Numbers = Mapping[str, float]
_DIGITS = re.compile(r"\d+")


class Layer(Struct, frozen=True, kw_only=True):
    """A module whose output was seen, in the order in which the forward pass finished it.

    activation, output_gradient: stats.summary of its output and of the loss's gradient there.
    attention: entropy (nats) and largest logit, mean and extreme over heads; head_entropy and
    head_logit: of each head. cost: forward_seconds, backward_seconds (layers inside included),
    output_bytes, kept_bytes (kept for backward), parameter_bytes; what isn't known is left out.
    """

    name: str
    kind: str
    group: str
    order: int
    activation: Numbers
    output_gradient: Numbers = field(default_factory=dict)
    attention: Numbers = field(default_factory=dict)
    head_entropy: tuple[float, ...] = ()
    head_logit: tuple[float, ...] = ()
    cost: Numbers = field(default_factory=dict)


class Parameter(Struct, frozen=True, kw_only=True):
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
    format: str = ""  # bfloat16, float32...


class Samples(Struct, frozen=True, kw_only=True):
    """Loss per sample (mean over its counted tokens) and per token position, in nats."""

    losses: tuple[float, ...]
    positions: tuple[float, ...] = ()


class Embedding(Struct, frozen=True, kw_only=True):
    """An embedding table; numbers: see embeddings.told."""

    name: str
    numbers: Numbers


class Measured(Struct, frozen=True, kw_only=True):
    """All statistics of one step."""

    layers: tuple[Layer, ...]
    parameters: tuple[Parameter, ...]
    samples: Samples | None
    embeddings: tuple[Embedding, ...] = ()


@cache
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


def gradient_norms(parameters: tuple[Parameter, ...]) -> dict[str, float]:
    """Mean, median, p99 and largest gradient norm (L2) of the parameters, and largest over median.

    Empty without gradients; concentration is NaN where the median is 0.
    """
    norms = sorted(p.gradient["l2"] for p in parameters if p.gradient)
    if not norms:
        return {}
    middle = median(norms)
    return {
        "mean": sum(norms) / len(norms), "median": middle, "p99": quantile(norms, 0.99),
        "max": norms[-1], "concentration": norms[-1] / middle if middle > 0 else math.nan,
    }  # fmt: skip


def sample_spread(losses: tuple[float, ...]) -> dict[str, float]:
    """p50, p95, their ratio, and the share of the whole loss on the hardest 5 %; finite ones only.

    Empty without samples. The ratio of seed C: how unequal the difficulty of samples is.
    """
    finite = sorted(loss for loss in losses if math.isfinite(loss))
    if not finite:
        return {}
    middle, high = quantile(finite, 0.5), quantile(finite, 0.95)
    share = hard_share(tuple(finite), 0.05)
    return {
        "p50": middle, "p95": high, "ratio": high / middle if middle > 0 else math.nan,
        "hard_share": share if share is not None else math.nan, "count": float(len(losses)),
        "nonfinite": float(len(losses) - len(finite)),
    }  # fmt: skip


def quantile(ordered: Sequence[float], q: float) -> float:
    """A quantile of sorted values, linear between neighbours."""
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def hard_share(losses: tuple[float, ...], share: float) -> float | None:
    """The part of the whole loss that the hardest `share` of samples carries (at least one)."""
    total = sum(losses)
    if not losses or not total > 0:
        return None
    count = max(1, round(share * len(losses)))
    return sum(sorted(losses)[-count:]) / total
