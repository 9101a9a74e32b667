"""Plain files for nested data: tensors in safetensors, the structure in JSON, never a pickle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from loganalyze.errors import StoreError

_TENSOR, _TUPLE, _NUMBER = "$tensor", "$tuple", "$number"


class NotPlain(TypeError):
    """A value that is no tensor, number, text or container of these."""


def pack(value: Any, name: str, tensors: MutableMapping[str, Tensor]) -> Any:
    """The structure of a nested value as JSON; its tensors go into `tensors` under `name`/...

    Raises NotPlain for anything else than tensors, arrays, numbers, texts and containers.
    """
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        return {str(k): pack(item, f"{name}/{k}", tensors) for k, item in value.items()}
    if isinstance(value, list | tuple):
        items = [pack(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, float) and not math.isfinite(value):
        return {_NUMBER: repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__array__"):
        return pack(torch.as_tensor(value), name, tensors)
    raise NotPlain(f"{name} is a {type(value).__name__}")


def unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The nested value that `pack` took apart."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, Mapping):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(unpack(item, tensors) for item in value[_TUPLE])
    if _NUMBER in value:
        return float(value[_NUMBER])
    return {key: unpack(item, tensors) for key, item in value.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file; its tensors must not share memory (pack copies them)."""
    save_file(dict(tensors), str(path))


def read_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """Reads a safetensors file; StoreError names it where it is missing or damaged."""
    try:
        return load_file(str(path), device=device)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path}: is no readable safetensors file ({error})") from error


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (no NaN: pack replaces it)."""
    path.write_text(json.dumps(value, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def read_json(path: Path) -> Any:
    """Reads a JSON file; StoreError names it where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise StoreError(f"{path}: not valid JSON: {error}") from error
