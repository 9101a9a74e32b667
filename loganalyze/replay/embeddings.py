"""Embedding tables: how unequal their rows are, how many directions they use, how far they moved.

The fifth level of the pyramid of observability; one row of numbers for each table.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Rows that are looked at, evenly spaced; also the most that the effective rank can be.
ROWS = 512
_NUMBERS = ("norm_mean", "norm_spread", "norm_min", "norm_max", "drift", "turned")


def tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """The embedding tables of a model by module name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Embedding)}


@torch.no_grad()
def look(weight: Tensor, reference: Tensor | None) -> tuple[Tensor, Tensor]:
    """Numbers of a table (vocabulary, width), and the Gram matrix that its rank is read from."""
    step = max(1, -(-weight.shape[0] // ROWS))
    rows = weight.detach()[::step].float()
    norms = torch.linalg.vector_norm(rows, dim=1)
    middle = norms.mean()
    spread = norms.std(correction=0) / middle.clamp(min=1e-30)
    moved = rows.new_full((2,), torch.nan)
    if reference is not None:
        then = reference.detach()[::step].to(rows.device).float()
        drift = torch.linalg.vector_norm(rows - then) / torch.linalg.vector_norm(then)
        moved = torch.stack([drift, 1 - torch.cosine_similarity(rows, then, dim=1).mean()])
    numbers = torch.cat([torch.stack([middle, spread, norms.amin(), norms.amax()]), moved])
    return numbers, rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows


def told(numbers: Tensor, gram: Tensor, weight: Tensor) -> dict[str, float]:
    """What is shown of a table, over at most ROWS of its rows.

    norm_spread: standard deviation of the rows' norms over their mean. drift: norm of the change
    since the checkpoint over the norm there; turned: mean of 1 - cosine between rows then and now;
    NaN without a checkpoint. rank_limit: what the effective rank can be at most.
    """
    made = dict(zip(_NUMBERS, numbers.tolist(), strict=True))
    return {
        **made, "effective_rank": effective_rank(gram), "rank_limit": float(gram.shape[0]),
        "rows": float(weight.shape[0]), "width": float(weight.shape[1]),
    }  # fmt: skip


def effective_rank(gram: Tensor) -> float:
    """exp of the entropy of the singular values' shares (Roy & Vetterli 2007); NaN if not finite.

    gram: X X^T or X^T X, whose eigenvalues are the squares of the singular values of X.
    """
    if not bool(gram.isfinite().all()):
        return float("nan")
    values = torch.linalg.eigvalsh(gram.double()).clamp(min=0).sqrt()
    total = values.sum()
    if not float(total) > 0:
        return 0.0
    return float(torch.special.entr(values / total).sum().exp())
