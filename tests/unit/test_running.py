"""Running medians and two quantiles, beside slow loops and scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage, special

from loganalyze.running import centred_median, normal_quantile, t_upper_quartile


@pytest.mark.parametrize("ends", ["edge", "symmetric"])
@pytest.mark.parametrize("width", [1, 3, 9, 17, 101])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 16, 17, 150])
def test_centred_median_equals_a_loop(count: int, width: int, ends: str) -> None:
    """The middle of each sorted window, whatever stands beyond the ends; ties and all lengths."""
    x = np.random.default_rng(count * width).normal(size=count).round(1)
    if ends == "edge":
        at = np.clip(np.arange(-(width // 2), count + width // 2), 0, count - 1)
    else:
        at = np.arange(-(width // 2), count + width // 2) % (2 * count)
        at = np.minimum(at, 2 * count - 1 - at)
    slow = [sorted(x[at[i : i + width]])[width // 2] for i in range(count)]
    fast = centred_median(x, width, "edge" if ends == "edge" else "symmetric")
    assert fast.tolist() == slow


def test_centred_median_equals_that_of_scipy() -> None:
    """Point by point on 20,000 points, and the input is left as it was."""
    x = np.random.default_rng(1).standard_t(3, size=20_000)
    before = x.copy()
    assert np.array_equal(centred_median(x, 101), ndimage.median_filter(x, 101, mode="nearest"))
    assert np.array_equal(x, before)
    assert not len(centred_median(np.empty(0), 5))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.5, 6.0, 11.7, 100.0])
def test_upper_quartile_equals_that_of_scipy(power: float) -> None:
    """Student's t, to ten digits."""
    assert t_upper_quartile(power) == pytest.approx(special.stdtrit(power, 0.75), rel=1e-10)


@pytest.mark.parametrize("share", [1e-12, 1e-6, 0.004, 0.3, 0.5, 0.999])
def test_normal_quantile_equals_that_of_scipy(share: float) -> None:
    """To twelve digits."""
    assert normal_quantile(share) == pytest.approx(special.ndtri(share), rel=1e-12, abs=1e-12)
