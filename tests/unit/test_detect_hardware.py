"""Temperature and clock detectors against readings whose story is known."""

from __future__ import annotations

import numpy as np
import pytest
from synth_system import by_kind, context, make_run, step_time, worst

from loganalyze.detectors.hardware import HARDWARE, detect_overheat, detect_throttle

N = 400


@pytest.mark.parametrize(("peak", "severity"), [(80, None), (87, "warning"), (93, "critical")])
def test_temperature_bands(peak: float, severity: str | None) -> None:
    """Above 85 °C look today, above 90 °C look now."""
    temperature = np.full(N, 70.0)
    temperature[200:240] = peak
    found = detect_overheat(context(make_run({"gpu_temp_c": temperature})))
    assert worst(found, "gpu_overheat") == severity


def test_a_lone_hot_reading_is_silent() -> None:
    """One reading of 95 °C among 70 °C may be the sensor."""
    temperature = np.full(N, 70.0)
    temperature[100] = 95.0
    assert detect_overheat(context(make_run({"gpu_temp_c": temperature}))) == []


def test_the_hottest_gpu_is_named() -> None:
    """Of eight GPUs the sixth is hot: one finding with its rank."""
    values = np.full((60, 8), 70.0)
    values[:, 5] = 88.0
    run = make_run(
        {"gpu_temp_c": values.ravel()},
        steps=np.repeat(np.arange(1, 61), 8),
        rank=np.tile(np.arange(8), 60),
    )
    (one,) = detect_overheat(context(run))
    assert one.rank == 5
    assert {rule.name for rule in one.rules} == {"seed.gpu_temp_alert"}


def test_a_clock_that_falls_while_hot_is_throttling() -> None:
    """The clock falls to 80 % at 86 °C: a warning with its onset."""
    rng = np.random.default_rng(0)
    clock = 1.98e9 * (1.0 + 0.002 * rng.standard_normal(N))
    clock[250:] *= 0.8
    temperature = np.where(np.arange(N) < 250, 75.0, 84.0)
    run = make_run({"gpu_sm_clock_hz": clock, "gpu_temp_c": temperature})
    (one,) = detect_throttle(context(run))
    assert one.severity == "warning"
    assert one.step_first == pytest.approx(251, abs=5)
    assert one.statistics["share_of_usual"] == pytest.approx(0.8, abs=0.01)


def test_a_clock_that_falls_without_harm_is_a_note() -> None:
    """Cool and not slower: the clock alone is no alarm."""
    clock = np.full(N, 1.98e9)
    clock[250:330] *= 0.9
    run = make_run({"gpu_sm_clock_hz": clock, "step_time_s": step_time(N, 1)})
    assert worst(detect_throttle(context(run)), "gpu_throttle") == "info"


def test_power_serves_where_no_clock_is_logged() -> None:
    """Power at 65 % while steps take 15 % longer: throttled or capped."""
    power, time = np.full(N, 690.0), step_time(N, 2)
    power[200:] *= 0.65
    time[200:] *= 1.15
    found = detect_throttle(context(make_run({"gpu_power_w": power, "step_time_s": time})))
    assert worst(found, "gpu_throttle") == "warning"


def test_healthy_readings_are_silent() -> None:
    """Jitter of clock and power and short dips at saves say nothing."""
    rng = np.random.default_rng(3)
    power = 650.0 * (1.0 + 0.05 * rng.standard_normal(N))
    power[::50] = 120.0
    clock = 1.9e9 * (1.0 + 0.01 * rng.standard_normal(N))
    run = make_run({"gpu_power_w": power, "gpu_sm_clock_hz": clock, "gpu_temp_c": power / 10})
    assert by_kind([*detect_throttle(context(run)), *detect_overheat(context(run))]) == {}


def test_hardware_detectors_are_skipped_without_readings() -> None:
    """A log without sensors skips both."""
    assert all(d.missing(context(make_run({"loss": np.ones(5)}))) for d in HARDWARE)
