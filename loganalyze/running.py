"""Running medians, and the two quantiles that would otherwise load a library of statistics."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
Ends = Literal["edge", "symmetric"]


def centred_median(x: Floats, width: int, ends: Ends = "edge") -> Floats:
    """Median over `width` (odd) points around each point, O(n log width), exact.

    ends: beyond an end stands its value again and again (edge), or the series mirrored, the last
    value twice (symmetric). Other threads run on meanwhile.
    """
    half = width // 2
    if not len(x) or not half:
        return np.array(x, dtype=np.float64)
    padded = pl.Series(np.pad(x, half, mode=ends))
    return padded.rolling_median(width).slice(2 * half).to_numpy()


def normal_quantile(share: float) -> float:
    """Value below which `share` (0 < share < 1) of a standard normal distribution lies."""
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
