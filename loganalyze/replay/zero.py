"""DeepSpeed ZeRO checkpoint folders as one fp32 state dict, joined as zero_to_fp32.py does.

Shards are pickles with objects of DeepSpeed's, so they are only read where they are trusted;
DeepSpeed itself isn't needed: classes that aren't installed become empty stand-ins.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from loganalyze.errors import StoreError, UsageError

_OPTIM, _MODEL = "*_optim_states.pt", "*_model_states.pt"
Shapes = Mapping[str, Sequence[int]]


def holds_zero(path: Path) -> bool:
    """Whether a folder (or the tag folder that its `latest` names) holds ZeRO shards."""
    return any(_tagged(path).glob(_OPTIM))


def load(path: Path, *, trust: bool) -> dict[str, Tensor]:
    """Every parameter in fp32 and every buffer by name, on the CPU.

    Raises UsageError where the folder isn't trusted or is of a model split by tensor parallelism,
    StoreError where shards are missing or don't add up.
    """
    folder = _tagged(path)
    if not trust:
        raise UsageError(
            f"{folder}: refused, DeepSpeed's shards are pickles",
            hint="--trust-checkpoint loads them all the same, do so only if you wrote them; or run "
                 "the folder's own zero_to_fp32.py and name the file that it writes",
        )  # fmt: skip
    if len({file.name.partition("mp_rank_")[2][:2] for file in folder.glob(_OPTIM)}) > 1:
        raise UsageError(f"{folder}: is split by tensor parallelism",
                         hint="convert it to a universal checkpoint first")  # fmt: skip
    optim = [_read(file)["optimizer_state_dict"] for file in sorted(folder.glob(_OPTIM), key=_rank)]
    models = [_read(file) for file in sorted(folder.glob(_MODEL), key=_rank)]
    if not models:
        raise StoreError(f"{folder}: has no *_model_states.pt")
    try:
        return _joined(folder, optim, models)
    except (KeyError, TypeError, IndexError, RuntimeError) as error:
        raise StoreError(f"{folder}: ZeRO shards of a form not known ({error!r})") from error


def _joined(folder: Path, optim: Sequence[Any], models: Sequence[Any]) -> dict[str, Tensor]:
    head, stage, world = models[0], int(optim[0]["zero_stage"]), optim[0]["partition_count"]
    world = max(world) if isinstance(world, list) else int(world)
    if world != len(optim):
        raise StoreError(f"{folder}: holds {len(optim)} of {world} *_optim_states.pt")
    made = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in head["module"].items() if name in head["buffer_names"]
    }  # fmt: skip
    made |= _frozen(models, stage)
    if stage <= 2:
        for index, shapes in enumerate(head["param_shapes"]):
            flat = torch.cat([shard["single_partition_of_fp32_groups"][index] for shard in optim])
            gaps = (optim[0].get("param_alignment_paddings") or {index: [0] * len(shapes)})[index]
            made |= _cut(flat, shapes, gaps)
    else:
        shapes = {name: s for group in head["param_shapes"] for name, s in group.items()}
        flats = [torch.cat(list(shard["fp32_flat_groups"])) for shard in optim]
        made |= _zipped(flats, shapes)
    for twin, name in head.get("shared_params", {}).items():
        if name in made:
            made[twin] = made[name]
    return made


def _cut(flat: Tensor, shapes: Shapes, gaps: Sequence[int]) -> dict[str, Tensor]:
    """ZeRO 1 and 2: parameters stand one after another in all shards put together."""
    made, place = {}, 0
    for (name, shape), gap in zip(shapes.items(), gaps, strict=True):
        size = math.prod(shape)
        made[name] = flat.narrow(0, place, size).reshape(tuple(shape)).clone()
        place += size + gap
    return made


def _zipped(flats: Sequence[Tensor], shapes: Shapes) -> dict[str, Tensor]:
    """ZeRO 3: each parameter is split over all shards, its last part padded."""
    made, place = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        part = -(-size // len(flats))
        whole = torch.cat([flat.narrow(0, place, part) for flat in flats])
        made[name] = whole[:size].reshape(tuple(shape)).clone()
        place += part
    return made


def _frozen(models: Sequence[Any], stage: int) -> dict[str, Tensor]:
    """Parameters that weren't trained: whole in ZeRO 1 and 2, split in 3."""
    shapes = models[0].get("frozen_param_shapes") or {}
    parts = [model.get("frozen_param_fragments") or {} for model in models]
    if stage <= 2:
        return {name: parts[0][name].float() for name in shapes}
    return {
        name: torch.cat([part[name].reshape(-1) for part in parts])[: math.prod(shape)]
        .reshape(tuple(shape)).float()
        for name, shape in shapes.items()
    }  # fmt: skip


def _tagged(path: Path) -> Path:
    latest = path / "latest"
    return path / latest.read_text("utf-8").strip() if latest.is_file() else path


def _rank(file: Path) -> tuple[int, str]:
    """Shards in the order of their data-parallel rank, not of their names."""
    number = file.name.partition("zero_pp_rank_")[2].partition("_")[0]
    return (int(number) if number.isdigit() else 0, file.name)


def _read(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=False, pickle_module=_LENIENT)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError) as error:
        raise StoreError(f"{file}: is no readable checkpoint ({error})") from error


class _Absent:
    """In place of an object whose class isn't installed; a member of an enum keeps its number.

    The stage is one of those (ZeroStageEnum).
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self._given = given

    def __int__(self) -> int:
        return int(self._given[0])

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return _Absent


_LENIENT = SimpleNamespace(
    __name__="pickle", Unpickler=_Unpickler, load=pickle.load, loads=pickle.loads
)
