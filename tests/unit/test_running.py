"""Running medians and two quantiles, beside slow loops and scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, special

from loganalyze.compiled import PURE, library
from loganalyze.running import (
    centred_median,
    median,
    medians,
    normal_quantile,
    row_medians,
    t_upper_quartile,
)

_RNG = np.random.default_rng(11)
#: Rows that move the middle of a window in every way: noise, ties, one value, both trends, a walk,
#: leaps to and fro, saws, infinities of one side, and numbers at the ends of what a double holds.
ROWS = {
    "noise": _RNG.normal(size=3000),
    "ties": _RNG.integers(0, 4, size=3000).astype(np.float64),
    "printed": _RNG.normal(size=3000).round(2),
    "constant": np.full(3000, 2.5),
    "rise": np.arange(3000.0) ** 3,
    "fall": -np.arange(3000.0),
    "walk": np.cumsum(_RNG.normal(size=3000)),
    "leaps": np.where(np.arange(3000) % 700 < 350, 0.0, 1e6) + _RNG.normal(size=3000),
    "saw": np.tile(np.arange(10.0), 300),
    "heavy": _RNG.standard_cauchy(size=3000) ** 3,
    "one great": np.where(_RNG.random(3000) < 0.4, np.inf, _RNG.normal(size=3000)),
    "all great": np.full(3000, np.inf),
    "far": np.where(_RNG.random(3000) < 0.5, 1.7e308, -1.7e308),
    "tiny": _RNG.normal(size=3000) * 5e-324,
}


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


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_medians_equal_sorted_windows(
    name: str, pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the compiled loop and without it, however the middle moves, for all sorts of widths."""
    if pure:
        monkeypatch.setenv(PURE, "1")
    elif library() is None:
        pytest.skip("no compiled kernel")
    for width in (1, 3, 5, 15, 33, 101, 129, 513, 2999):
        windows = np.lib.stride_tricks.sliding_window_view(ROWS[name], width)
        slow = np.sort(windows, axis=1)[:, width // 2]
        assert np.array_equal(medians(ROWS[name], width), slow), width


@pytest.mark.parametrize("width", [3, 101])
def test_nan_counts_as_the_greatest_in_a_window(width: int) -> None:
    """As numpy sorts it."""
    x = np.random.default_rng(5).normal(size=1000)
    x[[3, 500, 501]] = np.nan
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(x, width), axis=1)
    assert np.array_equal(medians(x, width), windows[:, width // 2], equal_nan=True)


def test_very_wide_windows_are_taken_too() -> None:
    """Beyond what the compiled loop holds."""
    x = np.random.default_rng(6).normal(size=6000)
    windows = np.lib.stride_tricks.sliding_window_view(x, 4999)
    assert np.array_equal(medians(x, 4999), np.median(windows, axis=1))


@settings(max_examples=300, deadline=None)
@given(
    x=st.lists(st.floats(allow_nan=False) | st.integers(-3, 3).map(float), min_size=1),
    width=st.integers(0, 40),
)
def test_medians_of_any_numbers_equal_sorted_windows(x: list[float], width: int) -> None:
    """All floats but NaN, of both signs and infinities, of any odd width that fits."""
    width = min(2 * width + 1, len(x) - 1 + len(x) % 2)
    slow = [sorted(x[at : at + width])[width // 2] for at in range(len(x) - width + 1)]
    assert medians(np.array(x), width).tolist() == slow


@settings(max_examples=300, deadline=None)
@given(
    x=st.lists(st.floats(), min_size=1, max_size=60),
    width=st.integers(1, 60),
)
def test_median_equals_that_of_numpy(x: list[float], width: int) -> None:
    """Of a row and of each of several rows; NaN where one is among them."""
    with np.errstate(all="ignore"):
        assert np.array_equal(median(np.array(x)), np.median(x), equal_nan=True)
        rows = np.resize(x, (7, width))
        assert np.array_equal(row_medians(rows), np.median(rows, axis=1), equal_nan=True)
    assert np.isnan(median(np.empty(0)))
    assert median(np.array([3, 1, 2, 10])) == 2.5


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
