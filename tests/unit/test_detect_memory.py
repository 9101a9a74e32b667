"""Memory detectors against tracks whose growth is known."""

from __future__ import annotations

import numpy as np
import pytest
from synth_system import FloatArray, context, event, make_run, worst

from loganalyze.detectors.memory import (
    MEMORY,
    detect_fragmentation,
    detect_host_leaks,
    detect_imbalance,
    detect_leaks,
    detect_near_limit,
)
from loganalyze.model import Finding

GB = 1e9
N = 600


def _noise(seed: int, count: int = N, spread: float = 0.01) -> FloatArray:
    return 1.0 + spread * np.random.default_rng(seed).standard_normal(count)


def _leaks(values: FloatArray, metric: str = "mem_allocated_bytes") -> list[Finding]:
    return detect_leaks(context(make_run({metric: values})))


@pytest.mark.parametrize("spread", [0.0, 0.005, 0.02, 0.05])
def test_allocator_noise_is_no_leak(spread: float) -> None:
    """Constant memory with jitter, for ten seeds, is silent."""
    for seed in range(10):
        assert _leaks(40 * GB * _noise(seed, spread=spread)) == []


def test_a_random_walk_of_the_allocator_is_no_warning() -> None:
    """Memory that wanders by a per cent or two is no leak."""
    for seed in range(20):
        walk = np.cumsum(np.random.default_rng(seed).standard_normal(N)) * 0.0004
        assert worst(_leaks(40 * GB * (1.0 + walk)), "memory_leak") in (None, "info")


