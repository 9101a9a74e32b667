"""From what the instruments hold on the device to plain numbers: one transfer, then names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from msgspec import Struct, field
from torch import Tensor, nn

from loganalyze.replay import embeddings, stats
from loganalyze.replay.costs import Costs
from loganalyze.replay.measured import Embedding, Layer, Measured, Parameter, Samples, group_of
from loganalyze.replay.taps import Heard, Taps

_Key = tuple[str, str]  # what was measured, name
_Table = Mapping[_Key, dict[str, float]]


class Seen(Struct, kw_only=True):
    """What a probe holds, on the device. embeddings: numbers, Gram matrix and weights by name."""

    modules: Mapping[str, nn.Module]
    taps: Taps
    costs: Costs
    rows: stats.Rows = field(default_factory=stats.Rows)  # their keys are _Key
    order: dict[str, int] = field(default_factory=dict)
    embeddings: dict[str, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)


def read(seen: Seen, model: nn.Module) -> Measured:
    """Everything seen, as numbers."""
    tables = [tensor for item in seen.embeddings.values() for tensor in item[:2]]
    heads = [item for _, item in seen.taps.attention]
    losses = [tensor for item in seen.taps.token_losses for tensor in (item.losses, item.counted)]
    host = iter(to_host([seen.rows.table(), *heads, *tables, *losses]))
    grouped: dict[_Key, list[dict[str, float]]] = {}
    for key, values in zip(seen.rows.keys, next(host).tolist(), strict=True):
        grouped.setdefault(key, []).append(stats.settled(values))
    table = {key: stats.summary(stats.merged(found)) for key, found in grouped.items()}
    attention = _attention([(name, next(host)) for name, _ in seen.taps.attention])
    found = tuple(
        Embedding(name=name, numbers=embeddings.told(next(host), next(host), weight))
        for name, (_, _, weight) in seen.embeddings.items()
    )
    heard = [Heard(next(host), next(host)) for _ in seen.taps.token_losses]
    return Measured(
        layers=tuple(_layer(seen, name, table, attention) for name in seen.order),
        parameters=tuple(
            _parameter(name, parameter, table)
            for name, parameter in model.named_parameters()
            if ("weight", name) in table
        ),
        samples=_samples(heard), embeddings=found,
    )  # fmt: skip


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors as float64 on the host, all in one copy."""
    if not tensors:
        return []
    place = tensors[0].device
    flat = torch.cat([item.detach().to(place).reshape(-1).double() for item in tensors]).cpu()
    parts = torch.split(flat, [item.numel() for item in tensors])
    return [part.reshape(item.shape) for part, item in zip(parts, tensors, strict=True)]


def _layer(seen: Seen, name: str, table: _Table, attention: Mapping[str, Tensor]) -> Layer:
    module = seen.modules[name]
    cost = seen.costs.told(name)
    cost["parameter_bytes"] = float(
        sum(p.numel() * p.element_size() for p in module.parameters())
    )
    heads = attention.get(name)
    return Layer(
        name=name, kind=type(module).__name__, group=group_of(name), order=seen.order[name],
        activation=table.get(("activation", name), {}),
        output_gradient=table.get(("output_gradient", name), {}),
        attention=_heads_summary(heads) if heads is not None else {},
        head_entropy=tuple(heads[:, 0].tolist()) if heads is not None else (),
        head_logit=tuple(heads[:, 1].tolist()) if heads is not None else (), cost=cost,
    )  # fmt: skip


def _attention(heard: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Per layer (heads, [entropy, largest logit]): mean and maximum over a layer's calls."""
    calls: dict[str, list[Tensor]] = {}
    for name, heads in heard:
        calls.setdefault(name, []).append(heads)
    made = {}
    for name, found in calls.items():
        alike = [heads for heads in found if heads.shape == found[0].shape]
        whole = torch.stack(alike)
        made[name] = torch.stack([whole[..., 0].mean(0), whole[..., 1].amax(0)], 1)
    return made


def _heads_summary(heads: Tensor) -> dict[str, float]:
    entropy, logit = heads.unbind(1)
    return {
        "entropy": float(entropy.mean()), "entropy_min": float(entropy.min()),
        "largest_logit": float(logit.max()), "heads": float(len(entropy)),
    }  # fmt: skip


def _parameter(name: str, parameter: nn.Parameter, table: _Table) -> Parameter:
    weight, update = table["weight", name], table.get(("update", name))
    moved = update["l2"] if update else None
    return Parameter(
        name=name, layer=name.rpartition(".")[0], group=group_of(name), weight=weight,
        gradient=table.get(("gradient", name), {}), update_l2=moved,
        update_ratio=moved / weight["l2"] if moved is not None and weight["l2"] > 0 else None,
        format=str(parameter.dtype).removeprefix("torch."),
    )  # fmt: skip


def _samples(heard: Sequence[Heard]) -> Samples | None:
    """Per sample, and per position where all micro-batches are of one length."""
    if not heard:
        return None
    losses = [
        loss for item in heard
        for loss in (item.losses.sum(1) / item.counted.sum(1).clamp(min=1)).tolist()
    ]  # fmt: skip
    positions: list[float] = []
    if len({item.losses.shape[1] for item in heard}) == 1:
        whole = torch.cat([item.losses for item in heard]).sum(0)
        counts = torch.cat([item.counted for item in heard]).sum(0)
        positions = (whole / counts.clamp(min=1)).tolist()
    return Samples(losses=tuple(losses), positions=tuple(positions))
