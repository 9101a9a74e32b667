"""What a loop of one's own prints beside the numbers that nanoGPT's lines have."""

from __future__ import annotations

import pytest
from loganalyze_parsers.nanogpt import DIALECT
from loganalyze_parsers.samples import rows_of

CASES: tuple[tuple[str, dict[str, float]], ...] = (
    ("iter 40: loss 3.25, time 211.50ms, mfu 31.25%",
     {"loss": 3.25, "step_time_s": 0.2115, "mfu": 0.3125}),
    ("iter 40: loss 3.25, lr 6.0e-4, time 211.50ms, grad_norm 0.75, mem_gb 2",
     {"loss": 3.25, "lr": 6e-4, "step_time_s": 0.2115, "grad_norm": 0.75,
      "mem_used_bytes": 2 * 1024.0**3}),
    ("iter 40: loss 3.25, data time 12ms, time 211.50ms",
     {"loss": 3.25, "data_time_s": 0.012, "step_time_s": 0.2115}),
    ("step 40 | loss 3.25 | lr 3.0e-4 | grad_norm 0.75 | step_time 0.25s | tok/s 12050",
     {"loss": 3.25, "lr": 3e-4, "grad_norm": 0.75, "step_time_s": 0.25, "tokens_per_s": 12050.0}),
    ("step 40 | loss 3.25 (avg 3.5) | norm 0.75 | dt 250.0ms | 12,050 tok/s | my thing 7",
     {"loss": 3.25, "grad_norm": 0.75, "step_time_s": 0.25, "tokens_per_s": 12050.0,
      "raw/my thing": 7.0}),
    ("step    40 | loss: 5.125 | lr 1.2e-04 | norm: 0.75 | dt: 512.50ms | tok/sec: 1024.5",
     {"loss": 5.125, "lr": 1.2e-4, "grad_norm": 0.75, "step_time_s": 0.5125,
      "tokens_per_s": 1024.5}),
)  # fmt: skip


@pytest.mark.parametrize(("line", "values"), CASES)
def test_no_pair_of_a_line_is_lost(line: str, values: dict[str, float]) -> None:
    """Every number is read: by nanoGPT's names, else by those that home-made loops use."""
    step, found = rows_of(DIALECT, line)[-1]
    assert step == 40
    assert found == pytest.approx(values)
