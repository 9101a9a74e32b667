"""What an out-of-memory message's own numbers tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlogs import run_of

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import load_thresholds
from loganalyze.model import Finding


def message(asked: float, free: float, own: float, allocated: float) -> str:
    """An out-of-memory line of a device of 80 GiB."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked:.2f} GiB. GPU 1 has"
        f" a total capacity of 80.00 GiB of which {free:.2f} GiB is free. Including non-PyTorch"
        f" memory, this process has {own:.2f} GiB memory in use. Of the allocated memory"
        f" {allocated:.2f} GiB is allocated by PyTorch, and 0.30 GiB is reserved by PyTorch but"
        " unallocated."
    )


@pytest.mark.parametrize(
    ("check", "line", "state"),
    [
        ("oom_full", message(40, 20, 59.5, 55), "supported"),
        ("oom_full", message(2, 1, 79, 76), "supported"),
        ("oom_full", message(4, 3, 76.5, 60), "ruled_out"),
        ("other_process", message(40, 20, 59.5, 55), "ruled_out"),
        ("other_process", message(4, 3, 40, 38), "supported"),
    ],
)
def test_numbers_of_the_message_answer(check: str, line: str, state: str, tmp_path: Path) -> None:
    """What does not fit even when tidied up is a shortage; what is missing others hold."""
    run = run_of(line + "\n", tmp_path)
    about = Finding(id="LA702-1", code="LA702", kind="oom", metric=None, severity="critical")
    context = CheckContext(
        run=run, findings=(about,), finding=about, thresholds=load_thresholds("pretrain")
    )
    assert CHECKS[check](context).state == state
