"""The black box: a few lines in a training loop; on a fault it leaves a capsule to replay.

recorder = Recorder("blackbox", model, optimizer, builder="train.py:build", clip=1.0)
for number, batch in enumerate(loader):
    with recorder.step(number, batch, sample_ids=ids) as record:
        ...forward, backward, clip, optimizer.step()...
        record.log(loss=loss, grad_norm=norm)
"""

from __future__ import annotations

import json
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from loganalyze.replay import batches, capsule, environment, state, storage
from loganalyze.replay.guard import Guard
from loganalyze.replay.recipe import Precision, Recorded
from loganalyze.replay.watch import Watch

_TAIL_BYTES = 20_000
_MAX_CAPSULES = 3
_LEAST_EVERY = 32  # steps between two copies of the state
_SHARE = 0.005  # of the time that such copies may take
_QUIET = 64  # steps after a capsule in which another fault is the same one
_ROWS = 32  # of steps.jsonl, written together


class Open:
    """One step while it runs."""

    def __init__(self, recorder: Recorder, step: int, given: Mapping[str, Any]) -> None:
        """Takes the state of the generators: the step begins here."""
        self._recorder = recorder
        self.number = step
        self.given = given
        self.micro_batches: list[Any] = []
        self.values: dict[str, Callable[[], float]] = {}
        self.rng = state.raw_rng(recorder.last_rng)
        self.bytes = 0
        self.peak_memory: list[int] = []
        self.lrs = recorder.lrs()

    def add(self, batch: Any) -> None:
        """One more micro-batch of this step; it is copied, so that loaders may reuse buffers."""
        held = state.copied(batch)
        self.micro_batches.append(held)
        self.bytes += sum(t.numel() * t.element_size() for t in batches.tensors_of(held))

    def log(self, **values: float | Tensor) -> None:
        """loss, grad_norm, loss_scale and whatever else is known; tensors don't block."""
        for name, value in values.items():
            self.values[name] = _later(value)

    def __enter__(self) -> Open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._recorder.close_step(self, error)


