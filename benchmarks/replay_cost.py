"""What recording and measuring cost beside the bare loop: `python benchmarks/replay_cost.py`.

Runs on the GPU in bf16 where there is one (a model of 1.2 billion parameters), else on the CPU in
fp32 (7 million); `--large` takes the large model on the CPU as well (some 25 GB). Parts can be
named: times, recorder, memory. Prints median seconds a step (bare, instrumented), the recorder's own share of the
time of a recorded loop, copies of the state included, and the memory beside the bare step.
`--gpu-gate` fails where statistics cost over 1.5 times the bare step.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers")]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from loganalyze.replay import Recorder, Step  # noqa: E402
from loganalyze.replay.instruments import Probe  # noqa: E402
from loganalyze.replay.recipe import Recorded  # noqa: E402
from loganalyze.replay.runner import run_step  # noqa: E402

VOCAB = 8_000
PARTS = ("times", "recorder", "memory")


def clock() -> float:
    """Seconds on the wall with a GPU; of the process, which runs one thread, without."""
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        split = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A plain language model."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    """Mean cross-entropy of the next token."""
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())


def main() -> None:
    """Measure and print."""
    gpu = torch.cuda.is_available()
    if not gpu:
        torch.set_num_threads(1)
    large = gpu or "--large" in sys.argv
    width, layers, heads = (2048, 22, 16) if large else (256, 4, 4)
    samples, length = (8, 1024) if gpu else (4, 128)
    parts = [part for part in PARTS if part in sys.argv] or PARTS
    device = "cuda" if gpu else "cpu"
    model = Model(width, layers, heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randint(VOCAB, (samples, length + 1), device=device)
    step = Step(model=model, optimizer=optimizer, loss_fn=loss_fn, clip=1.0,
                precision="bf16" if gpu else "fp32")  # fmt: skip
    data = Recorded(step=1, micro_batches=(batch,))
    count = sum(p.numel() for p in model.parameters())
    print(f"{count / 1e6:.0f} M parameters, {samples} x {length} tokens, {device}")
    if "times" in parts:
        compared(step, data)
    if "recorder" in parts:
        own, loop = recorded(step, data, 40 if gpu else 64)
        print(f"recorder      {own:.4f} s of {loop:.1f} s, {own / (loop - own):.2%} of the bare loop")
    if "memory" in parts:
        memory(step, data, gpu)


def compared(step: Step, data: Recorded) -> None:
    """Prints seconds of the step, bare and with all statistics; `--gpu-gate` may fail."""
    times = measured(bare=lambda: run_step(step, data), instrumented=lambda: instrumented(step, data))
    bare = times["bare"]
    for name, seconds in times.items():
        print(f"{name:13s} {seconds:.4f} s  {seconds / bare:.3f} x")
    if "--gpu-gate" in sys.argv and times["instrumented"] > 1.5 * bare:
        raise SystemExit("statistics cost more than 1.5 times the bare step")


def recorded(step: Step, data: Recorded, steps: int) -> tuple[float, float]:
    """Seconds in the recorder, with its defaults, and of the whole loop; the first step is left out.

    Its copy of the state is the one that every run begins with.
    """
    own = 0.0
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, step.model, step.optimizer)
        for number in range(steps + 1):
            if number == 1:
                own, begun = 0.0, clock()
            entered = clock()
            record = recorder.step(number, data.micro_batches[0])
            own += clock() - entered
            outcome = run_step(step, data)
            entered = clock()
            with record:
                record.log(loss=outcome.loss, grad_norm=outcome.grad_norm)
            own += clock() - entered
        whole = clock() - begun
        if recorder.guard is not None:  # it ran inside the optimizer's step
            entered = clock()
            for _ in range(100):
                recorder.guard.look()
            own += (clock() - entered) / 100 * steps
    return own, whole


def memory(step: Step, data: Recorded, gpu: bool) -> None:
    """Prints the peak beside the bare step: allocated on a GPU, resident on the CPU."""
    peaks = [peak(lambda: run_step(step, data), gpu), peak(lambda: instrumented(step, data), gpu)]
    weights = sum(p.numel() * p.element_size() for p in step.model.parameters())
    more = peaks[1] - peaks[0]
    print(f"memory        {peaks[0] / 2**20:.0f} MiB, with statistics {peaks[1] / 2**20:.0f} MiB: "
          f"{more / 2**20:+.0f} MiB, {more / weights:.2f} x the weights")  # fmt: skip


def peak(run: Callable[[], object], gpu: bool) -> float:
    """Most bytes in use while something runs; on the CPU sampled from /proc every millisecond."""
    if gpu:
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated())
    most, over = [0], threading.Event()

    def watch() -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not over.is_set():
            most[0] = max(most[0], int(Path("/proc/self/statm").read_text().split()[1]) * page)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    over.set()
    watcher.join()
    return float(most[0])


def instrumented(step: Step, data: Recorded) -> None:
    """A step with all statistics."""
    with Probe(step.model) as probe:
        run_step(step, data, probe)
    probe.result()


def measured(**variants: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each variant, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(6):
        for name, run in variants.items():
            begun = clock()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:
                times[name].append(clock() - begun)
    return {name: median(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
