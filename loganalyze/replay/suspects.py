"""Ranks layers and samples by how far they are out of range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from loganalyze.config import Thresholds
from loganalyze.replay.measured import Layer, Measured, Numbers, Parameter, role_of
from loganalyze.replay.result import LayerSuspect, SampleSuspect

_TINY = 1e-30
_VANISHED = math.log(1e-4)  # a gradient that shrank this much has stopped


def log_ratio(value: Numbers, other: Numbers) -> float:
    """Logarithm of the ratio of root mean squares; inf where the first holds non-finite values."""
    if not value or not other:
        return 0.0
    if value["nonfinite"] > other["nonfinite"] or not math.isfinite(value["rms"]):
        return math.inf
    one, two = value["rms"], other["rms"]
    if max(one, two) < 1e-12:  # both are zero
        return 0.0
    return math.log(max(one, _TINY) / max(two, _TINY))


def rank_layers(
    seen: Measured, healthy: Sequence[Measured], rules: Thresholds
) -> tuple[LayerSuspect, ...]:
    """Layers out of range: first forward in order, then weights, then gradients from the end.

    The first layer of the forward pass out of its own healthy range starts it all: what comes
    after only passes it on. In the backward pass the order is the other way round.
    """
    limit = math.log(rules.value("replay.layer_ratio"))
    found = [*_forward(seen, healthy, limit), *_weights(seen, healthy, limit)]
    if not found:  # gradients follow whatever went wrong before them
        found = list(_backward(seen, healthy, limit))
    unique: dict[str, LayerSuspect] = {}
    for suspect in found:
        unique.setdefault(suspect.name, suspect)
    return tuple(unique.values())


def _forward(seen: Measured, healthy: Sequence[Measured], limit: float) -> Iterable[LayerSuspect]:
    own = {layer.name: _own(layer, healthy, "activation") for layer in seen.layers}
    peers = _peer_ratios({layer.name: layer.activation for layer in seen.layers})
    for layer in seen.layers:
        if abs(own[layer.name]) > limit:
            yield _suspect(layer.name, "forward", own[layer.name], "healthy", layer.group)
        elif not healthy and abs(peers.get(layer.name, 0.0)) > limit:
            yield _suspect(layer.name, "forward", peers[layer.name], "peers", layer.group)


def _own(layer: Layer, healthy: Sequence[Measured], what: str) -> float:
    """The largest change against the healthy steps' own layer."""
    ratios = [
        log_ratio(getattr(layer, what), getattr(other, what))
        for measured in healthy
        for other in measured.layers
        if other.name == layer.name
    ]
    return max(ratios, key=abs, default=0.0)


def _peer_ratios(values: Mapping[str, Numbers]) -> dict[str, float]:
    """Against the median of the layers of the same role; only with three of them or more."""
    roles: dict[str, list[str]] = {}
    for name in values:
        roles.setdefault(role_of(name), []).append(name)
    found = {}
    for names in roles.values():
        if len(names) < 3:
            continue
        sizes = [values[name]["rms"] for name in names if values[name]]
        middle = median(sizes) if sizes else 0.0
        for name in names:
            if values[name]:
                bad = math.inf if values[name]["nonfinite"] else 0.0
                found[name] = bad or math.log(max(values[name]["rms"], _TINY) / max(middle, _TINY))
    return found


def _weights(seen: Measured, healthy: Sequence[Measured], limit: float) -> Iterable[LayerSuspect]:
    """Parameters whose weights moved, or that update far more than those of the same role."""
    found = []
    peers = _peer_ratios({p.name: p.weight for p in seen.parameters})
    for parameter in seen.parameters:
        own = _parameter_own(parameter, healthy, "weight")
        if abs(own) > limit:
            found.append(_suspect(parameter.layer, "weights", own, "healthy", parameter.group))
        elif _matrix(parameter) and abs(peers.get(parameter.name, 0.0)) > limit:
            ratio = peers[parameter.name]
            found.append(_suspect(parameter.layer, "weights", ratio, "peers", parameter.group))
    return sorted(found, key=lambda s: -abs(math.log(max(s.ratio, _TINY))))


def _matrix(parameter: Parameter) -> bool:
    """Whether its size tells anything: biases and gains start at 0 or 1 and scatter."""
    return parameter.name.endswith("weight") and parameter.group != "norm"


def _parameter_own(parameter: Parameter, healthy: Sequence[Measured], what: str) -> float:
    ratios = [
        log_ratio(getattr(parameter, what), getattr(other, what))
        for measured in healthy
        for other in measured.parameters
        if other.name == parameter.name and other.weight["rms"] > 1e-4
    ]
    return max(ratios, key=abs, default=0.0)


def _backward(seen: Measured, healthy: Sequence[Measured], limit: float) -> Iterable[LayerSuspect]:
    """Gradients out of range, the end of the model first; what all layers share is taken off."""
    by_layer: dict[str, tuple[float, str]] = {}
    for parameter in seen.parameters:
        ratio = _parameter_own(parameter, healthy, "gradient")
        if abs(ratio) >= abs(by_layer.get(parameter.layer, (0.0, ""))[0]):
            by_layer[parameter.layer] = (ratio, parameter.group)
    shared = _shared([ratio for ratio, _ in by_layer.values()])
    order = {layer.name: layer.order for layer in seen.layers}
    names = sorted(by_layer, key=lambda name: -order.get(name, -1))
    for name in names:
        ratio, group = by_layer[name]
        grown = ratio - shared if math.isfinite(ratio) else ratio
        if grown > limit or ratio < _VANISHED:
            yield _suspect(name, "backward", ratio, "healthy", group)


def _shared(ratios: Sequence[float]) -> float:
    """What nearly every layer's gradient grew by: a batch makes all of them grow."""
    finite = sorted(r for r in ratios if math.isfinite(r))
    return max(0.0, finite[len(finite) // 10]) if finite else 0.0


def _suspect(name: str, where: str, ratio: float, against: str, group: str) -> LayerSuspect:
    size = math.exp(min(ratio, 700.0)) if math.isfinite(ratio) else math.inf
    return LayerSuspect(name=name, where=where, ratio=size, against=against, group=group)


def rank_samples(
    losses: Sequence[float], ids: Sequence[str], hashes: Sequence[str], rules: Thresholds
) -> tuple[SampleSuspect, ...]:
    """All samples, the worst first; suspect: at most `sample_most` of them, over `sample_z`."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    if not losses or not finite:
        return ()
    middle = median(finite)
    deviation = 1.4826 * median(abs(loss - middle) for loss in finite)
    floor = max(deviation, 0.03 * abs(middle), 1e-6)
    total = sum(finite)
    most = max(1, int(rules.value("replay.sample_most") * len(losses)))
    order = sorted(range(len(losses)), key=lambda i: -_finite_or_inf(losses[i]))
    return tuple(
        SampleSuspect(
            index=i, id=ids[i] if i < len(ids) else str(i), loss=losses[i],
            z=(_finite_or_inf(losses[i]) - middle) / floor,
            share=losses[i] / total if math.isfinite(losses[i]) and total > 0 else None,
            hash=hashes[i] if i < len(hashes) else "",
            suspect=place < most
            and (_finite_or_inf(losses[i]) - middle) / floor > rules.value("replay.sample_z"),
        )
        for place, i in enumerate(order)
    )  # fmt: skip


def _finite_or_inf(value: float) -> float:
    return value if math.isfinite(value) else math.inf
