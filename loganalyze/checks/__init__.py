"""The closed set of named checks that the troubleshooting trees may use."""

from __future__ import annotations

from collections.abc import Mapping

from loganalyze.checks.base import Check, CheckContext
from loganalyze.checks.ends import ENDS
from loganalyze.checks.gradient import GRADIENT
from loganalyze.checks.levels import LEVELS
from loganalyze.checks.loss import LOSS
from loganalyze.checks.memory import MEMORY
from loganalyze.checks.resume import RESUME
from loganalyze.checks.rl import RL
from loganalyze.checks.said import SAID
from loganalyze.checks.scale import SCALE
from loganalyze.checks.settings import SETTINGS
from loganalyze.checks.shape import SHAPE
from loganalyze.checks.slow_steps import SLOW_STEPS
from loganalyze.checks.speed import SPEED

__all__ = ("CHECKS", "Check", "CheckContext")

#: Name -> check; the trees name nothing else, and a test holds that every one is used.
CHECKS: Mapping[str, Check] = {
    **LOSS, **SHAPE, **LEVELS, **GRADIENT, **SCALE, **SETTINGS, **RESUME, **SPEED, **SLOW_STEPS,
    **MEMORY, **ENDS, **RL, **SAID,
}  # fmt: skip
