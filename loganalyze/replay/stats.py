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
#: Squares of numbers below this leave float32: a norm below it is not believed.
_FAINT = 1e-15


@torch.no_grad()
def row(tensor: Tensor, sample: int = SAMPLE) -> Tensor:
    """The COLUMNS of a tensor as float64 on its device; no synchronisation on a GPU.

    p50 and p99 are of absolute values, over some 4096 of them where there are more. near_max: at
    least half of the format's largest number; subnormal: below its smallest normal number.
    The norm of all values is summed in float32 (float64 for float64 tensors); where their squares
    leave that range, `transfer` puts the sample's in its place.
    """
    flat = tensor.detach().reshape(-1)
    if not flat.numel():
        return torch.zeros(len(COLUMNS), dtype=torch.float64, device=flat.device)
    some = flat[:: max(1, flat.numel() // sample)]
    finite = some.isfinite()
    clean = torch.where(finite, some, torch.zeros_like(some)).double()
    wide = torch.float64 if flat.dtype is torch.float64 else torch.float32
    norm = torch.linalg.vector_norm(flat, dtype=wide)
    whole = [
        flat.new_tensor(flat.numel(), dtype=torch.float64),
        _nonfinite(flat, norm),
        norm,
        torch.linalg.vector_norm(flat, math.inf, dtype=wide),
    ]
    largest = clean.abs().amax()
    taken = [_norm(clean, largest), largest]
    columns = [*whole, *_moments(clean, finite, torch.finfo(flat.dtype)), *taken]
    return torch.stack([column.double() for column in columns])


def _nonfinite(flat: Tensor, norm: Tensor) -> Tensor:
    """How many values are not finite; on the CPU a finite norm says none without counting."""
    if flat.device.type == "cpu" and math.isfinite(float(norm)):
        return torch.zeros(())
    return flat.numel() - flat.isfinite().sum()


def _norm(values: Tensor, largest: Tensor) -> Tensor:
    """The L2 norm in units of the largest value: squares neither overflow nor vanish."""
    unit = torch.where(largest > 0, largest, torch.ones_like(largest))
    norm: Tensor = torch.linalg.vector_norm(values / unit)
    return norm * unit


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
    return [settled(values) for values in table.tolist()]


def settled(values: Sequence[float]) -> dict[str, float]:
    """A row's values by name, its norm and largest value those of the finite numbers.

    Where the sample is the whole tensor, its float64 norm is taken. Where a tensor has non-finite
    values, or squares that leave float32, the norm is the sample's scaled to the size, at least the
    largest value: a finite tensor never gets an infinite norm.
    """
    row = dict(zip(COLUMNS, values, strict=True))
    norm, largest = row.pop("sample_l2"), row.pop("sample_absmax")
    if row["n"] + row["nonfinite"] >= row["size"]:
        row["l2"], row["absmax"] = norm, largest
        return row
    scaled = norm * math.sqrt(row["size"] / max(row["n"], 1.0))
    if row["nonfinite"]:
        row["l2"], row["absmax"] = scaled, largest
    elif not math.isfinite(row["l2"]) or row["l2"] < _FAINT:
        row["l2"] = max(scaled, row["absmax"])
    return row
