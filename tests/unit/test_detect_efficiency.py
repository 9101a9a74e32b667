"""MFU, utilisation and waiting shares against levels that are known."""

from __future__ import annotations

import numpy as np
import pytest
from synth_system import context, event, make_run, step_time, worst

from loganalyze.detectors.speed_efficiency import (
    EFFICIENCY,
    detect_communication,
    detect_data_wait,
    detect_gpu_util,
    detect_mfu,
)

N = 150


@pytest.mark.parametrize(
    ("level", "severity"),
    [(0.1, "warning"), (0.25, "info"), (0.4, None), (0.6, None), (0.9, "info")],
)
def test_mfu_bands_of_a_wide_model(level: float, severity: str | None) -> None:
    """Below 20 % a warning, below 30 % a note, above 75 % the formula is doubted."""
    config = event("config", -1, hidden_size="4096")
    run = make_run({"mfu": np.full(N, level)}, events=[config])
    assert worst(detect_mfu(context(run)), "low_mfu") == severity


def test_mfu_of_a_small_or_unknown_model_is_a_note() -> None:
    """A narrow model cannot fill a GPU."""
    assert worst(detect_mfu(context(make_run({"mfu": np.full(N, 0.1)}))), "low_mfu") == "info"


def test_placeholder_mfu_is_silent() -> None:
    """Minus one or zero until the trainer knows better."""
    assert detect_mfu(context(make_run({"mfu": np.full(N, -1.0)}))) == []


@pytest.mark.parametrize(("level", "severity"), [(0.4, "warning"), (0.7, "info"), (0.95, None)])
def test_gpu_utilisation_bands(level: float, severity: str | None) -> None:
    """Below 60 % for a hundred records a warning, below 80 % a note."""
    found = detect_gpu_util(context(make_run({"gpu_util": np.full(N, level)})))
    assert worst(found, "low_gpu_util") == severity


@pytest.mark.parametrize(("share", "severity"), [(0.1, None), (0.25, "info"), (0.5, "warning")])
def test_communication_share(share: float, severity: str | None) -> None:
    """A fifth of the step is a note, more than a third a warning; the median decides."""
    time = step_time(N, 0)
    run = make_run({"step_time_s": time, "comm_time_s": share * time})
    found = detect_communication(context(run))
    assert worst(found, "comm_overhead") == severity
    if found:
        slow = float(np.median([c / t for c, t in zip(share * time, time, strict=True)]))
        assert found[0].statistics["share"] == pytest.approx(slow)


@pytest.mark.parametrize(("share", "severity"), [(0.02, None), (0.15, "info"), (0.4, "warning")])
def test_data_wait_share(share: float, severity: str | None) -> None:
    """A tenth of the step is a note, a quarter a warning."""
    time = step_time(N, 1)
    run = make_run({"step_time_s": time, "data_time_s": share * time})
    assert worst(detect_data_wait(context(run)), "data_stall") == severity


def test_efficiency_detectors_are_skipped_without_metrics() -> None:
    """A log with the loss only skips all four."""
    assert all(d.missing(context(make_run({"loss": np.ones(5)}))) for d in EFFICIENCY)
