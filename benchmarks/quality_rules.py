"""Rules that users have today, re-built from their published descriptions: one flag a point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def step_increase(loss: Floats) -> Bools:
    """More than 20 % above the point before (first seed document)."""
    return np.concatenate(([False], loss[1:] > 1.2 * loss[:-1]))


def step_ratio(loss: Floats) -> Bools:
    """More than three times the point before (second seed document)."""
    return np.concatenate(([False], loss[1:] > 3.0 * loss[:-1]))


def lightning(loss: Floats) -> Bools:
    """Lightning's spike detection: more than three times the mean of the last 10 points."""
    flags = np.zeros(len(loss), dtype=bool)
    mean = sliding_window_view(loss, 10).mean(axis=1)
    flags[10:] = loss[10:] > 3.0 * mean[:-1]
    return flags


def llm_foundry(loss: Floats) -> Bools:
    """llm-foundry's KillLossSpike: five points in a row above twice the running mean of 100."""
    flags = np.zeros(len(loss), dtype=bool)
    mean = sliding_window_view(loss, 100).mean(axis=1)
    high = loss[100:] > 2.0 * mean[:-1]
    row = np.ones(len(high), dtype=bool)
    for back in range(5):
        row &= np.concatenate((np.zeros(back, dtype=bool), high[: len(high) - back]))
    flags[100:] = row
    return flags


def olmo(loss: Floats) -> Bools:
    """OLMo-core's stability monitor: six standard deviations above the mean of the last 128."""
    return _z_score(loss, 128, 6.0)


def wandb3(loss: Floats) -> Bools:
    """A W&B automation: z-score 3 over the last 30 values."""
    return _z_score(loss, 30, 3.0)


def wandb5(loss: Floats) -> Bools:
    """A W&B automation: z-score 5 over the last 30 values."""
    return _z_score(loss, 30, 5.0)


def _z_score(loss: Floats, width: int, limit: float) -> Bools:
    flags = np.zeros(len(loss), dtype=bool)
    windows = sliding_window_view(loss, width)[:-1]
    spread = np.maximum(windows.std(axis=1), 1e-9)
    flags[width:] = (loss[width:] - windows.mean(axis=1)) / spread > limit
    return flags


RULES: dict[str, Callable[[Floats], Bools]] = {
    "seed: +20 % in one step": step_increase,
    "seed: > 3x the step before": step_ratio,
    "Lightning": lightning,
    "llm-foundry": llm_foundry,
    "OLMo-core, 6 sigma": olmo,
    "W&B z-score 3": wandb3,
    "W&B z-score 5": wandb5,
}
