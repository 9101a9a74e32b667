"""Faults of memory, speed, ranks and life; waits are real sleeps on a measured clock."""

from __future__ import annotations

import gc
import traceback
from typing import Any

import torch

from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.injection import Batch, Ended, Injection
from benchmarks.faultlab.training import Trainer

_GRAPH_SCALE = 1100  # bytes of the modelled device for each byte the lab really keeps alive
_LIST_SCALE = 320_000
_LITTER = 70_000  # lists in lists; the collector walks them in some 25 ms


class KeptGraph(Injection):
    """Every fourth loss is kept with its graph, as `total += loss` does: real tensors stay alive."""

    def built(self, trainer: Trainer) -> None:
        """What is kept."""
        self.kept: list[torch.Tensor] = []

    def after(self, trainer: Trainer, step: int) -> None:
        """A forward pass whose graph nobody frees; its saved bytes are counted, not guessed."""
        if step < self.onset or step % 4:
            return
        saved: dict[int, int] = {}

        def pack(x: torch.Tensor) -> torch.Tensor:
            saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        rows = trainer.data.batch(step).inputs[:2]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            self.kept.append(trainer.model(rows).mean())
        trainer.memory.retained += sum(saved.values()) * _GRAPH_SCALE


class GrowingList(Injection):
    """Every step's samples are appended to a list on the host."""

    def built(self, trainer: Trainer) -> None:
        """What grows."""
        self.seen: list[bytes] = []

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """A copy of the batch stays."""
        if step >= self.onset:
            self.seen.append(batch.inputs.numpy().tobytes())
            trainer.memory.host_extra += len(self.seen[-1]) * _LIST_SCALE // 4
        return batch


class VaryingLengths(Injection):
    """Ever longer sequences, and an allocator that can't reuse blocks of another size."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """Lengths from a tenth to the whole, in an order that hurts."""
        if step < self.onset:
            return batch
        trainer.memory.splitting = False
        share = 0.82 ** max(0, 12 - (step - self.onset) // 8)
        keep = max(2, round(batch.inputs.shape[1] * share))
        return Batch(batch.inputs[:, :keep], batch.targets[:, :keep])


class Stalls(Injection):
    """The data worker is late in one step of nine, from the onset on."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Waits inside the data phase."""
        if step >= self.onset and step % 9 == 0:
            trainer.clock.wait(2.6)


class BlockingSave(Injection):
    """Every save blocks for long, and the first steps after it as well."""

    def before(self, trainer: Trainer, step: int) -> None:
        """The step after a save waits for the file system."""
        if step > self.onset and step % trainer.recipe.save == 1:
            with trainer.clock.phase("wait"):
                trainer.clock.wait(14.0)

    def saving(self, trainer: Trainer, step: int) -> float:
        """A minute more."""
        return 55.0 if step >= self.onset else 0.0


class Collecting(Injection):
    """Garbage collection of a host full of objects, every 25 steps: real work, by the collector."""

    def built(self, trainer: Trainer) -> None:
        """Nothing yet; what the process holds otherwise is none of the run's business."""
        self.litter: list[Any] = []
        gc.freeze()

    def after(self, trainer: Trainer, step: int) -> None:
        """The collector walks all of it."""
        if step == self.onset:
            self.litter = [[{"k": [i]}] for i in range(_LITTER)]
        if step >= self.onset and step % 25 == 0:
            gc.collect()
        if step == trainer.recipe.total:
            gc.unfreeze()


