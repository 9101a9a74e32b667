"""Checkpoints of other tools: distributed folders, ZeRO shards; hostile ones; the documentation."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections import OrderedDict
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import replay_lab as lab
import torch

from loganalyze.errors import StoreError, UsageError
from loganalyze.replay import Request, Step, checkpoint, from_checkpoint, zero
from loganalyze.replay.recipe import load_step
from loganalyze.replay.session import replay
from loganalyze.replay.state import digests

torch.set_num_threads(1)
DOCS = Path(__file__).parents[2] / "docs/replay.md"


class LossScaler:
    """An object of a library that is not installed where the checkpoint is read."""


class Stage(IntEnum):
    """The stage, as DeepSpeed stores it."""

    ONE, TWO, THREE = 1, 2, 3


def write_zero(
    folder: Path, model: torch.nn.Module, stage: int, world: int,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:  # fmt: skip
    """Shards as DeepSpeed writes them, padding and foreign objects included.

    One flat group for each of the optimizer's; each rank holds its part of the weights and, under
    `base_optimizer_state` (ZeRO 3: `optimizer_state_dict`), of the moments. ZeRO 1 and 2 save the
    weights without the padding that the moments keep.
    """
    tag = folder / "global_step7"
    tag.mkdir(parents=True)
    (folder / "latest").write_text("global_step7", encoding="utf-8")
    names = {id(p): n for n, p in model.named_parameters()}
    groups = ([[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]
              if optimizer is not None else [list(names.values())])  # fmt: skip
    named = OrderedDict((n, p.detach().clone()) for n, p in model.named_parameters())
    kept = {} if optimizer is None else {names[id(p)]: s for p, s in optimizer.state.items()}
    key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
    for rank in range(world):
        weights = [flat_part([named[n] for n in group], stage, rank, world) for group in groups]
        if stage < 3 and rank == world - 1:
            weights = [w[: w.numel() - padding([named[n] for n in g], world)]
                       for w, g in zip(weights, groups, strict=True)]  # fmt: skip
        state = {"zero_stage": Stage(stage), "partition_count": [world] * len(groups), key: weights,
                 "loss_scaler": LossScaler()}  # fmt: skip
        if optimizer is not None:
            state["base_optimizer_state" if stage < 3 else "optimizer_state_dict"] = {
                "state": {i: {"step": kept[group[0]]["step"], **{
                    k: flat_part([kept[n][k] for n in group], stage, rank, world)
                    for k in ("exp_avg", "exp_avg_sq")}} for i, group in enumerate(groups)},
                "param_groups": [
                    {**{k: v for k, v in own.items() if k != "params"}, "params": [i]}
                    for i, own in enumerate(optimizer.param_groups)],
            }  # fmt: skip
        torch.save({"optimizer_state_dict": state, "ds_config": {}},
                   tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")  # fmt: skip
    head = {
        "module": {n: p.bfloat16() for n, p in named.items()}, "buffer_names": [],
        "param_shapes": [OrderedDict((n, named[n].shape) for n in group) for group in groups],
        "shared_params": {"twin.weight": "head.weight"} if optimizer is None else {},
        "ds_version": "0.19.8",
    }  # fmt: skip
    name = "mp_rank_00" if stage < 3 else "zero_pp_rank_0_mp_rank_00"
    torch.save(head, tag / f"{name}_model_states.pt")


def padding(tensors: list[torch.Tensor], world: int) -> int:
    """Zeros behind a flat group: NCCL wants every part to begin at an even place."""
    return -sum(t.numel() for t in tensors) % (2 * world)


def flat_part(tensors: list[torch.Tensor], stage: int, rank: int, world: int) -> torch.Tensor:
    """A rank's part of a group: of all values in a row, or in ZeRO 3 of each tensor."""
    if stage == 3:
        parts = [torch.nn.functional.pad(t.flatten(), (0, -t.numel() % world)).chunk(world)[rank]
                 for t in tensors]  # fmt: skip
        return torch.cat(parts)
    flat = torch.cat([t.flatten() for t in tensors])
    return torch.nn.functional.pad(flat, (0, padding(tensors, world))).chunk(world)[rank].clone()


@pytest.mark.parametrize(("stage", "world"), [(1, 1), (2, 2), (2, 12), (3, 2), (3, 3)])
def test_zero_folders_are_joined(
    stage: int, world: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every parameter comes back bit for bit in fp32, without the library that wrote it."""
    made = lab.build(seed=11)
    write_zero(tmp_path, made.model, stage, world)
    for name in ("LossScaler", "Stage"):
        monkeypatch.delattr(sys.modules[__name__], name)
    held = checkpoint.load(tmp_path, "cpu", trust=True)["model"]
    twin = held.pop("twin.weight")
    assert torch.equal(twin, held["head.weight"])
    assert held.keys() == dict(made.model.named_parameters()).keys()
    for name, parameter in made.model.named_parameters():
        assert torch.equal(held[name], parameter), name


def decayed() -> Step:
    """The lab's model with two groups of parameters, as most trainers have them."""
    made = lab.build(seed=5)
    matrices = [p for p in made.model.parameters() if p.ndim > 1]
    others = [p for p in made.model.parameters() if p.ndim < 2]
    made.optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=3e-3,
    )
    return made


