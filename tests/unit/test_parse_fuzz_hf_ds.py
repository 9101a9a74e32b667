"""Damaged logs: the Hugging Face and DeepSpeed readers never raise and account for every line."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import deepspeed, huggingface, huggingface_table
from loganalyze_parsers.blocks import read_blocks
from loganalyze_parsers.textlog import TextLog

STAMP = "[2031-04-02 10:11:12,345] [INFO] "
SAMPLES = [
    "{'loss': 1.25, 'grad_norm': nan, 'learning_rate': 4.5e-05, 'epoch': 0.12}",
    "{'eval_loss': '1.5', 'eval_runtime': '36.4', 'epoch': '1'}",
    "{'train_runtime': 282.25, 'train_loss': 0.25, 'epoch': 2.0}",
    '{"current_steps": 10, "total_steps": 90, "loss": 1.5, "elapsed_time": "1 day, 0:01:02"}',
    '{"loss": 1.5, "epoch": 0.1, "global_step/max_steps": "20/438", "elapsed_time": "1m 2s"}',
    "  1%|#    | 9/860 [00:43<1:05:18,  4.60s/it, loss=0.5]{'loss': 1.5, 'epoch': 0.1}",
    "***** Running training *****",
    "  Num examples = 1,234",
    "  Num Epochs = 3",
    "  Total optimization steps = 57",
    "logging_steps=10,",
    "Continuing training from global step 500",
    "***** train metrics *****",
    "  train_runtime            = 0:15:19.50",
    "Step | Training Loss | Validation Loss",
    "10 | 1.250000 | No Log",
    "<th>Step</th><th>Training Loss</th></thead><td>10</td><td>1.5</td>",
    STAMP + "[logging.py:7:log_dist] [Rank 0] step=40, skipped=3, lr=[1e-05], mom=[(0.9, 0.95)]",
    "epoch=0/micro_step=8/global_step=4, RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec=30.9",
    "steps: 40 loss: 2.3456 iter time (s): 1.250 samples/sec: 51.8",
    STAMP + "[x.py:7:log_dist] [Rank 0] rank=0 time (ms) | forward: 160.0 | step: 12.5",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, reducing to 256",
    "Grad overflow on iteration 12",
    "MA 3.0 GB         Max_MA 5.5 GB         CA 7.25 GB         Max_CA 8 GB",
    "epoch: 0|step: 40|ppo_ep: 1|act_loss: -0.25|cri_loss: 0.5|unsuper_loss: 0.0",
    "|E2E latency=8.00s |Gather latency=0.50s (6.25%)|CurSamplesPerSec=4.00",
    "Comm. Op            Message Size        Count     Total Latency(ms)",
    "Profile Summary at step 10:",
]
ODD = ["1,234.5", "nan", "-inf", "1e999", "9" * 25, "²", "١", "", "None", "\u200b", "\r", "'", "}"]


@st.composite
def logs(draw: st.DrawFn) -> str:
    """Sample lines, some of them cut, glued, or with odd text in the place of a number."""
    lines = draw(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=12))
    damaged = []
    for line in lines:
        kind = draw(st.sampled_from(["whole", "whole", "cut", "odd", "glued"]))
        at = draw(st.integers(0, len(line)))
        if kind == "cut":
            line = line[:at]
        elif kind == "odd":
            end = draw(st.integers(at, min(len(line), at + 6)))
            line = line[:at] + draw(st.sampled_from(ODD)) + line[end:]
        elif kind == "glued":
            line = line + draw(st.sampled_from(SAMPLES))[at % 9 :]
        damaged.append(line)
    return "\n".join(damaged)


@settings(max_examples=150, deadline=None)
@given(text=logs(), size=st.sampled_from([1 << 20, 200]))
def test_damage_never_raises(text: str, size: int) -> None:
    """Whatever is cut or glued: no exception, and read + ignored + unknown = all lines."""
    dialects = (deepspeed.DIALECT, huggingface.DIALECT, huggingface_table.DIALECT)
    data = text.encode()
    batches = list(
        TextLog(dialects, lambda line: None, 0).batches(read_blocks(io.BytesIO(data), size))
    )
    accounts = [batch.account for batch in batches]
    counted = sum(a.read + a.ignored_total + a.unknown for a in accounts)
    assert counted == sum(a.lines for a in accounts)
    assert counted == data.count(b"\n") + bool(data and not data.endswith(b"\n"))
