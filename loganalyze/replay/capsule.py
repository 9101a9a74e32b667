"""A capsule: the folder a recorder leaves behind. safetensors, JSON and text, never a pickle.

capsule.json (schema loganalyze.capsule/1), state.safetensors (model and optimizer before the first
recorded step), batches.safetensors, after.safetensors (parameters right after the suspect step,
where they were at hand), held.safetensors (right before its update, where its gradients weren't
finite), tail.txt (the end of the training log, where it was named).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from torch import Tensor

from loganalyze.errors import StoreError, UsageError
from loganalyze.masking import mask
from loganalyze.replay import storage
from loganalyze.replay.recipe import Recorded
from loganalyze.replay.state import Snapshot

SCHEMA = "loganalyze.capsule/1"
_OPTIONAL: dict[str, Any] = {"loss_scale": None, "seed": None, "rng": None}


class Capsule(Struct, frozen=True, kw_only=True):
    """What a recorder saw up to a suspect step (the last of `steps`)."""

    reason: str  # nonfinite, spike, grad_spike, exception or asked
    step: int
    snapshot: Snapshot  # the state before steps[0]
    steps: tuple[Recorded, ...]
    precision: str
    clip: float | None
    builder: str  # path.py:function that builds the model again, or ""
    history: tuple[float, ...] = ()
    text: str = ""  # of the exception
    log_tail: str = ""
    extra: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # step -> offset, memory
    after: Mapping[str, Tensor] = field(default_factory=dict)
    held: Mapping[str, Tensor] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


def write(folder: Path, capsule: Capsule) -> Path:
    """Writes a capsule into a new folder, whole or not at all; returns the folder."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    state: dict[str, Tensor] = {}
    batches: dict[str, Tensor] = {}
    document = {
        "schema": SCHEMA, "reason": capsule.reason, "step": capsule.step, "text": capsule.text,
        "precision": capsule.precision, "clip": capsule.clip, "builder": capsule.builder,
        "history": storage.pack(list(capsule.history), "", {}),
        "model": storage.pack(capsule.snapshot.tensors, "model", state),
        "optimizer": storage.pack(capsule.snapshot.optimizer, "optimizer", state),
        "modes": dict(capsule.snapshot.modes),
        "steps": [_step(item, capsule.extra.get(item.step, {}), batches) for item in capsule.steps],
        "after": bool(capsule.after), "held": bool(capsule.held),
        "environment": dict(capsule.environment),
    }  # fmt: skip
    storage.write_tensors(temporary / "state.safetensors", state)
    storage.write_tensors(temporary / "batches.safetensors", batches)
    for name, tensors in (("after", capsule.after), ("held", capsule.held)):
        if tensors:
            packed: dict[str, Tensor] = {}
            storage.pack(tensors, name, packed)
            storage.write_tensors(temporary / f"{name}.safetensors", packed)
    (temporary / "tail.txt").write_text(mask(capsule.log_tail), encoding="utf-8")
    storage.write_json(temporary / "capsule.json", document)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(temporary, folder)
    return folder


def _step(item: Recorded, extra: Mapping[str, Any], batches: dict[str, Tensor]) -> dict[str, Any]:
    return {
        "step": item.step,
        "micro_batches": storage.pack(item.micro_batches, f"step{item.step}", batches),
        "sample_ids": list(item.sample_ids), "hashes": list(item.hashes), "lrs": list(item.lrs),
        "loss_scale": item.loss_scale, "seed": item.seed, "rng": item.rng,
        "values": storage.pack(item.values, "", {}), **extra,
    }  # fmt: skip


def read(folder: Path) -> Capsule:
    """Reads a capsule. StoreError where it is damaged or of a newer version."""
    document = storage.read_json(folder / "capsule.json")
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise StoreError(f"{folder / 'capsule.json'}: is no capsule of schema {SCHEMA}")
    try:
        return _read(folder, document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(f"{folder}: the capsule is damaged ({error!r})") from error


def _read(folder: Path, document: Mapping[str, Any]) -> Capsule:
    state = storage.read_tensors(folder / "state.safetensors")
    batches = storage.read_tensors(folder / "batches.safetensors")
    optimizer = storage.unpack(document["optimizer"], state)
    if optimizer is not None:  # JSON's keys are texts, an optimizer's are numbers
        optimizer["state"] = {int(key): value for key, value in optimizer["state"].items()}
    return Capsule(
        reason=document["reason"], step=document["step"], text=document["text"],
        precision=document["precision"], clip=document["clip"], builder=document["builder"],
        history=tuple(storage.unpack(document["history"], {})),
        snapshot=Snapshot(storage.unpack(document["model"], state), optimizer, document["modes"]),
        steps=tuple(_recorded(item, batches) for item in document["steps"]),
        environment=document["environment"],
        after=_parameters(folder, "after", document), held=_parameters(folder, "held", document),
    )  # fmt: skip


def _parameters(folder: Path, name: str, document: Mapping[str, Any]) -> dict[str, Tensor]:
    """Parameters of a file that may be missing, by their names."""
    if not document.get(name):
        return {}
    found = storage.read_tensors(folder / f"{name}.safetensors")
    return {key.removeprefix(f"{name}/"): tensor for key, tensor in found.items()}


def _recorded(item: Mapping[str, Any], batches: Mapping[str, Tensor]) -> Recorded:
    return Recorded(
        step=item["step"], micro_batches=storage.unpack(item["micro_batches"], batches),
        sample_ids=tuple(item["sample_ids"]), hashes=tuple(item["hashes"]),
        lrs=tuple(item["lrs"]), values=storage.unpack(item["values"], {}),
        **{key: item.get(key, value) for key, value in _OPTIONAL.items()},
    )  # fmt: skip


def find(folder: Path, step: int | None) -> Path:
    """The capsule in a folder (or the folder itself) that holds a step, its own suspect first."""
    paths = [folder] if (folder / "capsule.json").is_file() else _below(folder)
    if not paths:
        raise UsageError(f"{folder}: holds no capsule", hint="--checkpoint names a capsule folder")
    steps = {path: _steps(path) for path in paths}
    holding = [path for path in paths if step is None or step in steps[path]]
    if not holding:
        shown = ", ".join(f"{path.name} ({min(s)}-{max(s)})" for path, s in steps.items() if s)
        raise UsageError(f"{folder}: no capsule holds step {step}", hint=f"there are: {shown}")
    return min(holding, key=lambda path: (steps[path][-1] != step, -steps[path][0], path.name))


def _below(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/capsule.json"))


def _steps(path: Path) -> Sequence[int]:
    document = storage.read_json(path / "capsule.json")
    return [int(item["step"]) for item in document.get("steps", ())] or [-1]
