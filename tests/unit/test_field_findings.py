"""What the field's logs must lead to: findings of loops and RL runs. All lines made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from judged import found, kinds, only
from synth import make_run
from textlogs import run_of

LOOPS: dict[str, Callable[[int, int, float], str]] = {
    "tutorial": lambda e, b, x: f"Epoch [{e + 1}/5], Step [{b}/500], Loss: {x:.4f}",
    "meter": lambda e, b, x: f"Epoch: [{e}][{b}/500]\tTime 0.250 ( 0.251)\tLoss {x:.4e} ({x:.4e})",
    "cells": lambda e, b, x: f"| epoch {e + 1:3d} | {b:4d}/ 500 batches | loss {x:5.3f} |",
    "minimal": lambda e, b, x: f"Epoch {e} Batch {b} Loss {x:.4f}",
}


def _loop(line: Callable[[int, int, float], str], nan_from: int | None = None) -> str:
    rng = np.random.default_rng(7)
    text = ""
    for number in range(50):
        epoch, batch = divmod(50 * number, 500)
        loss = 1 + 6 * math.exp(-number / 12) + rng.normal(0, 0.02)
        loss = math.nan if nan_from is not None and number >= nan_from else loss
        text += line(epoch, batch, loss) + "\n"
    return text


@pytest.mark.parametrize("name", LOOPS)
def test_epochs_of_a_healthy_loop_are_no_restarts(name: str, tmp_path: Path) -> None:
    """A loop that counts its batches anew in each epoch is one run, and clean."""
    run = run_of(_loop(LOOPS[name]), tmp_path)
    assert len(run.meta.segments) == 1
    assert run.readings["step"].is_sorted()
    assert kinds(run, least="warning") == set()


@pytest.mark.parametrize("name", LOOPS)
def test_first_nan_of_a_loop_stands_at_its_step_of_the_run(name: str, tmp_path: Path) -> None:
    """The step is counted from the run's beginning, not from the epoch's."""
    item = only(run_of(_loop(LOOPS[name], nan_from=31), tmp_path), "loss_nonfinite")
    assert item.severity == "critical"
    assert item.evidence[-1].ref.line == 32
    if name != "minimal":  # without a total an epoch's length is what was seen of it
        assert item.step_first == 1550


def _critic(n: int = 60, bad: slice = slice(0, 0)) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    value = 0.3 + rng.normal(0, 0.01, n)
    value[bad] = math.nan
    return {"loss": rng.normal(0, 0.01, n), "reward": np.linspace(0, 1, n), "aux_loss/value": value}


def test_critic_that_stays_nan_is_told() -> None:
    """A part of the loss that stays NaN is a warning, though the loss itself is finite."""
    item = only(make_run(_critic(bad=slice(40, 60))), "loss_nonfinite", "rl")
    assert (item.metric, item.severity, item.step_first) == ("aux_loss/value", "warning", 41)


def test_critic_that_is_nan_from_the_first_line_is_told() -> None:
    """Never a finite value: told, however few lines there are."""
    item = only(make_run(_critic(n=2, bad=slice(0, 2))), "loss_nonfinite", "rl")
    assert item.metric == "aux_loss/value"


def test_one_nan_of_a_part_is_not_told() -> None:
    """A single gap in an auxiliary loss is no finding."""
    assert not [f for f in found(make_run(_critic(bad=slice(30, 31))), "rl") if f.code == "LA101"]


def test_nan_of_the_whole_loss_is_told_once() -> None:
    """Where the loss is NaN too, its parts are no findings of their own."""
    metrics = _critic(bad=slice(40, 60))
    metrics["loss"][40:] = math.nan
    (item,) = [f for f in found(make_run(metrics), "rl") if f.code == "LA101"]
    assert item.metric == "loss"
