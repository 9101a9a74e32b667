"""A tiny language model that can be broken on purpose: builder, training loop, faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loganalyze.replay import stats
from loganalyze.replay.recipe import Precision, Step
from loganalyze.replay.recorder import Recorder
from loganalyze.replay.runner import total_norm

VOCAB, WIDTH, LENGTH, LAYERS = 32, 32, 16, 4
BUILDER = f"{__file__}:build"


class Block(nn.Module):
    """Pre-norm attention and feed-forward, with a residual each."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp_up, self.mlp_down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        heads = [t.unflatten(-1, (2, -1)).transpose(1, 2) for t in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.drop(self.proj(mixed.transpose(1, 2).flatten(2)))
        return x + self.mlp_down(F.gelu(self.mlp_up(self.norm2(x))))


class Tiny(nn.Module):
    """A language model of a few thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    """Mean cross-entropy of the next token; batch: int64 (samples, LENGTH + 1)."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def build(seed: int = 0, lr: float = 3e-3) -> Step:
    """Model, optimizer and loss, as a recipe's builder gives them."""
    torch.manual_seed(seed)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    return Step(model=model, optimizer=optimizer, loss_fn=loss_fn, clip=1.0)


def exploding(layer: str, at: int, factor: float = 100.0, seed: int = 0) -> Step:
    """A model whose layer multiplies its output from the `at`-th training step on."""
    made = build(seed)
    module = made.model.get_submodule(layer)
    module.register_buffer("count", torch.zeros(()))

    def hook(m: Any, given: Any, out: Tensor) -> Tensor:
        m.count.add_(1)
        return out * torch.where(m.count >= at, factor, 1.0)

    module.register_forward_hook(hook)
    return made


def overflowing(layer: str, at: int, seed: int = 0) -> Step:
    """A layer whose output leaves the range of fp16 for a moment, from a step on; fp32 holds it."""
    made = build(seed)
    module = made.model.get_submodule(layer)
    module.register_buffer("count", torch.zeros(()))

    def hook(m: Any, given: Any, out: Tensor) -> Tensor:
        m.count.add_(1)
        size = torch.where(m.count >= at, 1e6, 1.0).to(out.dtype)
        return (out * size) / size

    module.register_forward_hook(hook)
    return made


def hot(layer: str, factor: float = 300.0, seed: int = 0) -> Step:
    """One layer learns far too fast, in a parameter group of its own."""
    made = build(seed)
    fast = list(made.model.get_submodule(layer).parameters())
    known = {id(p) for p in fast}
    slow = [p for p in made.model.parameters() if id(p) not in known]
    groups = [{"params": slow}, {"params": fast, "lr": 3e-3 * factor}]
    made.optimizer = torch.optim.AdamW(groups, lr=3e-3)
    return made


def flip_bit(made: Step, name: str, index: int, bit: int = 30) -> None:
    """Flips one bit of one fp32 weight, as a faulty memory cell does."""
    flat = made.model.get_parameter(name).data.view(-1)
    bits = flat.view(torch.int32)
    bits[index] = bits[index] ^ (1 << bit)


def text(samples: int, generator: torch.Generator) -> Tensor:
    """Sequences in which each token follows from the last one, now and then by chance."""
    rows = [torch.randint(VOCAB, (samples,), generator=generator)]
    for _ in range(LENGTH):
        jump = torch.rand(samples, generator=generator) < 0.01
        other = torch.randint(VOCAB, (samples,), generator=generator)
        rows.append(torch.where(jump, other, (5 * rows[-1] + 3) % VOCAB))
    return torch.stack(rows, 1)


Fault = Callable[[int, Step, Tensor], Any]


def train(
    folder: Path, steps: int, *, samples: int = 16, seed: int = 0, lr: float = 3e-3,
    builder: Callable[[], Step] | None = None, fault: Fault | None = None,
    precision: Precision = "fp32", log: Path | None = None, tail: Path | None = None,
    go_on: bool = False, wide: tuple[int, int] = (0, 0), **options: Any,
) -> Recorder:  # fmt: skip
    """Trains with a recorder; `fault(step, made, batch)` may break anything before a step.

    wide: a step, and how many samples it has instead. Stops at the first capsule, as a run that
    went wrong does, unless it is to `go_on`.
    """
    made = builder() if builder is not None else build(seed, lr)
    recorder = Recorder(folder, made.model, made.optimizer, builder=BUILDER, clip=1.0,
                        precision=precision, stop=True, log=tail, **options)  # fmt: skip
    generator = torch.Generator().manual_seed(seed + 1)
    lines = []
    for number in range(1, steps + 1):
        count = wide[1] if number == wide[0] else samples
        batch = text(count, generator)
        if fault is not None:
            fault(number, made, batch)
        ids = [f"s{number}-{i}" for i in range(count)]
        with recorder.step(number, batch, sample_ids=ids, offset=number * samples) as record:
            loss, norm = one_step(made, batch, precision)
            record.log(loss=loss, grad_norm=norm)
        lines.append(f"step {number} loss {float(loss):.6f} grad_norm {float(norm):.4f}\n")
        if recorder.should_stop and not go_on:
            break
    if log is not None:
        log.write_text("".join(lines), encoding="utf-8")
    return recorder


def one_step(made: Step, batch: Tensor, precision: str = "fp32") -> tuple[Tensor, Tensor]:
    """Forward, backward, clip, update, as a plain loop writes it."""
    assert made.optimizer is not None
    made.optimizer.zero_grad()
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    with torch.autocast("cpu", types.get(precision, torch.bfloat16), enabled=precision in types):
        loss = made.loss_fn(made.model, batch)
    loss.backward()
    parameters = list(made.model.parameters())
    norm = (total_norm(parameters) if made.clip is None
            else nn.utils.clip_grad_norm_(parameters, made.clip))  # fmt: skip
    made.optimizer.step()
    return loss.detach(), norm


def rows_of(*tensors: Tensor, sample: int = stats.SAMPLE) -> list[dict[str, float]]:
    """The statistics of tensors that were reduced together."""
    made = stats.Rows(sample)
    for number, tensor in enumerate(tensors):
        made.add(number, tensor)
    found = [stats.settled(values) for values in made.table().tolist()]
    by_key = dict(zip(made.keys, found, strict=True))
    return [by_key[number] for number in range(len(tensors))]