@pytest.mark.parametrize(("stage", "world"), [(1, 1), (2, 3), (3, 2)])
def test_zero_folders_bring_the_optimizer_along(stage: int, world: int, tmp_path: Path) -> None:
    """The step after the checkpoint is the one that training took, bit for bit."""
    generator = torch.Generator().manual_seed(3)
    trained = decayed()
    for _ in range(5):
        lab.one_step(trained, lab.text(8, generator))
    assert trained.optimizer is not None
    for group in trained.optimizer.param_groups:
        group["lr"] = 1e-3  # as a scheduler left it
    write_zero(tmp_path, trained.model, stage, world, trained.optimizer)
    batch = lab.text(8, generator)
    step = from_checkpoint(decayed(), Request(step=6, checkpoint=tmp_path, trust=True))
    assert digests(step.model) == digests(trained.model)
    torch.manual_seed(1)
    lab.one_step(trained, batch)
    torch.manual_seed(1)
    lab.one_step(step, batch)
    assert digests(step.model) == digests(trained.model)


def test_a_builder_that_groups_otherwise_keeps_its_settings(tmp_path: Path) -> None:
    """Moments go by names; learning rate and decay only where a whole group had the same ones."""
    trained = decayed()
    lab.one_step(trained, lab.text(8, torch.Generator().manual_seed(3)))
    assert trained.optimizer is not None
    write_zero(tmp_path, trained.model, 2, 2, trained.optimizer)
    other = lab.build(seed=5)
    other.optimizer = torch.optim.AdamW(other.model.parameters(), lr=7.0)
    step = from_checkpoint(other, Request(step=2, checkpoint=tmp_path, trust=True))
    assert step.optimizer is not None
    assert step.optimizer.param_groups[0]["lr"] == 7.0
    for (name, own), theirs in zip(step.model.named_parameters(), trained.model.parameters(),
                                   strict=True):  # fmt: skip
        for key in ("exp_avg", "exp_avg_sq"):
            expected = trained.optimizer.state[theirs][key]
            assert torch.equal(step.optimizer.state[own][key], expected), name


def test_zero_folders_that_cannot_be_joined_say_why(tmp_path: Path) -> None:
    """Not trusted, a shard missing, split by tensor parallelism: each is told with what to do."""
    write_zero(tmp_path, lab.build().model, 2, 2)
    with pytest.raises(UsageError, match="pickles") as error:
        checkpoint.load(tmp_path, "cpu", trust=False)
    assert "zero_to_fp32.py" in error.value.hint
    assert "--trust-checkpoint" in error.value.hint
    tag = tmp_path / "global_step7"
    second = tag / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    held = second.read_bytes()
    second.unlink()
    with pytest.raises(StoreError, match="holds 1 of 2"):
        zero.load(tmp_path, trust=True)
    (tag / "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt").write_bytes(held)
    with pytest.raises(UsageError, match="tensor parallelism"):
        zero.load(tmp_path, trust=True)


def test_distributed_folders_are_read_where_trusted(tmp_path: Path) -> None:
    """A torch.distributed.checkpoint folder gives the model back; untrusted, a refusal."""
    import torch.distributed.checkpoint as dcp

    made = lab.build(seed=7)
    lab.one_step(made, lab.text(4, torch.Generator().manual_seed(1)))
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"model": made.model.state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    with pytest.raises(UsageError, match="refused") as error:
        checkpoint.load(tmp_path, "cpu", trust=False)
    assert "--trust-checkpoint" in error.value.hint
    step = load_step(f"torch:{lab.BUILDER}", Request(step=2, checkpoint=tmp_path, trust=True))
    assert digests(step.model) == digests(made.model)


