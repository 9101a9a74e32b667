"""When a recorder takes a step for a fault: not finite, or far over the running median."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from statistics import median

from loganalyze.config import load_thresholds


class Watch:
    """Running medians of loss and gradient norm; thresholds `replay.record_*`."""

    def __init__(self) -> None:
        """Reads the packaged thresholds."""
        rules = load_thresholds()
        self._window = int(rules.value("replay.record_window"))
        self._least = int(rules.value("replay.record_least"))
        self._recent = int(rules.value("replay.record_recent"))
        self._z = rules.value("replay.record_z")
        self._floor = rules.value("replay.record_floor")
        self._grad_ratio = rules.value("replay.record_grad_ratio")
        self.losses: deque[float] = deque(maxlen=self._window)
        self._norms: deque[float] = deque(maxlen=self._window)

    def see(self, values: Mapping[str, float]) -> str:
        """`nonfinite`, `spike`, `grad_spike` or "" for one step's values."""
        loss, norm = values.get("loss"), values.get("grad_norm")
        scaled = "loss_scale" in values  # a scaler skips steps that overflow; that is no fault
        if loss is not None and not math.isfinite(loss):
            return "nonfinite"
        if norm is not None and not math.isfinite(norm):
            return "" if scaled else "nonfinite"
        reason = ""
        if loss is not None:
            reason = "spike" if self._spike(loss) else ""
            self.losses.append(loss)
        if norm is not None:
            if not reason and len(self._norms) >= self._least:
                reason = "grad_spike" if norm > self._grad_ratio * median(self._norms) else ""
            self._norms.append(norm)
        return reason

    def _spike(self, loss: float) -> bool:
        if len(self.losses) < self._least:
            return False
        recent = list(self.losses)[-self._recent :]
        middle = median(recent)
        least = self._floor * abs(middle)
        if loss <= middle + self._z * least:  # most steps: the deviation isn't needed
            return False
        return loss > middle + self._z * max(self._deviation(), least)

    def _deviation(self) -> float:
        """Of one loss, from the steps between neighbours: a trend doesn't widen it."""
        steps = [abs(b - a) for a, b in pairwise(self.losses)]
        return 1.4826 * median(steps) / math.sqrt(2)
