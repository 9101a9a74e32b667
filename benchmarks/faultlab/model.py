"""A byte-level GPT small enough to train some hundred steps in seconds, dense or with experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.faultlab.recipe import Recipe

VOCABULARY = 256
HEADS = 4
PLACES = 512
Tap = Callable[[int, Tensor], Tensor]  # layer and its output -> what goes on


class Dense(nn.Module):
    """Feed-forward layer."""

    def __init__(self, width: int) -> None:
        """width in and out, four times as wide between."""
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same shape."""
        return cast(Tensor, self.down(functional.gelu(self.up(x))))


class Experts(nn.Module):
    """Top-1 mixture of feed-forward layers; `imbalance` is its balancing loss, 1 when even."""

    def __init__(self, width: int, experts: int) -> None:
        """Each expert is as wide as the model."""
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, width, 2 * width))
        self.down = nn.Parameter(torch.empty(experts, 2 * width, width))
        self.imbalance = torch.ones(())
        self.busiest = 0.0  # share of tokens of the busiest expert

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same shape."""
        odds = self.router(x).softmax(-1)
        weight, chosen = odds.max(-1)
        share = functional.one_hot(chosen, odds.shape[-1]).float()
        load = share.mean((0, 1))
        self.imbalance = (load * odds.mean((0, 1))).sum() * odds.shape[-1]
        self.busiest = float(load.max())
        inner = functional.gelu(torch.einsum("blw,ewh->bleh", x, self.up))
        out = torch.einsum("bleh,ehw,ble->blw", inner, self.down, share)
        return cast(Tensor, out * weight.unsqueeze(-1))


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, recipe: Recipe) -> None:
        """Sizes from the recipe."""
        super().__init__()
        width = recipe.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow = Experts(width, recipe.experts) if recipe.experts else Dense(width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, length, width) to the same shape; mask: (batch, 1, length, length), True sees."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        shape = (batch, length, HEADS, width // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (q, k, v))
        mixed = attention(q, k, v, mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return cast(Tensor, x + self.grow(self.norm2(x)))


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention; with a mask by hand, so that a row that sees nothing gives NaN as kernels do."""
    if mask is None:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


class LabGPT(nn.Module):
    """Embeddings, blocks, head. Faults reach in through `tap`, `mask` and `peek`."""

    def __init__(self, recipe: Recipe) -> None:
        """Initialised with the recipe's standard deviation, residual outputs scaled down."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, recipe.width)
        self.places = nn.Embedding(PLACES, recipe.width)
        self.blocks = nn.ModuleList(Block(recipe) for _ in range(recipe.layers))
        self.norm = nn.LayerNorm(recipe.width)
        self.head = nn.Linear(recipe.width, VOCABULARY, bias=False)
        self.tap: Tap | None = None
        self.mask: Tensor | None = None
        self.peek = False  # a short convolution padded on the wrong side: sees the next byte
        self.rounds = recipe.precision == "fp16"
        self._initialise(recipe.init_std)

    def _initialise(self, std: float) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            residual = name.endswith(("out.weight", "down.weight", "down"))
            nn.init.normal_(parameter, std=std / 2 if residual else std)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) bytes to (batch, length, 256) logits."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        if self.peek:
            x = x + 0.5 * self.tokens(tokens.roll(-1, 1))
        for number, block in enumerate(self.blocks):
            x = block(x, self.mask)
            if self.tap is not None:
                x = self.tap(number, x)
            if self.rounds:  # a half-precision run stores activations with float16's range
                x = x.half().float()
        return cast(Tensor, self.head(self.norm(x)))

    def block(self, number: int) -> Block:
        """One of the blocks."""
        return cast(Block, self.blocks[number])

    def dense(self, number: int) -> Dense:
        """The feed-forward layer of a block of a dense model."""
        return cast(Dense, self.block(number).grow)

    def mixtures(self) -> list[tuple[Block, Experts]]:
        """Blocks that have experts."""
        blocks = [self.block(k) for k in range(len(self.blocks))]
        return [(b, b.grow) for b in blocks if isinstance(b.grow, Experts)]

    def balance(self) -> Tensor | None:
        """Mean balancing loss of the experts; None for a dense model."""
        parts = [experts.imbalance for _, experts in self.mixtures()]
        return torch.stack(parts).mean() if parts else None


def cross_entropy(logits: Tensor, targets: Tensor, *, empty_is_nan: bool = True) -> Tensor:
    """Mean in nats over targets other than -100; without any, 0/0 or 0 as trainers differ."""
    flat, wanted = logits.reshape(-1, VOCABULARY), targets.reshape(-1)
    total = functional.cross_entropy(flat, wanted, ignore_index=-100, reduction="sum")
    count = (wanted != -100).sum()
    return total / (count if empty_is_nan else count.clamp(min=1))
