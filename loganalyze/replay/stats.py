"""Statistics of tensors, a row each, on their device: many in one call, one transfer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Columns of a row. Moments, quantiles and shares are of finite values; m2..m4 are sums of powers
#: of deviations from the mean over `n` sampled values; l2, absmax, nonfinite are of all values.
#: The sample_ ones never leave `settled`.
COLUMNS = (
    "size", "nonfinite", "l2", "absmax", "n", "mean", "m2", "m3", "m4",
    "zeros", "near_max", "subnormal", "p50", "p99", "sample_l2", "sample_absmax",
)  # fmt: skip
#: Values beyond which moments, shares and quantiles are of every k-th value.
SAMPLE = 1 << 13
_QUANTILES = 1 << 12
#: Sampled values that wait to be reduced together: few calls, little memory.
_WAITING = 1 << 21
#: Squares of numbers below this leave float32: a norm below it is not believed.
_FAINT = 1e-15


class Taken(NamedTuple):
    """A tensor's sample; `whole`: [nonfinite, l2, absmax] of all values, None if sampled whole."""

    size: int
    some: Tensor
    whole: Tensor | None


class Rows:
    """Rows of many tensors, reduced together: tensors of one size and format in the same calls.

    What waits is copied, so that tensors may change or go; nothing waits for a GPU.
    """

    def __init__(self, sample: int = SAMPLE) -> None:
        """sample: see SAMPLE."""
        self._sample = sample
        self._groups: dict[Any, list[tuple[Any, Taken]]] = {}
        self._done: list[Tensor] = []
        self._waiting = 0
        self.keys: list[Any] = []  # of the table's rows, once it was asked for

    def add(self, key: Any, tensor: Tensor) -> None:
        """Samples one more tensor; key: what it is."""
        made = taken(tensor, self._sample)
        alike = (made.size, made.some.dtype, made.some.device)
        self._groups.setdefault(alike, []).append((key, made))
        self._waiting += made.some.numel()
        if self._waiting >= _WAITING:
            self._reduce()

    def _reduce(self) -> None:
        for group in self._groups.values():
            self.keys += [key for key, _ in group]
            self._done.append(reduced([made for _, made in group]))
        self._groups.clear()
        self._waiting = 0

    def table(self) -> Tensor:
        """float64 (tensors, len(COLUMNS)), a row for each of `keys`; on the first's device."""
        self._reduce()
        if not self._done:
            return torch.zeros(0, len(COLUMNS), dtype=torch.float64)
        device = self._done[0].device
        return torch.cat([part.to(device) for part in self._done])


@torch.no_grad()
def taken(tensor: Tensor, sample: int = SAMPLE) -> Taken:
    """A copy of every k-th value, and what has to be of all; no synchronisation on a GPU.

    The norm of all values is summed in float32 (float64 for float64 tensors); where their squares
    leave that range, `settled` puts the sample's in its place.
    """
    flat = tensor.detach().reshape(-1)
    step = _stride(flat.numel(), sample)
    if step == 1:
        return Taken(flat.numel(), flat.clone(), None)
    wide = torch.float64 if flat.dtype is torch.float64 else torch.float32
    norm = torch.linalg.vector_norm(flat, dtype=wide)
    least, most = torch.aminmax(flat)
    whole = torch.stack([
        _nonfinite(flat, norm).double(), norm.double(),
        torch.maximum(least.double().abs(), most.double().abs()),
    ])  # fmt: skip
    return Taken(flat.numel(), flat[::step].clone(), whole)


def _stride(count: int, most: int) -> int:
    """Odd, so that samples of a table meet every column: widths are even."""
    step = count // most
    return step + 1 - step % 2


def _nonfinite(flat: Tensor, norm: Tensor) -> Tensor:
    """How many values are not finite; on the CPU a finite norm says none without counting."""
    if flat.device.type == "cpu" and math.isfinite(float(norm)):
        return torch.zeros(())
    return flat.numel() - flat.isfinite().sum()


@torch.no_grad()
def reduced(group: Sequence[Taken]) -> Tensor:
    """The COLUMNS of tensors of one size and format, a row each.

    p50 and p99 are of absolute values, over some 4096 of them where there are many more. near_max:
    at least half of the format's largest number; subnormal: below its smallest normal number.
    """
    info = torch.finfo(group[0].some.dtype)
    values = torch.stack([item.some for item in group]).double()
    if not values.shape[1]:
        return torch.zeros(len(group), len(COLUMNS), dtype=torch.float64, device=values.device)
    finite = values.isfinite()
    clean = torch.where(finite, values, 0.0)
    size = clean.abs()
    largest = size.amax(1)
    norm = _norms(clean, largest)
    n = finite.sum(1)
    nonfinite = values.shape[1] - n
    wholes = [item.whole for item in group if item.whole is not None]
    whole = torch.stack(wholes).unbind(1) if wholes else (nonfinite, norm, largest)
    columns = [torch.full_like(norm, group[0].size), *whole, n, *_moments(clean, finite, n),
               *_shares(size, nonfinite, info), *_quantiles(size), norm, largest]  # fmt: skip
    return torch.stack([column.double() for column in columns], 1)


def _norms(values: Tensor, largest: Tensor) -> Tensor:
    """L2 norms in units of the largest value: squares neither overflow nor vanish."""
    unit = torch.where(largest > 0, largest, torch.ones_like(largest))
    norms: Tensor = torch.linalg.vector_norm(values / unit[:, None], dim=1)
    return norms * unit


def _moments(values: Tensor, finite: Tensor, n: Tensor) -> list[Tensor]:
    """Mean, and sums of the second to fourth powers of deviations from it."""
    mean = values.sum(1) / n.clamp(min=1)
    gap = torch.where(finite, values - mean[:, None], 0.0)
    square = gap * gap
    return [mean, square.sum(1), (square * gap).sum(1), (square * square).sum(1)]


def _shares(size: Tensor, nonfinite: Tensor, info: torch.finfo) -> list[Tensor]:
    """How many are 0, near the format's end, subnormal. Non-finite values stand in as 0."""
    empty = size.shape[1] - size.count_nonzero(1)
    small = (size < info.tiny).sum(1)
    return [empty - nonfinite, (size >= info.max / 2).sum(1), small - empty]


def _quantiles(size: Tensor) -> list[Tensor]:
    ordered = _sorted(size[:, :: _stride(size.shape[1], _QUANTILES)])
    last = ordered.shape[1] - 1
    picked = []
    for q in (0.5, 0.99):
        low = math.floor(q * last)
        part = q * last - low
        high = min(low + 1, last)
        picked.append(ordered[:, low] + part * (ordered[:, high] - ordered[:, low]))
    return picked


def _sorted(rows: Tensor) -> Tensor:
    """Each row in order; on the CPU NumPy's sort, which is some six times faster than torch's."""
    if rows.device.type == "cpu":
        return torch.from_numpy(np.sort(rows.numpy(), axis=1))
    return rows.sort(1).values


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
