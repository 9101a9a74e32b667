"""Batches of any shape: how many samples, some of them, one hash each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from loganalyze.replay.state import digest


def tensors_of(batch: Any) -> list[Tensor]:
    """All tensors of a nested batch, in order."""
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for item in batch.values() for tensor in tensors_of(item)]
    if isinstance(batch, list | tuple):
        return [tensor for item in batch for tensor in tensors_of(item)]
    return []


def sample_count(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor that has one; 0 if none has."""
    return next((tensor.shape[0] for tensor in tensors_of(batch) if tensor.ndim), 0)


def select(batch: Any, indices: Sequence[int]) -> Any:
    """Samples of a batch: the rows of every tensor whose first dimension counts samples.

    Where a transformers batch says how many tokens its loss is divided by, those left out count
    no more.
    """
    made = _select(batch, list(indices), sample_count(batch))
    if isinstance(made, dict) and "num_items_in_batch" in made and "labels" in made:
        left = (made["labels"] != -100).sum() / (batch["labels"] != -100).sum().clamp(min=1)
        made["num_items_in_batch"] = batch["num_items_in_batch"] * left
    return made


def _select(batch: Any, indices: list[int], count: int) -> Any:
    if isinstance(batch, Tensor):
        return batch[indices] if batch.ndim and batch.shape[0] == count else batch
    if isinstance(batch, Mapping):
        return {key: _select(item, indices, count) for key, item in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_select(item, indices, count) for item in batch)
    return batch


def sample_hashes(batch: Any) -> tuple[str, ...]:
    """A digest for each sample: the same content has the same one, wherever it stands."""
    count = sample_count(batch)
    rows = [t.detach().cpu() for t in tensors_of(batch) if t.ndim and t.shape[0] == count]
    return tuple("".join(digest(row[i]) for row in rows)[:16] for i in range(count))
