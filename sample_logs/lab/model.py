"""A byte-level GPT, small enough to train a thousand steps in half a minute on one core."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256
WIDTH, LAYERS, HEADS, LENGTH = 48, 2, 4, 48


class Block(nn.Module):
    """Pre-norm attention and feed-forward, causal."""

    def __init__(self, width: int, heads: int) -> None:
        """width is divided among heads."""
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.half = False  # round the feed-forward output to float16, as a half-precision run does

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same shape."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        grown = self.down(functional.gelu(self.up(self.norm2(x))))
        return x + (grown.half().float() if self.half else grown)


class TinyGPT(nn.Module):
    """Embeddings, blocks, and a head that shares no weights with them."""

    def __init__(self) -> None:
        """All sizes are small on purpose."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean cross-entropy in nats of predicting each next byte."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.tokens(inputs) + self.places(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
