"""DeepSpeed ZeRO checkpoint folders as one fp32 state dict, joined as zero_to_fp32.py does.

What the optimizer keeps of every value (exp_avg, exp_avg_sq, momentum) lies in flat parts like the
weights, and is joined the same way. Shards are pickles with objects of DeepSpeed's, so they are
only read where they are trusted; DeepSpeed itself isn't needed: classes that aren't installed
become empty stand-ins.
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

#: Of the optimizer's groups: what a builder's optimizer takes over.
_SETTINGS = ("lr", "betas", "eps", "weight_decay", "momentum")
_OPTIM, _MODEL = "*_optim_states.pt", "*_model_states.pt"
Shapes = Mapping[str, Sequence[int]]


def holds_zero(path: Path) -> bool:
    """Whether a folder (or the tag folder that its `latest` names) holds ZeRO shards."""
    return any(_tagged(path).glob(_OPTIM))


def load(path: Path, *, trust: bool) -> dict[str, dict[str, Any]]:
    """model: every parameter in fp32 and every buffer by name, on the CPU; state and settings: what
    the optimizer kept of a parameter and its group's learning rate, betas and so on, by name.

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


def _joined(folder: Path, optim: Sequence[Any], models: Sequence[Any]) -> dict[str, dict[str, Any]]:
    head, stage, world = models[0], int(optim[0]["zero_stage"]), optim[0]["partition_count"]
    world = max(world) if isinstance(world, list) else int(world)
    if world != len(optim):
        raise StoreError(f"{folder}: holds {len(optim)} of {world} *_optim_states.pt")
    made = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in head["module"].items() if name in head["buffer_names"]
    }  # fmt: skip
    made |= _frozen(models, stage)
    weights = "single_partition_of_fp32_groups" if stage <= 2 else "fp32_flat_groups"
    made |= _whole([shard[weights] for shard in optim], head, optim[0], stage)
    state, settings = _optimizer(optim, head, stage)
    for twin, name in head.get("shared_params", {}).items():
        for table in (made, state, settings):
            if name in table:
                table[twin] = table[name]
    return {"model": made, "state": state, "settings": settings}


def _whole(
    parts: Sequence[Sequence[Tensor]], head: Any, shard: Any, stage: int
) -> dict[str, Tensor]:
    """Flat parts, a tensor for each group of each rank, as one tensor for each parameter."""
    if stage > 2:
        shapes = {name: s for group in head["param_shapes"] for name, s in group.items()}
        return _zipped([torch.cat(list(rank)) for rank in parts], shapes)
    made: dict[str, Tensor] = {}
    for index, shapes in enumerate(head["param_shapes"]):
        flat = torch.cat([rank[index] for rank in parts])
        gaps = (shard.get("param_alignment_paddings") or {index: [0] * len(shapes)})[index]
        made |= _cut(flat, shapes, gaps)
    return made


def _optimizer(
    optim: Sequence[Any], head: Any, stage: int
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """State and settings by parameter; both empty where the shards hold no state."""
    ranks = [_entries(shard, stage) for shard in optim]
    if not all(ranks):
        return {}, {}
    state: dict[str, dict[str, Any]] = {}
    flat = [key for key, value in ranks[0][0].items() if isinstance(value, Tensor) and value.ndim]
    for key in flat:
        parts = [[entry[key] for entry in rank] for rank in ranks]
        for name, tensor in _whole(parts, head, optim[0], stage).items():
            state.setdefault(name, {})[key] = tensor
    settings = {}
    groups = _groups(optim[0], stage)
    alike = len(ranks[0]) == len(head["param_shapes"])  # else ZeRO 3 groups them otherwise
    for index, shapes in enumerate(head["param_shapes"]):
        entry = index if alike else 0
        group: Mapping[str, Any] = next((g for g in groups if entry in g["params"]), {})
        step = ranks[0][entry].get("step", group.get("step"))
        for name in shapes:
            settings[name] = {key: group[key] for key in _SETTINGS if key in group}
            if step is not None and name in state:
                state[name]["step"] = torch.tensor(float(step))
    return state, settings


def _entries(shard: Any, stage: int) -> list[Any]:
    """The optimizer's state of each flat group; elastic checkpoints (old ones) hold a list."""
    base = shard.get("base_optimizer_state" if stage <= 2 else "optimizer_state_dict")
    if isinstance(base, Sequence):
        return list(base)
    entries = base["state"] if base else {}
    return [entries[key] for key in sorted(entries)]


def _groups(shard: Any, stage: int) -> list[Any]:
    base = shard.get("base_optimizer_state" if stage <= 2 else "optimizer_state_dict")
    return list(base["param_groups"]) if isinstance(base, Mapping) else []


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
