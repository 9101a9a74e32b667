"""Whatever numbers a log holds, the detectors answer, alike each time, with places in the log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import found
from synth import make_run

number = st.one_of(
    st.none(),
    st.just(float("nan")),
    st.just(float("inf")),
    st.just(0.0),
    st.floats(-1e30, 1e30, allow_nan=False),
    st.floats(0.1, 12.0),
    st.sampled_from([2.5, 2.25, 1e-8, 65536.0, -1.0]),
)
METRICS = ("loss", "grad_norm", "lr", "val_loss", "loss_scale", "skipped_steps", "epoch")


@st.composite
def runs(draw):
    """A run of up to sixty lines, with gaps, repeats of steps and one step back."""
    n = draw(st.integers(1, 60))
    chosen = draw(st.sets(st.sampled_from(METRICS), min_size=1))
    metrics = {m: draw(st.lists(number, min_size=n, max_size=n)) for m in sorted(chosen)}
    steps = np.cumsum(draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)))
    cut = draw(st.integers(0, n))
    segments = [0] * cut + [1] * (n - cut)
    steps[cut:] = steps[cut:] - (steps[cut] // 2 if cut < n else 0)
    relation = draw(st.sampled_from(["resume", "fresh", "parallel"]))
    return make_run(metrics, steps=steps, segments=segments, relations=("start", relation))


@pytest.mark.slow
@given(run=runs(), profile=st.sampled_from(["pretrain", "sft", "rl"]))
@settings(max_examples=150, deadline=None)
def test_any_numbers_are_answered(run, profile):
    """No fault, no warning of numpy; findings lie inside the log and are the same twice."""
    first, second = found(run, profile), found(run, profile)
    assert repr(first) == repr(second)
    known = set(run.readings["step"].to_list())
    for item in first:
        assert {item.step_first, item.step_last} - {None} <= known
        assert (
            item.step_first is None or item.step_last is None or item.step_first <= item.step_last
        )
        assert item.evidence
        assert all(e.ref is None or 1 <= e.ref.line <= len(run.readings) for e in item.evidence)
