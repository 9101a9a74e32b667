"""The built-in recipes: a recorder's capsule, and a plain state-dict checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loganalyze.errors import UsageError
from loganalyze.replay import capsule, checkpoint
from loganalyze.replay.recipe import Request, Step, call, load_function
from loganalyze.replay.state import to_device

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def load(kind: str, builder: str, request: Request) -> Step:
    """The step of `capsule[:path.py:function]`, `torch:path.py:function` or `hf`."""
    if request.checkpoint is None:
        raise UsageError(f"recipe {kind}: needs --checkpoint", hint="a capsule or checkpoint")
    if kind == "hf":
        from loganalyze.replay.hf import from_hf

        return from_hf(request)
    if kind == "capsule":
        return _load_capsule(builder, request, request.checkpoint)
    if not builder:
        raise UsageError("recipe torch: who builds the model?", hint="torch:path.py:function")
    return from_checkpoint(call(load_function(builder), request, builder), request)


def _load_capsule(builder: str, request: Request, folder: Path) -> Step:
    place = capsule.find(folder, request.step)
    if not builder:
        named = capsule.read(place).builder
        if not named:
            raise UsageError(f"{place}: names no builder", hint="--recipe capsule:path.py:function")
        if not request.trust:
            raise UsageError(
                f"{place}: wants to run {named} to build the model",
                hint=f"--recipe capsule:{named}, or --trust-checkpoint to believe the capsule",
            )
        builder = named
    return from_capsule(call(load_function(builder), request, builder), request)


def from_capsule(step: Step, request: Request) -> Step:
    """Fills a Step that has model, optimizer and loss_fn with what a recorder kept.

    Raises UsageError where the capsule's parameters don't fit the model.
    """
    if request.checkpoint is None:
        raise UsageError("from_capsule: needs --checkpoint", hint="the capsule's folder")
    held = capsule.read(capsule.find(request.checkpoint, request.step))
    wanted = held.step if request.step is None else request.step
    step.model.to(request.device)
    _fits(step, held)
    held.snapshot.restore(step.model, step.optimizer)
    recorded = [to_recorded(item, request.device) for item in held.steps if item.step <= wanted]
    step.before, step.suspect = tuple(recorded[:-1]), recorded[-1]
    step.step = step.suspect.step
    step.precision = held.precision  # type: ignore[assignment]
    step.clip = held.clip if held.clip is not None else step.clip
    step.history = held.history
    step.environment = held.environment
    if wanted == held.step:
        step.after, step.held = held.after, held.held
    return step


def to_recorded(item: Any, device: str) -> Any:
    """A recorded step with its batches on a device."""
    from msgspec.structs import replace

    return replace(item, micro_batches=to_device(item.micro_batches, device))


def _fits(step: Step, held: capsule.Capsule) -> None:
    own = {name: tuple(t.shape) for name, t in step.model.named_parameters()}
    own |= {name: tuple(t.shape) for name, t in step.model.named_buffers()}
    theirs = {name: tuple(t.shape) for name, t in held.snapshot.tensors.items()}
    wrong = sorted(name for name in own.keys() | theirs if own.get(name) != theirs.get(name))
    if wrong or set(held.snapshot.modes) != {name for name, _ in step.model.named_modules()}:
        raise UsageError(
            f"the capsule's state doesn't fit the model: {', '.join(wrong[:4]) or 'its modules'}",
            hint="the builder must build the model that was recorded",
        )


def from_checkpoint(step: Step, request: Request) -> Step:
    """Loads a plain checkpoint into a Step's model and optimizer.

    A file (or folder with one) of a state dict, or of {"model": ..., "optimizer": ...}; a folder of
    torch.distributed.checkpoint or of ZeRO shards, whose optimizer state is taken over by names.
    """
    if request.checkpoint is None:
        raise UsageError("from_checkpoint: needs --checkpoint", hint="a file or its folder")
    held = checkpoint.load(request.checkpoint, request.device, trust=request.trust)
    model = checkpoint.part(held, checkpoint.MODEL_KEYS) or held
    step.model.to(request.device)
    try:
        step.model.load_state_dict(model)
        optimizer = checkpoint.part(held, checkpoint.OPTIMIZER_KEYS)
        if step.optimizer is not None and isinstance(optimizer, Mapping):
            step.optimizer.load_state_dict(dict(optimizer))
        named = held.get(checkpoint.NAMED)
        if step.optimizer is not None and named:
            _take_over(step.model, step.optimizer, named)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{request.checkpoint}: doesn't fit the model: {error}") from error
    if request.step is not None and step.suspect is None:
        step.step = request.step
    step.batch = to_device(step.batch, request.device)
    step.micro_batches = to_device(list(step.micro_batches), request.device)
    return step


def _take_over(model: nn.Module, optimizer: Optimizer, named: Mapping[str, Any]) -> None:
    """State by parameter names; a group's settings where all its parameters had the same ones."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    document = optimizer.state_dict()
    for group, own in zip(document["param_groups"], optimizer.param_groups, strict=True):
        held = [names.get(id(parameter), "") for parameter in own["params"]]
        for index, name in zip(group["params"], held, strict=True):
            if name in named["state"]:
                document["state"][index] = named["state"][name]
        told = [named["settings"].get(name) for name in held]
        if told and told[0] and all(item == told[0] for item in told):
            group.update({key: value for key, value in told[0].items() if key in group})
    optimizer.load_state_dict(document)
