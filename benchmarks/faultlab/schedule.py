"""Learning rate by step, and dynamic loss scaling."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.faultlab.recipe import Recipe

_MAX_HALF = 65504.0
_GROWTH_STEPS = 120  # steps without overflow before the scale doubles; short, as the runs are


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then cosine, cosine with restarts, or flat. step counts from 1."""
    if step <= recipe.warmup:
        return recipe.peak_lr * step / recipe.warmup
    if recipe.decay == "constant":
        return recipe.peak_lr
    done = min(1.0, (step - recipe.warmup) / max(1, recipe.schedule - recipe.warmup))
    if recipe.decay == "cycles":
        done = (done * recipe.cycles) % 1.0
    low = recipe.min_lr_share
    return recipe.peak_lr * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * done)))


@dataclass(slots=True)
class Scaler:
    """Halves the scale on overflow once the hysteresis is spent; doubles it after a calm stretch.

    As Megatron's DynamicGradScaler and DeepSpeed's DynamicLossScaler do, with a shorter window.
    """

    scale: float = 1.0
    dynamic: bool = False
    hysteresis: int = 2
    left: int = 2
    calm: int = 0

    def overflows(self, largest: float) -> bool:
        """Whether the largest gradient, scaled, is beyond float16; moves the scale."""
        if not self.dynamic:
            return False
        if largest * self.scale <= _MAX_HALF:  # false for NaN
            self.calm += 1
            if self.calm >= _GROWTH_STEPS:
                self.calm, self.left, self.scale = 0, self.hysteresis, self.scale * 2
            return False
        self.calm, self.left = 0, self.left - 1
        if self.left <= 0:
            self.scale = max(1.0, self.scale / 2)
        return True
