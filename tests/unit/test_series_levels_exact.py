"""Our fast search for level shifts against ruptures' exact dynamic programme."""

from __future__ import annotations

import numpy as np
import pytest

from loganalyze.series_trend import levels

ruptures = pytest.importorskip("ruptures", reason="the exact search comes from ruptures")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_shifts_are_where_the_exact_search_puts_them(seed: int) -> None:
    """For shifts of six noises the borders are those of the optimal segmentation (jump = 1)."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(60, 140, size=4)
    heights = np.cumsum(draw.choice([-1.0, 1.0], size=4) * 0.6)
    values = np.concatenate(
        [height + draw.normal(0, 0.1, size) for height, size in zip(heights, lengths, strict=True)]
    )
    ours = [level.stop for level in levels(values, least=20, z=6.0, floor=1e-6, step=0.3)]
    exact = ruptures.Dynp(model="l2", jump=1, min_size=20).fit(values).predict(n_bkps=3)
    assert len(ours) == len(exact) == 4
    np.testing.assert_allclose(ours, exact, atol=1)


@pytest.mark.parametrize("seed", range(4))
def test_no_shift_is_found_in_noise(seed: int) -> None:
    """Noise alone is one level."""
    values = np.random.default_rng(seed).normal(0, 0.1, 500)
    assert len(levels(values, least=20, z=6.0, floor=1e-6, step=0.3)) == 1
