"""The `hf` recipe: a transformers Trainer's checkpoint folder, with the batches of later steps.

Read are config.json and model*.safetensors, optimizer.pt, rng_state.pth, trainer_state.json (also
of later checkpoints beside it: what was logged), the tokenizer; training_args.bin, a pickle, only
with --trust-checkpoint. Learning rates are the logged ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from loganalyze.errors import UsageError
from loganalyze.replay import capsule, checkpoint, rows
from loganalyze.replay.recipe import Precision, Recorded, Request, Step
from loganalyze.replay.state import pack_state, to_device

_LOGGED = ("loss", "grad_norm", "learning_rate")


def from_hf(
    request: Request, *, precision: Precision | None = None, clip: float | None = None,
    accumulation: int | None = None,
) -> Step:  # fmt: skip
    """A Step from a Trainer's checkpoint and `--data`: recorded batches, or a dataset file.

    What isn't given comes from training_args.bin where that is trusted, else the Trainer's
    defaults: fp32, clip 1.0, one micro-batch a step. Raises UsageError saying what is missing.
    """
    if find_spec("transformers") is None:
        raise UsageError("recipe hf: needs transformers",
                         hint="pip install transformers accelerate")  # fmt: skip
    folder = _folder(request)
    told = _arguments(folder, request.trust)
    model = _model(folder, request)
    optimizer = _optimizer(folder, model, request)
    logged = _logged(folder)
    done = int(json.loads((folder / "trainer_state.json").read_text("utf-8"))["global_step"])
    count = accumulation or told.get("accumulation", 1)
    counting = _counting(model)
    steps = _steps(folder, request, done, (count, counting))
    first, *others = [_with_log(item, logged) for item in steps]
    if first.rng is None:
        first = replace(first, rng=_rng(folder, request))
    steps = [first, *others]
    return Step(
        model=model, optimizer=optimizer, loss_fn=_loss,
        accumulate="mean" if counting is None else "sum",
        precision=precision or told.get("precision", "fp32"),
        clip=clip if clip is not None else told.get("clip", 1.0), step=steps[-1].step,
        before=tuple(steps[:-1]), suspect=steps[-1], decode=_decoder(folder),
        history=tuple(row["loss"] for k, row in sorted(logged.items())
                      if k <= done and "loss" in row),
    )  # fmt: skip


def _library(name: str) -> Any:
    return import_module(name)


def _folder(request: Request) -> Path:
    folder = request.checkpoint
    if folder is None:
        raise UsageError("recipe hf: needs --checkpoint", hint="the Trainer's checkpoint-N folder")
    missing = [n for n in ("config.json", "trainer_state.json") if not (folder / n).is_file()]
    if missing:
        raise UsageError(
            f"{folder}: is no Trainer checkpoint, {' and '.join(missing)} not found",
            hint="--checkpoint names a checkpoint-N folder",
        )
    return folder


def _model(folder: Path, request: Request) -> nn.Module:
    """The model class that the configuration names, with the checkpoint's weights, as in training.

    Weights are read from safetensors; pickled ones, and code in the folder, only where trusted.
    """
    if not request.trust and not any(folder.glob("*.safetensors")):
        raise UsageError(
            f"{folder}: refused, its weights are pickles (no *.safetensors)",
            hint="--trust-checkpoint loads them all the same; do so only if you wrote them",
        )
    config = json.loads((folder / "config.json").read_text("utf-8"))
    names = config.get("architectures") or ["AutoModelForCausalLM"]
    library = _library("transformers")
    kind = getattr(library, names[0], library.AutoModelForCausalLM)
    model = kind.from_pretrained(
        folder, local_files_only=True, trust_remote_code=request.trust, dtype="auto",
        use_safetensors=None if request.trust else True,
    )  # fmt: skip
    made: nn.Module = model.to(request.device).train()
    return made


def _optimizer(folder: Path, model: nn.Module, request: Request) -> Optimizer | None:
    """The optimizer that optimizer.pt was saved by, told by the entries of its state."""
    file = folder / "optimizer.pt"
    if not file.is_file():
        return None
    held = checkpoint.load(file, request.device, trust=request.trust)
    entries = {key for entry in held["state"].values() for key in entry}
    kinds: tuple[tuple[str, Any], ...] = (
        ("exp_avg_sq", torch.optim.AdamW), ("momentum_buffer", torch.optim.SGD),
    )  # fmt: skip
    kind = next((kind for key, kind in kinds if key in entries), None)
    groups = _groups(model, [len(group["params"]) for group in held["param_groups"]])
    if kind is None or groups is None:
        raise UsageError(
            f"{file}: is of an optimizer that the recipe hf doesn't know",
            hint="write a recipe: build the optimizer, then from_checkpoint or from_hf",
        )
    optimizer: Optimizer = kind(groups, lr=1e-3)
    optimizer.load_state_dict(held)
    return optimizer


def _groups(model: nn.Module, sizes: Sequence[int]) -> list[dict[str, Any]] | None:
    """Parameters as the Trainer groups them (with and without decay), or all in one group."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    with_decay = set(_library("transformers").Trainer.get_decay_parameter_names(None, model))
    split = [[p for n, p in named if n in with_decay], [p for n, p in named if n not in with_decay]]
    for groups in (split, [[p for _, p in named]]):
        if [len(group) for group in groups] == list(sizes):
            return [{"params": group} for group in groups]
    return None


