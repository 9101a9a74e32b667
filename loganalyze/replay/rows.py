"""A dataset file as the batches of a Trainer's steps: JSON lines, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loganalyze.errors import UnreadableInput, UsageError
from loganalyze.replay.recipe import Recorded

_IGNORED = -100
_PADDED: Mapping[str, int] = {"input_ids": 0, "attention_mask": 0, "labels": _IGNORED}


#: How many labels a loss is divided by; None: the model takes its own mean.
Counting = Callable[[Tensor], int] | None


def steps(
    path: Path, wanted: range, size: int, accumulation: int, counting: Counting
) -> Iterator[Recorded]:
    """The rows of the wanted steps, `size` to a micro-batch.

    Rows are samples in the order in which they were trained on, or carry their `step`. Each has
    input_ids, and labels (else the input_ids), attention_mask and id where they matter.
    """
    table = _read(path)
    numbered = bool(table) and "step" in table[0]
    for step in wanted:
        if numbered:
            chosen = [row for row in table if row["step"] == step]
        else:
            first = (step - 1) * size * accumulation
            chosen = table[first : first + size * accumulation]
        if not chosen:
            return
        parts = [chosen[i : i + size] for i in range(0, len(chosen), size)]
        yield Recorded(
            step=step, micro_batches=_batches(parts, path, counting),
            sample_ids=tuple(str(row.get("id", i)) for i, row in enumerate(chosen)), exact=False,
        )  # fmt: skip


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".parquet":
            import polars as pl

            return pl.read_parquet(path).to_dicts()
        lines = path.read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise UnreadableInput(f"{path}: can't be read as rows ({error})",
                              hint="JSON lines or Parquet with input_ids") from error  # fmt: skip


def _batches(
    parts: Sequence[Sequence[Mapping[str, Any]]], path: Path, counting: Counting
) -> tuple[Any, ...]:
    """Each part as tensors, with the count of tokens that the loss of all parts is divided by."""
    made = [_collated(part, path) for part in parts]
    if counting is None:
        return tuple(made)
    counted = sum(counting(batch["labels"]) for batch in made)
    return tuple({**batch, "num_items_in_batch": torch.tensor(counted)} for batch in made)


def _collated(part: Sequence[Mapping[str, Any]], path: Path) -> dict[str, Tensor]:
    if any("input_ids" not in row for row in part):
        raise UsageError(f"{path}: has rows without input_ids", hint="tokenize the data first")
    width = max(len(row["input_ids"]) for row in part)
    keys = [key for key in _PADDED if key in part[0]]
    if any(len(row["input_ids"]) < width for row in part) and "attention_mask" not in keys:
        keys.append("attention_mask")
    made = {}
    for key in {*keys, "labels"}:
        made[key] = torch.tensor([_padded(row, key, width) for row in part])
    return made


def _padded(row: Mapping[str, Any], key: str, width: int) -> list[int]:
    ids = row["input_ids"]
    default = [1] * len(ids) if key == "attention_mask" else ids
    values = row.get(key, default)
    return [*values, *[_PADDED[key]] * (width - len(values))]
