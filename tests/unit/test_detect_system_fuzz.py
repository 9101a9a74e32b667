"""System detectors take any run: odd numbers, few rows, missing values, many ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synth_system import context, event, make_run

from loganalyze.config import kinds, load_thresholds, metrics
from loganalyze.detectors.audit import CONFIG_AUDIT
from loganalyze.detectors.coverage import COVERAGE
from loganalyze.detectors.hardware import HARDWARE
from loganalyze.detectors.life import FAILURE_EVENTS
from loganalyze.detectors.life_saves import SAVES_AND_RESTARTS
from loganalyze.detectors.memory import MEMORY
from loganalyze.detectors.ranks import RANKS
from loganalyze.detectors.rl import RL
from loganalyze.detectors.speed import SPEED_OVER_TIME
from loganalyze.detectors.speed_efficiency import EFFICIENCY
from loganalyze.model import EVENT_KINDS, RunLog

_DETECTORS = (
    SPEED_OVER_TIME, *EFFICIENCY, *MEMORY, *HARDWARE, *RANKS, FAILURE_EVENTS, SAVES_AND_RESTARTS,
    *RL, CONFIG_AUDIT, *COVERAGE,
)  # fmt: skip
_METRICS = sorted(name for name in metrics() if "<" not in name)
_ODD = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e-300, 1e300)


@st.composite
def _runs(draw: st.DrawFn) -> RunLog:
    """A run of up to 80 rows with a few metrics, some odd values, ranks, events and going back."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.sampled_from([1, 2, 5, 19, 20, 21, 40, 80]))
    names = draw(st.lists(st.sampled_from(_METRICS), min_size=1, max_size=8, unique=True))
    values = {}
    for name in {*names, *draw(st.sets(st.sampled_from(["step_time_s", "loss"])))}:
        column = rng.lognormal(0.0, draw(st.sampled_from([0.0, 0.01, 1.0])), count)
        odd = rng.random(count) < draw(st.sampled_from([0.0, 0.1, 1.0]))
        column[odd] = rng.choice(_ODD, int(odd.sum()))
        values[name] = column
    ranks = draw(st.sampled_from([1, 1, 4]))
    steps = np.arange(count) // ranks + 1
    if draw(st.booleans()):
        steps[count // 2 :] -= steps[count // 2] // 2
    wall = np.cumsum(rng.exponential(1.0, count)) if draw(st.booleans()) else None
    happen = draw(st.lists(st.sampled_from(sorted(EVENT_KINDS)), max_size=6))
    events = [event(kind, int(rng.integers(-1, count)), wall_s=None) for kind in happen]
    return make_run(
        values,
        steps=steps,
        rank=np.arange(count) % ranks if ranks > 1 else None,
        wall_s=wall,
        events=sorted(events, key=lambda item: item.ref.offset),
    )


@pytest.mark.slow
@given(_runs(), st.sampled_from(["pretrain", "sft", "rl"]))
@settings(max_examples=100, deadline=None)
def test_no_run_is_too_odd(run: RunLog, profile: str) -> None:
    """Every detector returns findings that name a step inside the run, a known code and rule."""
    ctx = context(run, profile)
    rules = load_thresholds(profile).entries
    for detector in _DETECTORS:
        if detector.missing(ctx):
            continue
        for found in detector.run(ctx):
            assert found.kind in detector.kinds
            assert found.code == kinds()[found.kind].code
            assert found.threshold is None or found.threshold.name in rules
            if found.step_first is not None and found.step_last is not None:
                assert found.step_first <= found.step_last