def _rng(folder: Path, request: Request) -> Mapping[str, Any] | None:
    """Generator states at the checkpoint; arrays of NumPy's are let through, nothing else."""
    file = folder / "rng_state.pth"
    if not file.is_file():
        return None
    held = checkpoint.load(file, "cpu", trust=request.trust, arrays=True)
    return pack_state(held["cpu"], held["python"], held.get("numpy"), held.get("cuda"))


def _arguments(folder: Path, trust: bool) -> dict[str, Any]:
    """Precision, clip and accumulation of training_args.bin, a pickle: only where trusted."""
    file = folder / "training_args.bin"
    if not trust or not file.is_file():
        return {}
    held = torch.load(file, weights_only=False)
    return {
        "precision": "bf16" if held.bf16 else "fp16" if held.fp16 else "fp32",
        "clip": held.max_grad_norm or None, "accumulation": held.gradient_accumulation_steps,
    }  # fmt: skip


def _logged(folder: Path) -> dict[int, dict[str, float]]:
    """What was logged of single steps, by step: loss, grad_norm, learning_rate.

    A loss is a step's own only where the step before was logged as well.
    """
    states = [folder, folder.parent, *folder.parent.glob("checkpoint-*")]
    found: dict[int, dict[str, float]] = {}
    for place in states:
        with suppress(OSError, ValueError, KeyError):
            document = json.loads((place / "trainer_state.json").read_text("utf-8"))
            for row in document["log_history"]:
                if "loss" in row:
                    found[int(row["step"])] = {
                        key: float(row[key])
                        for key in _LOGGED if row.get(key) is not None
                    }  # fmt: skip
    for step in [step for step in found if step > 1 and step - 1 not in found]:
        found[step].pop("loss")
    return found


def _counting(model: nn.Module) -> rows.Counting:
    """The labels that the installed Trainer divides a model's loss by, all micro-batches together.

    None where the model takes no divisor; newer versions don't count the first label of a causal
    model (`Trainer._loss_shifts_labels`).
    """
    takes = getattr(model, "accepts_loss_kwargs", None)
    if takes is None:
        kinds = [p.kind for p in signature(model.forward).parameters.values()]
        takes = Parameter.VAR_KEYWORD in kinds
    if not takes:
        return None
    counter = _library("transformers").Trainer._get_num_items_in_batch
    knows = "_loss_shifts_labels" in counter.__code__.co_names
    first = 1 if knows and _shifts(model) else 0
    return lambda labels: int((labels[..., first:] != -100).sum())


def _shifts(model: nn.Module) -> bool:
    losses = _library("transformers.loss.loss_utils")
    own = losses.LOSS_MAPPING.get(getattr(model, "loss_type", None))
    causal = own is losses.ForCausalLMLoss
    return causal and not getattr(model.config, "is_encoder_decoder", False)


def _with_log(item: Recorded, logged: Mapping[int, Mapping[str, float]]) -> Recorded:
    """A step with what was logged of it, where nothing was recorded."""
    row = dict(logged.get(item.step, {}))
    lr = row.pop("learning_rate", None)
    return replace(
        item, values=item.values or row, lrs=item.lrs or ((lr,) if lr is not None else ()),
    )  # fmt: skip


def _steps(
    folder: Path, request: Request, done: int, shape: tuple[int, rows.Counting]
) -> list[Recorded]:
    """The steps after the checkpoint up to the suspect one."""
    wanted = request.step if request.step is not None else done + 1
    if request.data is None:
        raise UsageError("recipe hf: needs --data", hint="a recorder's folder or a dataset file")
    if wanted <= done:
        raise UsageError(
            f"{folder}: is of step {done}, the step to replay is {wanted}",
            hint="--checkpoint names a checkpoint before it",
        )
    if request.data.is_dir():
        held = capsule.read(capsule.find(request.data, wanted)).steps
        found = [item for item in held if done < item.step <= wanted]
    else:
        size = json.loads((folder / "trainer_state.json").read_text("utf-8"))["train_batch_size"]
        found = list(rows.steps(request.data, range(done + 1, wanted + 1), size, *shape))
    if [item.step for item in found] != list(range(done + 1, wanted + 1)):
        raise UsageError(
            f"{request.data}: lacks batches of the steps {done + 1} to {wanted}",
            hint="a later checkpoint, or --recipe capsule",
        )
    moved = (replace(i, micro_batches=to_device(i.micro_batches, request.device)) for i in found)
    return list(moved)


def _loss(model: nn.Module, batch: Any) -> Tensor:
    """The model's own loss; where the batch says how many tokens count, of all micro-batches."""
    value: Tensor = model(**batch).loss
    return value


def _decoder(folder: Path) -> Any:
    """Samples as text, where the folder has a tokenizer."""
    if not any(folder.glob("tokenizer*")):
        return None
    made = _library("transformers").AutoTokenizer
    tokenizer = made.from_pretrained(folder, local_files_only=True)
    return lambda batch: tokenizer.decode(batch["input_ids"][0])