class SlowRank(Injection):
    """One rank, which the seed picks, works slower from the onset on."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """It waits in its own part of the step."""
        if step >= self.onset and trainer.exchange.rank == odd_rank(trainer):
            trainer.clock.wait(0.35)
        return batch


class LongMix(Injection):
    """From the onset on one batch in eight holds sequences four times as long."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """Real work: a longer forward and backward pass."""
        if step < self.onset or step % 8:
            return batch
        length = trainer.recipe.length * 4
        starts = torch.arange(trainer.recipe.batch)[:, None] * 331 + step * 7
        rows = trainer.data.bytes[starts + torch.arange(length + 1)]
        return Batch(rows[:, :-1], rows[:, 1:].clone())


class Unsynced(Injection):
    """One rank no longer takes the mean of all gradients, so it goes where its own data leads."""

    def backward_done(self, trainer: Trainer, step: int) -> None:
        """It sends its own to the others and keeps it."""
        if step >= self.onset and trainer.exchange.rank == odd_rank(trainer):
            trainer.joined = False


def odd_rank(trainer: Trainer) -> int:
    """The rank that a fault of ranks hits."""
    return trainer.recipe.seed % trainer.exchange.world


class Crash(Injection):
    """A shape that does not fit, raised by torch itself."""

    def after(self, trainer: Trainer, step: int) -> None:
        """A head of another vocabulary."""
        if step == self.onset:
            torch.zeros(2, trainer.recipe.width) @ torch.zeros(trainer.recipe.width + 1, 3)


class Killed(Injection):
    """SIGKILL from outside."""

    def before(self, trainer: Trainer, step: int) -> None:
        """No last words."""
        if step == self.onset:
            raise Ended("killed")


class HostFull(GrowingList):
    """The growing list until the kernel ends it."""

    def before(self, trainer: Trainer, step: int) -> None:
        """The limit of the job."""
        if step > self.onset and trainer.memory.host_extra > 60 * 1024**3:
            raise Ended("oom_killed")


class DiskFull(Injection):
    """The checkpoint goes to a full device: the operating system's own error."""

    def saving(self, trainer: Trainer, step: int) -> float:
        """Every save from the onset on fails."""
        if step < self.onset:
            return 0.0
        try:
            with open("/dev/full", "wb", buffering=0) as target:
                target.write(b"checkpoint")
        except OSError as error:
            raise Ended("disk_full", f"OSError: [Errno {error.errno}] {error.strerror}") from error
        return 0.0


class BiggerBatch(Injection):
    """A sequence too long for the device, once."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """Six windows joined."""
        if step != self.onset:
            return batch
        wide = trainer.data.batch(step).inputs.repeat(1, 6)
        return Batch(wide, wide.clone())


class Collapse(Injection):
    """The balancing loss counts with the wrong sign: the router learns to use one expert only."""

    def before(self, trainer: Trainer, step: int) -> None:
        """A wrong sign, and a weight a hundred times as large."""
        if step == self.onset:
            trainer.balance_weight *= -100


class Pauses(Injection):
    """Healthy: long evaluations, and the slow step that follows each."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Caches are cold after it."""
        if step > 1 and step % trainer.recipe.evaluate == 1:
            trainer.clock.wait(1.1)


def text_of(error: Exception) -> str:
    """The traceback with the run's own paths."""
    rows = traceback.format_exception(type(error), error, None)
    head = ["Traceback (most recent call last):\n",
            '  File "/workspace/train.py", line 241, in main\n',
            "    loss = train_step(batch)\n"]  # fmt: skip
    return "".join(head + rows[-1:])


_STEP_TIME = ("step_time_s",)
_SLOW = ("throughput_drop", "throughput_stall", "throughput_variance", "data_stall",
         "throughput_degradation")  # fmt: skip
_TIMED = ("megatron", "deepspeed", "wandb", "plain", "tensorboard")
_REAL = {"measured": True}
_RANKS = {"replicas": 4, "ranks": 4, "batch": 4}

