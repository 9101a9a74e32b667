"""Statistics of one tensor as one row on its device; many rows, one transfer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

#: Columns of a row. Moments, quantiles and shares are of finite values; m2..m4 are sums of powers
#: of deviations from the mean over `n` sampled values; l2, absmax, nonfinite are of all values.
#: The sample_ ones never leave `transfer`.
COLUMNS = (
    "size", "nonfinite", "l2", "absmax", "n", "mean", "m2", "m3", "m4",
    "zeros", "near_max", "subnormal", "p50", "p99", "sample_l2", "sample_absmax",
)  # fmt: skip
#: Values beyond which moments, shares and quantiles are of every k-th value.
SAMPLE = 1 << 16
_QUANTILES = 1 << 12


@torch.no_grad()
def row(tensor: Tensor, sample: int = SAMPLE) -> Tensor:
    """The COLUMNS of a tensor: float64 on the CPU, float32 elsewhere; no synchronisation.

    p50 and p99 are of absolute values, over some 4096 of them where there are more. near_max: at
    least half of the format's largest number; subnormal: below its smallest normal number.
    """
    flat = tensor.detach().reshape(-1)
    wide = torch.float64 if flat.device.type == "cpu" else torch.float32
    if not flat.numel():
        return torch.zeros(len(COLUMNS), dtype=wide, device=flat.device)
    some = flat[:: max(1, flat.numel() // sample)]
    finite = some.isfinite()
    clean = torch.where(finite, some, torch.zeros_like(some)).to(wide)
    norm = torch.linalg.vector_norm(flat, dtype=torch.float32)
    whole = [
        flat.new_tensor(flat.numel(), dtype=wide),
        _nonfinite(flat, norm),
        norm,
        torch.linalg.vector_norm(flat, math.inf, dtype=torch.float32),
    ]
    taken = [torch.linalg.vector_norm(clean), clean.abs().amax()]
    columns = [*whole, *_moments(clean, finite, torch.finfo(flat.dtype)), *taken]
    return torch.stack([column.to(wide) for column in columns])


def _nonfinite(flat: Tensor, norm: Tensor) -> Tensor:
    """How many values are not finite; on the CPU a finite norm says none without counting."""
    if flat.device.type == "cpu" and math.isfinite(float(norm)):
        return torch.zeros(())
    return flat.numel() - flat.isfinite().sum()


def _moments(values: Tensor, finite: Tensor, info: torch.finfo) -> list[Tensor]:
    n = finite.sum()
    mean = values.sum() / n.clamp(min=1)
    gap = torch.where(finite, values - mean, torch.zeros_like(values))
    square = gap * gap
    size = values.abs()
    zeros = ((size == 0) & finite).sum()
    tiny = ((size > 0) & (size < info.tiny)).sum()
    quantiles = _quantiles(size[:: max(1, values.numel() // _QUANTILES)])
    return [
        n, mean, square.sum(), (square * gap).sum(), (square * square).sum(),
        zeros, (size >= info.max / 2).sum(), tiny, *quantiles,
    ]  # fmt: skip


def _quantiles(size: Tensor) -> tuple[Tensor, Tensor]:
    ordered = size.sort().values
    last = ordered.numel() - 1
    picked = []
    for q in (0.5, 0.99):
        low = math.floor(q * last)
        part = q * last - low
        high = min(low + 1, last)
        picked.append(ordered[low] + part * (ordered[high] - ordered[low]))
    return picked[0], picked[1]


def merged(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Rows of several tensors as one: sums, maxima, pooled moments (Chan et al. 1979, Pébay 2008).

    Quantiles are the largest of the rows': those of a union can't be known.
    """
    total = dict(rows[0])
    for other in rows[1:]:
        total = _pooled(total, other)
    return total


def _pooled(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    na, nb = a["n"], b["n"]
    n = na + nb
    out = {key: a[key] + b[key] for key in ("size", "nonfinite", "zeros", "near_max", "subnormal")}
    out |= {key: max(a[key], b[key]) for key in ("absmax", "p50", "p99")}
    out["l2"], out["n"] = math.hypot(a["l2"], b["l2"]), n
    if not n:
        return out | dict.fromkeys(("mean", "m2", "m3", "m4"), 0.0)
    d = b["mean"] - a["mean"]
    out["mean"] = a["mean"] + d * nb / n
    out["m2"] = a["m2"] + b["m2"] + d**2 * na * nb / n
    out["m3"] = (a["m3"] + b["m3"] + d**3 * na * nb * (na - nb) / n**2
                 + 3 * d * (na * b["m2"] - nb * a["m2"]) / n)  # fmt: skip
    out["m4"] = (a["m4"] + b["m4"] + d**4 * na * nb * (na * na - na * nb + nb * nb) / n**3
                 + 6 * d**2 * (na * na * b["m2"] + nb * nb * a["m2"]) / n**2
                 + 4 * d * (na * b["m3"] - nb * a["m3"]) / n)  # fmt: skip
    return out


def summary(row: Mapping[str, float]) -> dict[str, float]:
    """What is shown of a row: rms, mean, var, kurtosis, shares.

    kurtosis: fourth standardised moment, 3 for a normal distribution; NaN without spread.
    """
    n, size = max(row["n"], 1.0), max(row["size"], 1.0)
    var = row["m2"] / n
    return {
        "l2": row["l2"], "rms": row["l2"] / math.sqrt(size), "mean": row["mean"], "var": var,
        "absmax": row["absmax"], "kurtosis": row["m4"] / n / var**2 if var > 1e-300 else math.nan,
        "p50": row["p50"], "p99": row["p99"], "zero_share": row["zeros"] / n,
        "nonfinite": row["nonfinite"], "near_max_share": row["near_max"] / n,
        "subnormal_share": row["subnormal"] / n, "size": row["size"],
    }  # fmt: skip


def transfer(rows: Sequence[Tensor]) -> list[dict[str, float]]:
    """All rows to the host in one copy."""
    if not rows:
        return []
    table = torch.stack([item.to(rows[0].device) for item in rows]).cpu().double()
    return [_settled(dict(zip(COLUMNS, values, strict=True))) for values in table.tolist()]


def _settled(row: dict[str, float]) -> dict[str, float]:
    """Norm and largest value of the finite numbers: the sample's where it is whole or some aren't.

    With non-finite values among many the norm is the sample's, scaled to the size.
    """
    norm, largest = row.pop("sample_l2"), row.pop("sample_absmax")
    whole = row["n"] + row["nonfinite"] >= row["size"]
    if whole or row["nonfinite"]:
        share = 1.0 if whole else row["size"] / max(row["n"], 1.0)
        row["l2"], row["absmax"] = norm * math.sqrt(share), largest
    return row
