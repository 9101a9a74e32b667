"""Megatron-LM's layout, printed by the last rank, behind torchrun's prefixes."""

from __future__ import annotations

import math

from benchmarks.faultlab.model import VOCABULARY
from benchmarks.faultlab.recipe import StepRecord
from benchmarks.faultlab.writers.base import Writer, dotted, mean_of

_DIR = "/ckpt/lab"
_MIB = 1024**2
_MEMORY_EVERY = 20
_NOISE = (
    "/opt/env/lib/python3.12/site-packages/torch/autograd/graph.py:829: UserWarning: lazy stream",
    "gpu-07:3051:3166 [1] NCCL INFO Connected all trees",
    "WARNING:megatron.core.rerun_state_machine:Setting RerunStateMachine mode disabled",
)


class MegatronWriter(Writer):
    """`iteration N/ TOTAL | key: value | ...`, argument dump, timers, memory, checkpoints."""

    logs = (
        "loss", "val_loss", "lr", "grad_norm", "params_norm", "loss_scale", "skipped_steps",
        "nan_steps", "step_time_s", "tflops_per_gpu", "global_batch_size", "samples_seen",
        "mem_allocated_bytes", "mem_reserved_bytes", "forward_time_s", "data_time_s", "config",
        "vocab_size",
    )  # fmt: skip

    def launch(self, loaded: int | None = None) -> None:
        """Launcher noise, argument dump, checkpoint."""
        super().launch(loaded)
        rule = "-" * 24
        self._rank0(f"using world size: {self.recipe.ranks}, data-parallel size: "
                    f"{self.recipe.ranks}, tensor-model-parallel size: 1")  # fmt: skip
        self.lines.append(f"[default0]:{rule} arguments {rule}")
        self.lines += [f"[default0]:{row}" for row in dotted(self.settings())]
        self._rank0(f"{'-' * 20} end of arguments {'-' * 21}")
        if loaded is None:
            self._rank0("WARNING: could not find the metadata file "
                        f"{_DIR}/latest_checkpointed_iteration.txt")  # fmt: skip
            self._rank0("    will not load any checkpoints and will start from random")
        else:
            self._rank0(f" loading checkpoint from {_DIR} at iteration {loaded}")
            self._rank0(f"  successfully loaded checkpoint from {_DIR} [ t 1/1, p 1/1 ] "
                        f"at iteration {loaded}")  # fmt: skip
        self._rank0(f"[before the start of training step] datetime: {self.clock.stamp()} ")

    def settings(self) -> dict[str, object]:
        """The arguments that matter, by Megatron's names."""
        r = self.recipe
        fp16 = (
            {"initial_loss_scale": r.loss_scale, "hysteresis": 2} if r.precision == "fp16" else {}
        )
        experts = {"num_experts": r.experts, "moe_aux_loss_coeff": r.balance} if r.experts else {}
        return {
            "adam_beta1": r.betas[0], "adam_beta2": r.betas[1], "adam_eps": r.eps,
            "bf16": r.precision == "bf16", "fp16": r.precision == "fp16", "clip_grad": r.clip,
            "eval_interval": r.evaluate, "global_batch_size": r.global_batch,
            "hidden_size": r.width, "init_method_std": r.init_std, "load": _DIR, "log_interval": 1,
            "lr": r.peak_lr, "lr_decay_iters": r.schedule, "lr_decay_style": r.decay,
            "lr_warmup_iters": r.warmup, "micro_batch_size": r.batch,
            "min_lr": r.peak_lr * r.min_lr_share, "num_layers": r.layers, "padded_vocab_size": VOCABULARY,
            "save": _DIR,
            "save_interval": r.save, "seed": r.seed, "seq_length": r.length,
            "train_iters": r.total, "weight_decay": r.weight_decay, "world_size": r.ranks,
            **fp16, **experts,
        }  # fmt: skip

    def interval(self, window: list[StepRecord]) -> None:
        """A training line; now and then memory and timers."""
        last = window[-1]
        self.lines.append(f"[default{self.recipe.ranks - 1}]: {self._line(window)}")
        if last.number % _MEMORY_EVERY == 0 or last.number == 2:
            self._memory(last)
        if last.number % 10 == 0:
            self._timers(last)
        if self.draw.random() < 0.008:
            self.lines.append(self.draw.choice(_NOISE))

    def _line(self, window: list[StepRecord]) -> str:
        last, r = window[-1], self.recipe
        seconds = sum(record.seconds for record in window) / len(window)
        work = 212.0 * (last.tokens / (r.global_batch * r.length)) * 0.64 / seconds
        fields = [
            f"iteration {last.number:8d}/{r.total:8d}",
            f"consumed samples: {last.number * r.global_batch:12d}",
            f"elapsed time per iteration (ms): {seconds * 1000:.1f}",
            f"throughput per GPU (TFLOP/s/GPU): {work:.1f}",
            f"learning rate: {last.lr:.6E}",
            f"global batch size: {r.global_batch:5d}",
        ]
        loss = mean_of(window)
        if loss >= 0:  # NaN compares false: Megatron then prints no field
            fields.append(f"lm loss: {loss:.6E}")
        fields += [f"{name}: {value:.6E}" for name, value in last.extra.items()]
        fields.append(f"loss scale: {last.loss_scale:.1f}")
        if not last.skipped:
            fields.append(f"grad norm: {last.grad_norm:.3f}")
        fields += [
            f"params norm: {last.params_norm:.3f}",
            f"number of skipped iterations: {sum(x.skipped for x in window):3d}",
            f"number of nan iterations: {0:3d}",
        ]
        return f"[{self.clock.stamp()}] " + " | ".join(fields) + " |"

    def _memory(self, last: StepRecord) -> None:
        mib = last.allocated / _MIB
        held = last.reserved / _MIB
        self._rank0(f"[Rank 0] (after {last.number} iterations) memory (MB) | allocated: "
                    f"{mib:.2f} | max allocated: {held:.2f} | reserved: {held:.2f} | "
                    f"max reserved: {held:.2f}")  # fmt: skip

    def _timers(self, last: StepRecord) -> None:
        ms = {name: value * 1000 for name, value in last.phases.items()}
        work = ms.get("forward", 0.0) + ms.get("backward", 0.0)
        rows = {"forward-backward": work, "batch-generator": ms.get("data", 0.0),
                "optimizer": ms.get("optimizer", 0.0)}  # fmt: skip
        prefix = f"[default{self.recipe.ranks - 1}]:"
        self.lines.append(f"{prefix}INFO:megatron.core.timers:(min, max) time across ranks (ms):")
        for name, value in rows.items():
            dots = "." * (47 - len(name))
            self.lines.append(f"{prefix}    {name} {dots}: ({value * 0.99:.2f}, {value:.2f})")

    def evaluated(self, step: int, loss: float) -> None:
        """The line between dashes."""
        super().evaluated(step, loss)
        perplexity = math.exp(min(20.0, loss))
        text = (f" validation loss at iteration {step} | lm loss value: {loss:.6E} | "
                f"lm loss PPL: {perplexity:.6E} | ")  # fmt: skip
        rule = "-" * len(text)
        self.lines += [f"[default{self.recipe.ranks - 1}]:{part}" for part in (rule, text, rule)]

    def saved(self, step: int, seconds: float) -> None:
        """Begun and confirmed."""
        self._rank0(f"saving checkpoint at iteration {step:7d} to {_DIR} in torch_dist format")
        super().saved(step, seconds)
        self._rank0(f"  [{self.clock.stamp()}] successfully saved checkpoint from iteration "
                    f"{step:7d} to {_DIR}")  # fmt: skip

    def finished(self) -> None:
        """The last phase."""
        self._rank0(f"[after training is done] datetime: {self.clock.stamp()} ")

    def _rank0(self, text: str) -> None:
        self.lines.append(f"[default0]:{text}")