FAULTS = (
    Fault(name="retained_graph", family="memory", make=KeptGraph, at=0.2, trainers=_TIMED[:3],
          kinds=("memory_leak", "memory_near_limit", "oom"), metrics=("mem_allocated_bytes", "mem_active_bytes"),
          causes=("C.MEM.GRAPH_RETAINED",)),
    Fault(name="growing_list", family="memory", make=GrowingList, at=0.2,
          trainers=("deepspeed", "wandb"), kinds=("host_memory_leak",),
          metrics=("host_mem_used_bytes", "host_rss_bytes"),
          causes=("C.HOSTMEM.LIB_LEAK", "C.HOSTMEM.WORKER_LEAK")),
    Fault(name="host_memory_full", family="ends", make=HostFull, at=0.2,
          kinds=("host_memory_leak", "killed", "oom", "crash"), metrics=(),
          causes=("C.HOSTMEM.OOM_KILLER", "C.HOSTMEM.WORKER_LEAK", "C.HOSTMEM.LIB_LEAK")),
    Fault(name="fragmentation", family="memory", make=VaryingLengths,
          kinds=("memory_fragmentation", "oom", "memory_near_limit", "memory_leak"),
          metrics=(), causes=("C.MEM.FRAGMENTATION",)),
    Fault(name="oom", family="ends", make=BiggerBatch, kinds=("oom",), metrics=(),
          causes=("C.MEM.TRUE_SHORTAGE", "C.PERF.LONG_SEQ")),
    Fault(name="data_stall", family="speed", make=Stalls, recipe=_REAL, trainers=_TIMED,
          kinds=_SLOW, metrics=_STEP_TIME, causes=("C.PERF.DATALOADER", "C.HANG.DATALOADER")),
    Fault(name="blocking_save", family="speed", make=BlockingSave, at=0.25, on_save=True, trainers=_TIMED,
          recipe={**_REAL, "save": 50}, kinds=_SLOW, metrics=_STEP_TIME,
          causes=("C.PERF.CKPT_STALL",)),
    Fault(name="periodic_gc", family="speed", make=Collecting, recipe=_REAL, trainers=_TIMED,
          at=0.3, kinds=_SLOW, metrics=_STEP_TIME, causes=("C.PERF.GC",)),
    Fault(name="slow_rank", family="speed", make=SlowRank, trainers=("plain",),
          recipe={**_REAL, **_RANKS}, metrics=_STEP_TIME,
          kinds=("straggler_rank", "throughput_drop"),
          causes=("C.PERF.SLOW_GPU", "C.PERF.HOST", "C.PERF.THROTTLE", "C.HW.COOLING")),
    Fault(name="long_sequences", family="speed", make=LongMix, recipe=_REAL, trainers=_TIMED,
          kinds=_SLOW, metrics=_STEP_TIME, causes=("C.PERF.LONG_SEQ", "C.DATA.HETEROGENEOUS")),
    Fault(name="replica_unsynced", family="ranks", make=Unsynced, trainers=("plain",),
          recipe=_RANKS, kinds=("rank_divergence",),
          causes=("C.RANK.UNSYNCED", "C.SYNC.GRAD_WRONG", "C.SYNC.GRAD_RACE")),
    Fault(name="crash", family="ends", make=Crash, kinds=("crash",), metrics=(),
          causes=("C.CRASH.CODE",)),
    Fault(name="killed", family="ends", make=Killed, kinds=("killed", "crash"), metrics=(),
          causes=("C.HOSTMEM.OOM_KILLER", "C.LIFE.FAILURE", "C.LIFE.PLANNED")),
    Fault(name="disk_full", family="ends", make=DiskFull, on_save=True,
          kinds=("checkpoint_failed", "crash"), metrics=(), causes=("C.CKPT.DISK_FULL",)),
    Fault(name="moe_collapse", family="experts", make=Collapse, trainers=("megatron", "wandb", "tensorboard"),
          recipe={"experts": 4, "batch": 8}, metrics=("aux_loss/load_balancing_loss",),
          kinds=("expert_imbalance", "loss_spike", "loss_divergence", "grad_explosion"),
          causes=("C.MOE.COLLAPSE", "C.MOE.IMBALANCE")),
    Fault(name="healthy_pauses", family="healthy", make=Pauses, healthy=True, trainers=_TIMED,
          recipe=_REAL),
    Fault(name="healthy_replicas", family="healthy", healthy=True, trainers=("plain",),
          recipe=_RANKS),
    Fault(name="healthy_experts", family="healthy", healthy=True, trainers=("megatron", "wandb", "tensorboard"),
          recipe={"experts": 4, "batch": 8}),
)  # fmt: skip
