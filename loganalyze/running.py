"""Running medians, and the two quantiles that would otherwise load a library of statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze import compiled

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]
Ends = Literal["edge", "symmetric"]


def centred_median(x: Floats, width: int, ends: Ends = "edge") -> Floats:
    """Median over `width` (odd) points around each point, O(n log width), exact.

    ends: beyond an end stands its value again and again (edge), or the series mirrored, the last
    value twice (symmetric).
    """
    half, count = width // 2, len(x)
    if not count or not half:
        return np.array(x, dtype=np.float64)
    if count < 2 * width:
        return medians(np.pad(x, half, mode=ends), width)
    made = np.empty(count)
    made[:half] = medians(np.pad(x[: 2 * half], (half, 0), mode=ends), width)
    medians(x, width, made[half:-half])
    made[-half:] = medians(np.pad(x[-2 * half :], (0, half), mode=ends), width)
    return made


def medians(x: Floats, width: int, out: Floats | None = None) -> Floats:
    """Median of each `width` (odd, at most len(x)) neighbours: len(x) - width + 1 of them.

    out: where they go, in one piece. NaN counts as greater than all numbers. Other threads run
    meanwhile.
    """
    made = compiled.medians(x, width, out)
    if made is None:
        made = pl.Series(x).rolling_median(width).slice(width - 1).to_numpy()
        if out is not None:
            out[:] = made
    return made


def median(x: Numbers | Sequence[float]) -> float:
    """The same as np.median() of a row of numbers, which takes four times as long.

    NaN for an empty row, and where it holds one.
    """
    return float(row_medians(np.reshape(x, (1, -1)))[0]) if len(x) else math.nan


def row_medians(x: Numbers) -> Floats:
    """The same as np.median(x, axis=1) of rows (n, width), width at least 1."""
    lower, upper = row_middles(x)
    if lower is upper:
        return upper
    with np.errstate(over="ignore"):  # two of 1e308
        return 0.5 * (upper + lower)


def row_middles(x: Numbers) -> tuple[Floats, Floats]:
    """The two numbers of each row (n, width) between which its median lies; both NaN beside one.

    They are one array where the width is odd.
    """
    half = x.shape[1] // 2
    parts = np.partition(x, half, axis=1)
    unknown = np.isnan(parts[:, half:].max(axis=1))
    upper = np.where(unknown, np.nan, parts[:, half])
    if x.shape[1] % 2:
        return upper, upper
    return np.where(unknown, np.nan, parts[:, :half].max(axis=1)), upper


def normal_quantile(share: float) -> float:
    """Value below which `share` (0 < share < 1) of a standard normal distribution lies."""
    from statistics import NormalDist  # loaded where it is needed

    return NormalDist().inv_cdf(share)


@lru_cache(maxsize=256)
def t_upper_quartile(power: float) -> float:
    """Value below which three quarters of Student's t with `power` degrees of freedom lie.

    Newton's steps from the normal distribution's on the integral of the density (Simpson's rule),
    to twelve digits for a power of 0.5 and more.
    """
    scale = math.exp(math.lgamma((power + 1) / 2) - math.lgamma(power / 2))
    scale /= math.sqrt(math.pi * power)
    weights = np.concatenate(([1.0], np.tile([4.0, 2.0], 127), [4.0, 1.0])) / 3.0
    at = 0.6744897501960817
    for _ in range(8):
        places = np.linspace(0.0, at, len(weights))
        density = scale * (1.0 + places**2 / power) ** (-(power + 1) / 2)
        below = float(np.dot(weights, density)) * at / (len(weights) - 1)
        at += (0.25 - below) / float(density[-1])
    return at
