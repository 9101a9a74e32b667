"""Listens to two functions while a model runs: cross-entropy (samples) and attention (logits)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_BATCH_SAMPLE, _QUERIES_SAMPLE = 2, 64


class Taps(TorchFunctionMode):
    """Records token losses (samples, tokens) and attention statistics; changes no result."""

    def __init__(self, where: Callable[[], str]) -> None:
        """where: gives the name of the layer that is running."""
        super().__init__()
        self._where = where
        self.samples = 0  # of the micro-batch that is running; set by the probe
        self.token_losses: list[tuple[int, Tensor, Tensor]] = []  # samples, losses, counted
        self.attention: list[tuple[str, Tensor]] = []  # layer, (heads, [entropy, largest logit])

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Runs the function as it is; then looks at its arguments without a graph."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is F.cross_entropy:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._losses(*args, **kwargs)
        elif func is F.scaled_dot_product_attention:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._attended(*args, **kwargs)
        return result

    def _losses(self, input: Tensor, target: Tensor, *rest: Any, **options: Any) -> None:
        if target.is_floating_point() or not self.samples or target.numel() % self.samples:
            return
        ignored = options.get("ignore_index", rest[2] if len(rest) > 2 else -100)
        losses = F.cross_entropy(
            input.detach().float(), target, reduction="none", ignore_index=ignored,
            label_smoothing=options.get("label_smoothing", 0.0),
        )  # fmt: skip
        shape = (self.samples, -1)
        counted = (target != ignored).reshape(shape)
        self.token_losses.append((self.samples, losses.reshape(shape), counted))

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        """Entropy (nats, mean over queries) and largest logit per head, over a sample."""
        if query.ndim != 4 or query.shape[1] != key.shape[1]:
            return
        some = slice(0, _BATCH_SAMPLE)
        length = query.shape[2]
        picked = torch.arange(0, length, max(1, length // _QUERIES_SAMPLE), device=query.device)
        factor = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
        q = query.detach()[some, :, picked].float()
        logits = q @ key.detach()[some].float().transpose(-1, -2) * factor
        hidden = _hidden(logits, picked, attn_mask, is_causal)
        logits = logits.masked_fill(hidden, -math.inf)
        chances = logits.softmax(-1)
        entropy = -(chances * chances.clamp(min=1e-30).log()).sum(-1).mean((0, 2))
        self.attention.append((self._where(), torch.stack([entropy, logits.amax((0, 2, 3))], 1)))


def _hidden(logits: Tensor, picked: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """Which keys a query may not see, (1 or samples, 1 or heads, queries, keys)."""
    keys = torch.arange(logits.shape[-1], device=logits.device)
    if is_causal:
        return keys[None, None, None] > picked[:, None]
    if mask is None or mask.dtype is not torch.bool:
        return torch.zeros((), dtype=torch.bool, device=logits.device)
    whole = mask.expand(*((1,) * (4 - mask.ndim)), *mask.shape)[: logits.shape[0]]
    rows = whole[:, :, picked] if whole.shape[2] > 1 else whole
    return ~rows