def test_growth_that_saturates_is_no_leak() -> None:
    """A cache that fills and stays full, and peaks that rise with longer batches, are no leak."""
    filling = 40 * GB * (1.0 + 0.2 * (1.0 - np.exp(-np.arange(N) / 60.0))) * _noise(1, spread=0.002)
    assert _leaks(filling) == []
    longest = np.maximum.accumulate(np.random.default_rng(2).gamma(4.0, 1.0, N))
    assert _leaks(40 * GB + GB * longest, "mem_peak_allocated_bytes") == []


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_a_leak_is_found_with_its_slope(share: float) -> None:
    """Linear growth: warning, and the slope's interval holds the truth."""
    truth = 40 * GB * share / N
    (one,) = _leaks(40 * GB * _noise(3, spread=0.005) + truth * np.arange(N))
    assert one.severity == "warning"
    low, high = one.statistics["slope_low"], one.statistics["slope_high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low <= truth * 1.02
    assert high >= truth * 0.98


def test_a_late_leak_has_a_late_onset() -> None:
    """Flat for two thirds, then growing: the onset lies in the last half."""
    grown = np.maximum(0.0, np.arange(N) - 400) * 0.4 / 200
    (one,) = _leaks(40 * GB * (_noise(4, spread=0.003) + grown))
    assert one.step_first is not None
    assert one.step_first >= 300


@pytest.mark.parametrize(("count", "part"), [(10_000, 200), (50_000, 2_500), (300_000, 30_000)])
def test_a_leak_in_the_last_part_of_a_long_run_is_found(count: int, part: int) -> None:
    """A fifth more within the last few per cent: told, with an onset there."""
    values = 40 * GB * _noise(6, count, spread=0.003)
    values[-part:] *= np.linspace(1.0, 1.2, part)
    (one,) = _leaks(values)
    assert one.severity == "warning"
    assert one.step_first is not None
    assert count - 2 * part < one.step_first < count - 0.5 * part


def test_a_long_run_that_wanders_has_no_late_leak() -> None:
    """Random walks by several per cent, bursts of longer batches, and a step up near the end."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        walk = 1.0 + np.cumsum(rng.standard_normal(20_000)) * 0.0004
        assert worst(_leaks(40 * GB * walk), "memory_leak") in (None, "info")
        batches = 30 * GB + 10 * GB * rng.gamma(4.0, 0.25, 20_000)
        batches[-400:] += 8 * GB
        assert _leaks(batches) == []


def test_a_leak_over_restarts_is_a_sawtooth() -> None:
    """Memory falls back at each resume and grows again: one finding with its teeth."""
    tooth = 40 * GB * (1.0 + 0.2 * np.arange(200) / 200)
    values = np.r_[tooth, tooth, tooth] * _noise(5, spread=0.003)
    loads = [event("checkpoint_load", row, step=row + 1) for row in (199, 399)]
    (one,) = detect_leaks(context(make_run({"mem_allocated_bytes": values}, events=loads)))
    assert one.statistics["teeth"] == 3


def test_the_step_at_which_memory_is_full() -> None:
    """40 GB growing by 0.02 GB a step on an 80 GB card: full near step 2000."""
    values = 40 * GB + 0.02 * GB * np.arange(N)
    run = make_run({"mem_allocated_bytes": values, "mem_total_bytes": np.full(N, 80 * GB)})
    (one,) = detect_leaks(context(run))
    assert one.statistics["full_at_step"] == pytest.approx(2001, rel=0.01)
    assert one.severity == "warning"


def test_a_leak_about_to_fill_the_card_is_critical() -> None:
    """The card is full before another quarter of the stretch has passed."""
    values = 40 * GB + 0.06 * GB * np.arange(N)
    run = make_run({"mem_allocated_bytes": values, "mem_total_bytes": np.full(N, 80 * GB)})
    assert worst(detect_leaks(context(run)), "memory_leak") == "critical"


def test_few_records_need_a_straight_line() -> None:
    """Seven points on a line that rise by 90 % are a leak; a crooked seven are none."""
    assert worst(_leaks(GB * np.linspace(0.18, 0.35, 7)), "memory_leak") == "warning"
    assert _leaks(GB * np.array([0.18, 0.3, 0.31, 0.33, 0.34, 0.345, 0.35])) == []


def test_few_records_may_begin_level() -> None:
    """Of twenty records the last sixteen rise in a line: a leak that began after the fourth; of
    eight the last four alone are too few to tell."""
    level, line = np.full(4, 60.0), 60 + 4.5 * np.arange(1, 17)
    (found,) = _leaks(GB * np.concatenate([level, line]))
    assert found.step_first is not None
    assert 3 <= found.step_first <= 6
    assert _leaks(GB * np.concatenate([level, line[:4]])) == []


def test_host_memory_growth_is_a_note_until_it_is_large() -> None:
    """10 % growth of the host's memory is a note, 60 % a warning."""
    for share, severity in ((0.1, "info"), (0.6, "warning")):
        values = 100 * GB * (_noise(6, spread=0.002) + share * np.arange(N) / N)
        found = detect_host_leaks(context(make_run({"host_rss_bytes": values})))
        assert worst(found, "host_memory_leak") == severity


@pytest.mark.parametrize(
    ("metric", "share", "severity"),
    [
        ("mem_reserved_bytes", 0.85, None),
        ("mem_reserved_bytes", 0.92, "info"),
        ("mem_reserved_bytes", 0.97, "warning"),
        ("mem_peak_allocated_bytes", 0.93, "warning"),
        ("mem_used_bytes", 0.95, "info"),
    ],
)
def test_nearness_to_the_limit(metric: str, share: float, severity: str | None) -> None:
    """Reserved above 90 % is a note, above 95 % a warning; peaks above 92 % a warning."""
    run = make_run({metric: np.full(50, share * 80 * GB), "mem_total_bytes": np.full(50, 80 * GB)})
    assert worst(detect_near_limit(context(run)), "memory_near_limit") == severity


def test_allocator_retries_are_a_warning() -> None:
    """The counter of retries rises at step 31."""
    retries = np.r_[np.zeros(30), np.arange(1, 21)]
    (one,) = detect_near_limit(context(make_run({"alloc_retries": retries})))
    assert (one.severity, one.step_first) == ("warning", 31)


def test_fragmentation_is_a_gap_that_grows() -> None:
    """Reserved grows while allocated is flat; a wide gap from the start is only a cache."""
    held = np.full(N, 40 * GB)
    total = np.full(N, 80 * GB)
    grows = held + np.linspace(2, 24, N) * GB
    values = {"mem_allocated_bytes": held, "mem_total_bytes": total}
    found = detect_fragmentation(context(make_run({**values, "mem_reserved_bytes": grows})))
    assert worst(found, "memory_fragmentation") == "warning"
    flat = make_run({**values, "mem_reserved_bytes": held + 24 * GB})
    assert detect_fragmentation(context(flat)) == []


def test_imbalance_over_ranks() -> None:
    """Rank 5 of 8 holds half more than the others: a note, a warning if that fills the card."""
    peaks = np.full(8, 50 * GB)
    peaks[5] = 75 * GB
    steps, ranks = np.repeat(np.arange(1, 11), 8), np.tile(np.arange(8), 10)
    values = {"mem_peak_allocated_bytes": np.tile(peaks, 10)}
    (one,) = detect_imbalance(context(make_run(values, steps=steps, rank=ranks)))
    assert (one.severity, one.rank) == ("info", 5)
    full = {**values, "mem_total_bytes": np.full(80, 80 * GB)}
    (one,) = detect_imbalance(context(make_run(full, steps=steps, rank=ranks)))
    assert one.severity == "warning"


def test_each_memory_detector_is_skipped_without_its_metrics() -> None:
    """A log without memory numbers skips all of them."""
    run = make_run({"loss": np.ones(5)})
    assert all(detector.missing(context(run)) for detector in MEMORY)


def test_a_few_jittering_records_of_a_long_log_are_no_leak() -> None:
    """Eight records rise on a line at its end: within the noise of the log, or far beyond it."""
    before = 40 * GB * _noise(4, 2000, 0.03)
    for rise, told in ((0.12, False), (0.5, True)):
        tail = 36 * GB * np.linspace(1.0, 1.0 + rise, 8)
        found = _leaks(np.concatenate((before, tail)))
        assert any(item.severity != "info" for item in found) is told
