"""What the log cannot tell is said once, as a note."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from synth_system import context, make_run

from loganalyze.detectors.coverage import detect_missing, detect_unread, levels_of
from loganalyze.model import Problem


def test_a_full_log_is_silent() -> None:
    """Loss, gradient norm and steps are there, every line was read."""
    run = make_run({"loss": np.ones(50), "grad_norm": np.ones(50)})
    assert detect_missing(context(run)) == []
    assert detect_unread(context(run)) == []


def test_missing_metrics_are_named_with_the_levels() -> None:
    """Only the loss: the gradient norm is missing, and six levels of the pyramid."""
    (one,) = detect_missing(context(make_run({"loss": np.ones(50)})))
    assert one.severity == "info"
    assert one.statistics["missing"] == "grad_norm"
    assert one.statistics["levels"] == "L1"
    assert one.statistics["levels_missing"] == "L2,L3,L4,L5,L6,L7"


def test_no_rows_at_all() -> None:
    """A log of crash words only has no loss, no norm and no step axis."""
    (one,) = detect_missing(context(make_run({})))
    assert one.statistics["missing"] == "loss,grad_norm,step"


def test_levels_count_only_metrics_with_numbers() -> None:
    """A column of nulls is no level; unknown columns are none either."""
    run = make_run({"loss": np.ones(5), "step_time_s": np.ones(5), "raw/x": np.ones(5)})
    assert levels_of(run.readings) == {"L1", "L7"}


def test_many_unknown_lines_are_a_note() -> None:
    """More than half of 400 lines were not understood."""
    run = make_run({"loss": np.ones(50), "grad_norm": np.ones(50)}, lines=400, unknown=250)
    (one,) = detect_unread(context(run))
    assert one.severity == "info"
    assert one.statistics["unknown_lines"] == 250


def test_a_damaged_input_is_a_note_whatever_its_lines() -> None:
    """The reader met a bad checksum."""
    run = make_run({"loss": np.ones(50)})
    run = replace(run, problems=(Problem(rule="bad_crc", message="record 3 is damaged"),))
    (one,) = detect_unread(context(run))
    assert one.evidence[0].value == "record 3 is damaged"
