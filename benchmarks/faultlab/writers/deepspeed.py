"""DeepSpeed: the pipeline engine's loss line, progress, throughput, timers, memory, overflow."""

from __future__ import annotations

from benchmarks.faultlab.recipe import StepRecord
from benchmarks.faultlab.writers.base import Writer

_GIB = 1024**3
_MEMORY_EVERY = 20
_HOST_TOTAL = 252.0  # GiB


class DeepSpeedWriter(Writer):
    """No gradient norm, no weights: the engine prints none."""

    logs = (
        "loss", "val_loss", "lr", "skipped_steps", "loss_scale", "step_time_s", "samples_per_s",
        "forward_time_s", "backward_time_s", "comm_time_s", "optimizer_time_s",
        "mem_allocated_bytes", "mem_reserved_bytes", "host_mem_used_bytes", "config",
    )  # fmt: skip

    def launch(self, loaded: int | None = None) -> None:
        """The engine's configuration."""
        super().launch(loaded)
        self.skipped, self.scale = 0, self.recipe.loss_scale
        self._say("logging.py:107", "DeepSpeed info: version=0.17.2, git-hash=unknown")
        for name, value in self.settings().items():
            self._say("config.py:1005", f"  {name} {'.' * (28 - len(name))} {value}")
        if loaded is not None:
            self._say("torch_checkpoint_engine.py:27",
                      f"[Torch] Loading checkpoint from /ckpt/lab/global_step{loaded}/"
                      "mp_rank_00_model_states.pt...")  # fmt: skip

    def settings(self) -> dict[str, object]:
        """The engine's entries."""
        r = self.recipe
        return {
            "bfloat16_enabled": r.precision == "bf16", "fp16_enabled": r.precision == "fp16",
            "gradient_accumulation_steps": r.accumulation, "gradient_clipping": r.clip,
            "initial_dynamic_scale": int(r.loss_scale), "optimizer_name": "adamw",
            "optimizer_params": {"lr": r.peak_lr, "betas": list(r.betas), "eps": r.eps,
                                 "weight_decay": r.weight_decay},
            "steps_per_print": r.interval, "train_batch_size": r.global_batch,
            "train_micro_batch_size_per_gpu": r.batch, "world_size": r.ranks,
        }  # fmt: skip

    def step(self, record: StepRecord) -> None:
        """Overflow lines come at once."""
        if record.skipped:
            self.skipped += 1
            self._overflow(record)
        super().step(record)

    def _overflow(self, record: StepRecord) -> None:
        before, now = int(self.scale), int(record.loss_scale)
        start = f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {before}, "
        if now < before or before == 1:
            self._say("loss_scaler.py:190", f"{start}reducing to {now}", rank=False)
        else:
            self._say("loss_scaler.py:183",
                      f"{start}but hysteresis is 2. Reducing hysteresis to 1", rank=False)  # fmt: skip
        self.scale = record.loss_scale

    def interval(self, window: list[StepRecord]) -> None:
        """Progress, timers, throughput, and the pipeline engine's line."""
        last, r = window[-1], self.recipe
        self.scale = last.loss_scale
        seconds = sum(x.seconds for x in window) / len(window)
        beta = r.betas
        self._say("logging.py:107", f"step={last.number}, skipped={self.skipped}, "
                  f"lr=[{last.lr!r}, {last.lr!r}], mom=[{beta}, {beta}]")  # fmt: skip
        rate = r.global_batch / seconds
        held = last.reserved / _GIB
        self._say("timer.py:264", f"epoch=0/micro_step={last.number * r.accumulation}/"
                  f"global_step={last.number}, RunningAvgSamplesPerSec={rate:.4f}, "
                  f"CurrSamplesPerSec={r.global_batch / last.seconds:.4f}, "
                  f"MemAllocated={last.allocated / _GIB:.2f}GB, MaxMemAllocated={held:.2f}GB",
                  rank=False)  # fmt: skip
        self.lines.append(f"steps: {last.number} loss: {last.loss:.4f} iter time (s): "
                          f"{seconds:.3f} samples/sec: {rate:.3f}")  # fmt: skip
        self._timers(last)
        if last.number % _MEMORY_EVERY == 0:
            self._memory(last)

    def _timers(self, last: StepRecord) -> None:
        ms = {name: value * 1000 for name, value in last.phases.items()}
        rows = {"fwd": ms.get("forward", 0.0), "bwd": ms.get("backward", 0.0),
                "bwd_allreduce": ms.get("comm", 0.0), "step": ms.get("optimizer", 0.0)}  # fmt: skip
        text = " | ".join(f"{name}: {value:.2f}" for name, value in rows.items())
        self._say("logging.py:107", f"time (ms) | {text}")

    def _memory(self, last: StepRecord) -> None:
        used, held = last.allocated / _GIB, last.reserved / _GIB
        self._say("utils.py:781", "end of step", rank=False)
        self._say("utils.py:782", f"MA {used:.2f} GB         Max_MA {held:.2f} GB         "
                  f"CA {held:.2f} GB         Max_CA {held:.0f} GB ", rank=False)  # fmt: skip
        host = last.host / _GIB
        self._say("utils.py:789", f"CPU Virtual Memory:  used = {host:.2f} GB, "
                  f"percent = {100 * host / _HOST_TOTAL:.1f}%", rank=False)  # fmt: skip

    def evaluated(self, step: int, loss: float) -> None:
        """Megatron-DeepSpeed's line."""
        super().evaluated(step, loss)
        self.lines.append(f" validation loss at iteration {step} | lm loss value: {loss:.6E} | "
                          f"lm loss PPL: {2.718281828 ** min(20.0, loss):.6E} | ")  # fmt: skip

    def saved(self, step: int, seconds: float) -> None:
        """The checkpoint engine's lines."""
        path = f"/ckpt/lab/global_step{step}/mp_rank_00_model_states.pt"
        self._say("torch_checkpoint_engine.py:21", f"[Torch] Saving {path}...", rank=False)
        super().saved(step, seconds)
        self._say("torch_checkpoint_engine.py:23", f"[Torch] Saved {path}.", rank=False)

    def _say(self, where: str, text: str, *, rank: bool = True) -> None:
        function = {"logging.py": "log_dist", "utils.py": "see_memory_usage",
                    "timer.py": "stop", "config.py": "print"}  # fmt: skip
        name = where.split(":")[0]
        tail = function.get(name, {"loss_scaler.py": "update_scale"}.get(name, "save"))
        said = f"[Rank 0] {text}" if rank else text
        self.lines.append(f"[{self.clock.milli()}] [INFO] [{where}:{tail}] {said}")
