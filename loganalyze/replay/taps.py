"""Listens to two functions while a model runs: cross-entropy (samples) and attention (logits)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_BATCH_SAMPLE, _QUERIES_SAMPLE = 2, 64


class Heard(NamedTuple):
    """Token losses of a micro-batch (samples, tokens), and which of them count."""

    losses: Tensor
    counted: Tensor


class Taps(TorchFunctionMode):
    """Records token losses and attention statistics; changes no result."""

    def __init__(
        self, where: Callable[[], str], looking: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """where: gives the name of the layer that is running; looking: counts the time in it."""
        super().__init__()
        self._where, self._looking = where, looking
        self._samples = 0  # of the micro-batch that is running
        self._number = 0
        self._heard: dict[int, Heard] = {}
        self.attention: list[tuple[str, Tensor]] = []  # layer, (heads, [entropy, largest logit])

    @property
    def token_losses(self) -> list[Heard]:
        """The last cross-entropy call of each micro-batch, in their order."""
        return list(self._heard.values())

    def next_batch(self, samples: int) -> None:
        """A micro-batch of so many samples begins."""
        self._samples, self._number = samples, self._number + 1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Runs the function as it is; then looks at its arguments without a graph."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        look = (
            self._losses if func is F.cross_entropy
            else self._attended if func is F.scaled_dot_product_attention else None
        )  # fmt: skip
        if look is not None:
            with torch.no_grad(), torch._C.DisableTorchFunction(), self._looking():
                look(result, *args, **kwargs)
        return result

    def _losses(
        self, result: Tensor, input: Tensor, target: Tensor, *rest: Any, **options: Any
    ) -> None:
        if target.is_floating_point() or not self._samples or target.numel() % self._samples:
            return
        ignored = options.get("ignore_index", rest[2] if len(rest) > 2 else -100)
        smoothing = options.get("label_smoothing", 0.0)
        counted = target != ignored
        kept = _log_chances(result, input) if not smoothing else None
        if kept is not None:
            picked = kept.gather(1, torch.where(counted, target, 0)[:, None])[:, 0]
            losses = torch.where(counted, -picked, 0.0)
        else:
            losses = F.cross_entropy(
                input.detach().float(), target, reduction="none", ignore_index=ignored,
                label_smoothing=smoothing,
            )  # fmt: skip
        shape = (self._samples, -1)
        counted = counted.reshape(shape)
        self._heard[self._number] = Heard(losses.reshape(shape), counted)

    def _attended(
        self, result: Tensor, query: Tensor, key: Tensor, value: Tensor,
        attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
        scale: float | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """Entropy (nats, mean over queries) and largest logit per head, over a sample."""
        if query.ndim != 4 or query.shape[1] % key.shape[1]:
            return
        length = query.shape[2]
        picked = torch.arange(0, length, max(1, length // _QUERIES_SAMPLE), device=query.device)
        factor = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
        q = query.detach()[:_BATCH_SAMPLE, :, picked].float()
        k = key.detach()[:_BATCH_SAMPLE].float()
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)  # grouped queries share their keys
        logits = q @ k.transpose(-1, -2) * factor + _mask(k, picked, attn_mask, is_causal)
        chances = logits.softmax(-1).nan_to_num(0.0)  # a query that sees no key (padding)
        entropy = torch.special.entr(chances).sum(-1).mean((0, 2))
        self.attention.append((self._where(), torch.stack([entropy, logits.amax((0, 2, 3))], 1)))


def _log_chances(result: Tensor, logits: Tensor) -> Tensor | None:
    """The log-softmax that a cross-entropy keeps for its backward pass, of (tokens, classes).

    None where it isn't found: it is then computed again, which costs as much memory as the logits.
    """
    node: Any = result.grad_fn
    while node is not None and type(node).__name__ != "LogSoftmaxBackward0":
        following = node.next_functions
        loss = type(node).__name__.startswith("NllLoss")
        node = following[0][0] if loss and following else None
    kept = getattr(node, "_saved_result", None)
    if not isinstance(kept, Tensor) or kept.ndim != 2 or kept.shape != logits.shape:
        return None
    return kept if kept.dtype in (torch.float32, torch.float64) else None


def _mask(keys: Tensor, picked: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """What is added to the logits, (1 or samples, 1 or heads, queries, keys); -inf hides a key."""
    places = torch.arange(keys.shape[2], device=keys.device)
    none = keys.new_zeros(())
    if is_causal:
        return none.masked_fill(places[None, None, None] > picked[:, None], -math.inf)
    if mask is None:
        return none
    whole = mask.detach().expand(*((1,) * (4 - mask.ndim)), *mask.shape)[: keys.shape[0]]
    rows = whole[:, :, picked] if whole.shape[2] > 1 else whole
    return none.masked_fill(~rows, -math.inf) if rows.dtype is torch.bool else rows.float()