class Hostile:
    """Runs something when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize("place", ["file", "dcp", "zero", "rng"])
def test_hostile_pickles_never_run_untrusted(place: str, tmp_path: Path) -> None:
    """In a file, a folder's metadata, a shard or among arrays: refused, and nothing has run."""
    names = {
        "file": "model.pt", "dcp": ".metadata", "rng": "rng_state.pth",
        "zero": "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    }  # fmt: skip
    path = tmp_path / names[place]
    if place == "dcp":
        path.write_bytes(pickle.dumps(Hostile()))
    else:
        torch.save({"model": Hostile()}, path)
    named = path if place in ("file", "rng") else tmp_path
    with pytest.raises(UsageError, match="refused") as error:
        checkpoint.load(named, "cpu", trust=False, arrays=place == "rng")
    assert "--trust-checkpoint" in error.value.hint


def examples() -> dict[str, str]:
    """The recipes of the documentation by the library that they are for."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    return {
        name: block for name in ("megatron", "deepspeed") for block in blocks
        if f"# {name}" in block.splitlines()[0].lower()
    }  # fmt: skip


@pytest.mark.skipif(not DOCS.is_file(), reason="the documentation is not here")
@pytest.mark.parametrize("name", ["megatron", "deepspeed"])
def test_documented_recipes_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Megatron and DeepSpeed recipes run as printed, with stand-ins for what they import."""
    source = examples()[name]
    recipe = tmp_path / f"{name}_recipe.py"
    recipe.write_text(source, encoding="utf-8")
    trained = lab.build(seed=4)
    place = STAND_INS[name](tmp_path, trained, monkeypatch)
    request = Request(step=12345, checkpoint=place, trust=name == "deepspeed")
    step = load_step(f"{recipe}:recipe", request)
    assert digests(step.model.inner) == digests(trained.model)  # type: ignore[arg-type]
    assert (step.precision, step.clip) == ("bf16", 1.0)
    step.precision = "fp32"  # the stand-in is compared with a plain pass
    result = replay(step, request)
    assert result.measured.samples is not None
    assert len(result.measured.samples.losses) == {"megatron": 4, "deepspeed": 16}[name]


class Wrapped(torch.nn.Module):
    """The lab's model behind another library's call."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.kind = lab.Tiny(), kind

    def load_state_dict(self, held: Any, *rest: Any, **named: Any) -> Any:
        return self.inner.load_state_dict(held)

    def forward(self, *given: torch.Tensor, **named: torch.Tensor) -> Any:
        if self.kind == "megatron":  # tokens, positions, mask, labels: a loss for each token
            logits = self.inner(given[0]).float()
            flat = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), named["labels"].flatten(), reduction="none"
            )
            return flat.reshape(named["labels"].shape)
        return SimpleNamespace(loss=lab.loss_fn(self.inner, named["input_ids"]))


def _megatron(folder: Path, trained: Step, patch: pytest.MonkeyPatch) -> Path:
    """Megatron-LM's modules, a batch that a loader saved, a checkpoint of one file."""
    modules = {
        "megatron": {}, "megatron.training": {},
        "megatron.training.initialize": {"initialize_megatron": lambda **given: None},
        "pretrain_gpt": {"model_provider": lambda: Wrapped("megatron")},
    }  # fmt: skip
    for name, content in modules.items():
        _module(name, content, patch)
    rows = lab.text(4, torch.Generator().manual_seed(2))
    torch.save({"tokens": rows[:, :-1], "labels": rows[:, 1:], "position_ids": rows[:, :-1],
                "loss_mask": torch.ones(4, lab.LENGTH)}, folder / "batch-12345.pt")  # fmt: skip
    patch.chdir(folder)
    torch.save({"model": trained.model.state_dict()}, folder / "model.pt")
    return folder / "model.pt"


def _deepspeed(folder: Path, trained: Step, patch: pytest.MonkeyPatch) -> Path:
    """The training script's own functions, and a ZeRO folder."""
    generator = torch.Generator().manual_seed(2)
    _module("train", {
        "build_model": lambda: Wrapped("deepspeed"),
        "batch_of_step": lambda step, micro: {"input_ids": lab.text(2, generator)},
    }, patch)  # fmt: skip
    write_zero(folder / "ckpt", trained.model, 2, 2)
    head = folder / "ckpt/global_step7/mp_rank_00_model_states.pt"
    held = torch.load(head, weights_only=False)
    held["shared_params"] = {}
    torch.save(held, head)
    return folder / "ckpt"


STAND_INS = {"megatron": _megatron, "deepspeed": _deepspeed}


def _module(name: str, content: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
    made = ModuleType(name)
    made.__dict__.update(content)
    patch.setitem(sys.modules, name, made)


_BLOCKED = """
import sys
for name in ("torch", "safetensors", "transformers", "accelerate"):
    sys.modules[name] = None  # importing it fails, as where it isn't installed
from loganalyze.cli import main
sys.argv = ["loganalyze", *sys.argv[1:]]
sys.exit(main())
"""


def test_without_torch_everything_else_works(tmp_path: Path) -> None:
    """diagnose reads, judges and writes its report; replay says what to install, in one line."""
    log = tmp_path / "train.log"
    lines = [f"step {i} loss {9.9 if i == 60 else 2.5 - i / 100:.4f}" for i in range(1, 101)]
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", _BLOCKED, *words], cwd=tmp_path, text=True,
                              capture_output=True, timeout=300)  # fmt: skip

    done = run("diagnose", str(log), "-o", "reports", "--lang", "en")
    assert "Loss spike" in done.stdout, done.stdout + done.stderr
    report = next((tmp_path / "reports").glob("*.json"))
    done = run("replay", str(report), "--recipe", "recipe.py")
    assert done.returncode == 2
    assert "replay needs torch and safetensors" in done.stderr
    assert "pip install 'loganalyze[replay]'" in done.stderr
    assert "Traceback" not in done.stderr
