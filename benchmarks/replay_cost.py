"""What recording and measuring cost beside the bare loop: `python benchmarks/replay_cost.py`.

Runs on the GPU in bf16 where there is one (a model of 1.2 billion parameters), else on the CPU in
fp32 (8 million). Prints median seconds a step: bare, recorded, instrumented.
"""

from __future__ import annotations

import sys
import tempfile
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
    width, layers, heads, samples, length = (2048, 22, 16, 8, 1024) if gpu else (256, 4, 4, 4, 128)
    device = "cuda" if gpu else "cpu"
    model = Model(width, layers, heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randint(VOCAB, (samples, length + 1), device=device)
    step = Step(model=model, optimizer=optimizer, loss_fn=loss_fn, clip=1.0,
                precision="bf16" if gpu else "fp32")  # fmt: skip
    data = Recorded(step=1, micro_batches=(batch,))
    count = sum(p.numel() for p in model.parameters())
    print(f"{count / 1e6:.0f} M parameters, {samples} x {length} tokens, {device}")
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, model, optimizer, snapshot_every=10_000)
        interleaved = measured(
            bare=lambda: run_step(step, data),
            recorded=lambda: recorded(recorder, step, data),
            instrumented=lambda: instrumented(step, data),
        )
    bare = interleaved["bare"]
    for name, seconds in interleaved.items():
        print(f"{name:13s} {seconds:.4f} s  {seconds / bare:.4f} x")
    own = alone(step, batch)
    print(f"recorder itself {own:.6f} s a step, {own / bare:.3%}")
    if gpu:
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def recorded(recorder: Recorder, step: Step, data: Recorded) -> None:
    """A step inside the recorder."""
    with recorder.step(data.step, data.micro_batches[0]) as record:
        outcome = run_step(step, data)
        record.log(loss=outcome.loss, grad_norm=outcome.grad_norm)


def instrumented(step: Step, data: Recorded) -> None:
    """A step with all statistics."""
    with Probe(step.model) as probe:
        run_step(step, data, probe)
    probe.result()


def alone(step: Step, batch: Tensor) -> float:
    """Seconds of the recorder without the step in it."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, step.model, None, snapshot_every=10_000)
        times = []
        for number in range(60):
            begun = time.perf_counter()
            with recorder.step(number, batch) as record:
                record.log(loss=1.0, grad_norm=1.0)
            times.append(time.perf_counter() - begun)
    return median(times)


def measured(**variants: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each variant, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(6):
        for name, run in variants.items():
            begun = time.perf_counter()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:
                times[name].append(time.perf_counter() - begun)
    return {name: median(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
