"""The closed set of named checks that the troubleshooting trees may use."""

from __future__ import annotations

from collections.abc import Mapping

from loganalyze.checks.base import Check, CheckContext
from loganalyze.checks.curves import CURVES
from loganalyze.checks.system import NEEDS, SYSTEM
from loganalyze.checks.training import TRAINING

__all__ = ("CHECKS", "Check", "CheckContext")

#: Name -> check; the trees name nothing else, and a test holds that every one is used.
CHECKS: Mapping[str, Check] = {**TRAINING, **CURVES, **SYSTEM, **NEEDS}