def _later(value: float | Tensor) -> Callable[[], float]:
    """A number, or a promise of one that is on its way from a GPU."""
    if not isinstance(value, Tensor):
        return lambda: float(value)
    held = value.detach()
    if not held.is_cuda:
        number = float(held)
        return lambda: number
    buffer = torch.empty((), dtype=held.dtype, pin_memory=True)
    buffer.copy_(held.reshape(()), non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()

    def arrived() -> float:
        event.synchronize()
        return float(buffer)

    return arrived


class Recorder:
    """Records steps into a bounded ring, and a capsule on NaN, spike or exception.

    ring, ring_bytes: steps and bytes of batches kept (and some 5 kB of generator state a step). Two
    copies of the state are held in the CPU's memory, snapshot_every steps apart; without a number
    as often as takes half a percent of the time, at least every 32 steps and before the ring is
    half full. stop: whether should_stop turns true after a fault; the loop decides what to do about
    it.
    """

    def __init__(
        self, folder: str | Path, model: nn.Module, optimizer: Optimizer | None = None, *,
        builder: str = "", precision: Precision = "fp32", clip: float | None = None,
        ring: int = 8192, ring_bytes: int = 1 << 30, snapshot_every: int | None = None,
        stop: bool = False,
        log: str | Path | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.model, self.optimizer = Path(folder), model, optimizer
        self.builder, self.precision, self.clip = builder, precision, clip
        self.ring, self.ring_bytes = max(ring, 2 * (snapshot_every or 1)), ring_bytes
        self.snapshot_every, self.stop = snapshot_every, stop
        self.should_stop = False
        self.capsules: list[Path] = []
        self.last_rng: state.RawRng | None = None
        self._log = Path(log) if log else None
        self._steps: deque[Open] = deque()
        self._snapshots: deque[tuple[int, state.Snapshot]] = deque(maxlen=2)
        self._waiting: deque[Open] = deque()
        self._watch = Watch()
        self.guard: Guard | None = None
        self._since = self._since_bytes = self._held_bytes = 0
        self._rested = 0.0
        self._quiet_until = -1
        self._rows: list[str] = []

    def lrs(self) -> tuple[float, ...]:
        """Learning rate of each parameter group."""
        groups = self.optimizer.param_groups if self.optimizer is not None else ()
        return tuple(float(group["lr"]) for group in groups)

    def step(
        self, number: int, batch: Any = None, *, micro_batches: Sequence[Any] = (),
        sample_ids: Sequence[object] = (), seed: int | None = None, offset: int | None = None,
    ) -> Open:  # fmt: skip
        """Opens a step: before its forward pass, after its batch was loaded."""
        if self.guard is None and self.optimizer is not None:
            self.guard = Guard(self.model, self.optimizer)
        if self._due():
            self._snapshot(number)
        self._since += 1
        given = {"sample_ids": tuple(map(str, sample_ids)), "seed": seed, "offset": offset}
        opened = Open(self, number, given)
        self.last_rng = opened.rng
        for item in micro_batches or ([batch] if batch is not None else []):
            opened.add(item)
        return opened

    def _due(self) -> bool:
        """Whether the state is to be copied before this step."""
        if not self._snapshots or 2 * self._since_bytes >= self.ring_bytes:
            return True
        if self.snapshot_every is not None:
            return self._since >= self.snapshot_every
        rested = self._since >= _LEAST_EVERY and time.perf_counter() >= self._rested
        return rested or 2 * self._since >= self.ring

    def _snapshot(self, number: int) -> None:
        begun = time.perf_counter()
        self._snapshots.append((number, state.take(self.model, self.optimizer, "cpu")))
        ended = time.perf_counter()
        self._rested = ended + (ended - begun) / _SHARE
        self._since = self._since_bytes = 0

    def close_step(self, opened: Open, error: BaseException | None) -> None:
        """Ends a step; called by its context."""
        self._steps.append(opened)
        self._since_bytes += opened.bytes
        self._held_bytes += opened.bytes
        self._trim()
        if error is not None:
            self._fault("exception", opened, f"{type(error).__name__}: {error}")
            self.flush()
            return
        opened.peak_memory = state.peak_memory()
        self._waiting.append(opened)
        lag = 1 if state.cuda_in_use() else 0
        while len(self._waiting) > lag:
            self._judge(self._waiting.popleft(), current=lag == 0)

    def capture(self) -> Path | None:
        """Writes a capsule of the last step now, because you ask for it."""
        if not self._steps:
            return None
        while self._waiting:
            self._judge(self._waiting.popleft(), current=False)
        return self._fault("asked", self._steps[-1], "", after=True)

    def flush(self) -> None:
        """Writes the rows that wait for steps.jsonl."""
        if self._rows:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "steps.jsonl").open("a", encoding="utf-8") as file:
                file.write("".join(self._rows))
            self._rows.clear()

    def close(self) -> None:
        """Writes what waits and lets go of the optimizer; the next step would take hold again."""
        self.flush()
        if self.guard is not None:
            self.guard.close()
            self.guard = None

    def _judge(self, opened: Open, *, current: bool) -> None:
        values = {name: value() for name, value in opened.values.items()}
        self._row(opened, values)
        reason = self._watch.see(values)
        if reason:
            self._fault(reason, opened, "", after=current)
            self.flush()

    def _row(self, opened: Open, values: Mapping[str, float]) -> None:
        given = {key: value for key, value in opened.given.items() if value not in (None, ())}
        row = {"step": opened.number, **values, **given}
        if opened.lrs:
            row["lr"] = opened.lrs[0]
        if opened.peak_memory:
            row["peak_memory_bytes"] = max(opened.peak_memory)
            row["peak_memory_bytes_by_device"] = opened.peak_memory
        self._rows.append(json.dumps(row) + "\n")  # NaN as trainers write it
        if len(self._rows) >= _ROWS:
            self.flush()

    def _trim(self) -> None:
        """Holds the ring to its bounds; steps older than the older snapshot serve nobody."""
        oldest = self._snapshots[0][0]
        while len(self._steps) > 1 and (
            len(self._steps) > self.ring or self._steps[0].number < oldest
        ):
            self._drop()
        while len(self._steps) > 1 and self._held_bytes > self.ring_bytes:
            self._drop()

    def _drop(self) -> None:
        self._held_bytes -= self._steps.popleft().bytes

    def _fault(self, reason: str, opened: Open, text: str, *, after: bool = False) -> Path | None:
        self.should_stop = self.should_stop or (self.stop and reason != "asked")
        known = opened.number < self._quiet_until or len(self.capsules) >= _MAX_CAPSULES
        if known and reason not in ("exception", "asked"):
            return None
        made = self._capsule(reason, opened, text, after)
        if made is None:
            return None
        try:
            path = capsule.write(self.folder / f"capsule-{opened.number}", made)
        except (OSError, storage.NotPlain) as error:  # a black box never brings its plane down
            warnings.warn(f"loganalyze: no capsule of step {opened.number}: {error}", stacklevel=4)
            return None
        self._quiet_until = opened.number + _QUIET
        self.capsules.append(path)
        return path

    def _capsule(self, reason: str, opened: Open, text: str, after: bool) -> capsule.Capsule | None:
        """From the newest snapshot that leaves two steps before the suspect, else the oldest."""
        held = {step.number for step in self._steps}
        usable = [pair for pair in self._snapshots if pair[0] in held and pair[0] <= opened.number]
        early = [pair for pair in usable if pair[0] <= opened.number - 2]
        if not usable:
            return None
        start, snapshot = early[-1] if early else usable[0]
        steps = [step for step in self._steps if start <= step.number <= opened.number]
        kept = state.take(self.model, None, "cpu").tensors if after else {}
        healthy = self.guard.kept if after and self.guard is not None else {}
        return capsule.Capsule(
            reason=reason, step=opened.number, snapshot=snapshot, text=text,
            steps=tuple(_recorded(step) for step in steps), precision=self.precision,
            clip=self.clip, builder=self.builder, history=tuple(self._watch.losses),
            log_tail=_tail(self._log), after=kept, held=healthy, environment=environment.capture(),
            extra={
                step.number: {"offset": step.given["offset"], "peak_memory": step.peak_memory}
                for step in steps
            },
        )  # fmt: skip


def _recorded(opened: Open) -> Recorded:
    values = {name: value() for name, value in opened.values.items()}
    scale = values.pop("loss_scale", None)
    return Recorded(
        step=opened.number, micro_batches=tuple(opened.micro_batches),
        sample_ids=opened.given["sample_ids"], seed=opened.given["seed"],
        rng=state.pack_state(*opened.rng),
        hashes=tuple(h for item in opened.micro_batches for h in batches.sample_hashes(item)),
        lrs=opened.lrs, loss_scale=scale, values=values,
    )  # fmt: skip


def _tail(path: Path | None) -> str:
    if path is None or not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
