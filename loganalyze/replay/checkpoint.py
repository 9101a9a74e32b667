"""Reads training checkpoints without running anything that is in them."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from loganalyze.errors import StoreError, UsageError
from loganalyze.replay import storage, zero
from loganalyze.replay.state import to_device

#: Where trainers put the two parts, in order of trial.
MODEL_KEYS = ("model", "state_dict", "model_state_dict", "module")
#: An optimizer's state by parameter names: {"state": ..., "settings": ...}.
NAMED = "named_optimizer"
OPTIMIZER_KEYS = ("optimizer", "optimizer_state_dict", "optim")
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def load(path: Path, device: str, *, trust: bool, arrays: bool = False) -> dict[str, Any]:
    """A checkpoint's dict. Pickles are refused unless trusted: UsageError says which and why.

    arrays: NumPy arrays are let through beside tensors. A ZeRO folder gives what `zero.load` does,
    under the first of MODEL_KEYS and NAMED.
    """
    if path.is_dir() and zero.holds_zero(path):
        held = to_device(zero.load(path, trust=trust), device)
        return {MODEL_KEYS[0]: held.pop("model"), NAMED: held}
    file = _file(path, trust)
    if file.suffix == ".safetensors":
        return dict(storage.read_tensors(file, device))
    with torch.serialization.safe_globals(_array_parts() if arrays else []):
        loaded = _torch(file, device, trust)
    if not isinstance(loaded, Mapping):
        raise StoreError(f"{file}: holds a {type(loaded).__name__}, not a state dict")
    return dict(loaded)


def part(held: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The first of some keys whose value is a mapping; None if there is none."""
    return next((held[key] for key in keys if isinstance(held.get(key), Mapping)), None)


def _torch(file: Path, device: str, trust: bool) -> Any:
    try:
        return torch.load(file, map_location=device, weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{file}: refused, it holds more than tensors, and loading it would run its code",
            hint="--trust-checkpoint loads it all the same; do so only if you wrote it",
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise StoreError(f"{file}: is no readable checkpoint ({error})") from error


def _array_parts() -> list[Any]:
    """What NumPy arrays of numbers are pickled as: it builds arrays and runs nothing else."""
    import numpy as np

    rebuild = np.empty(0).__reduce__()[0]
    return [rebuild, np.ndarray, np.dtype, *{type(np.dtype(kind)) for kind in "LIlif"}]


def _file(path: Path, trust: bool) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise UsageError(f"{path}: no such checkpoint")
    if (path / ".metadata").is_file():
        return _consolidated(path, trust)
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if len(files) != 1:
        found = ", ".join(file.name for file in files[:6]) or "none"
        raise UsageError(f"{path}: expected one checkpoint file, found {found}",
                         hint="name the file itself")  # fmt: skip
    return files[0]


def _consolidated(path: Path, trust: bool) -> Path:
    """A torch.distributed.checkpoint folder as one file; its metadata is a pickle."""
    if not trust:
        raise UsageError(
            f"{path}: refused, the metadata of a distributed checkpoint is a pickle",
            hint="--trust-checkpoint loads it all the same; do so only if you wrote it",
        )
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    target = Path(tempfile.mkdtemp(prefix="loganalyze-")) / "checkpoint.pt"
    dcp_to_torch_save(path, target)
    return target
