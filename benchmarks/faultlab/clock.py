"""The run's clock: modelled from the seed, or measured and stretched.

A step of the lab takes milliseconds, so measured time is stretched by DILATION to look like the
steps people run. Work counts as processor time of this thread, so that neighbours on the machine
don't show; a wait is a real sleep and counts by the wall.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

DILATION = 60.0
#: Logged seconds of each phase of a step on the modelled clock, at the usual sequence length.
NOMINAL = {"data": 0.012, "forward": 0.17, "backward": 0.35, "comm": 0.05, "optimizer": 0.045}
_JITTER = 0.012  # standard deviation of a modelled phase, relative
_START = datetime(2026, 5, 4, 21, 17, 3, 250000, tzinfo=UTC)


@dataclass(slots=True)
class Clock:
    """Where the log's time stands; `phases` is what the present step has spent so far."""

    seed: int
    measured: bool = False
    now: datetime = _START
    phases: dict[str, float] = field(default_factory=dict)
    _draw: random.Random = field(init=False)
    _waited: float = 0.0  # seconds slept inside the present phase, by the wall

    def __post_init__(self) -> None:
        """The jitter has a seed of its own."""
        self._draw = random.Random(self.seed * 7919 + 5)

    @contextmanager
    def phase(self, name: str, size: float = 1.0) -> Iterator[None]:
        """A part of the step; size: how much work it is beside the usual (modelled clock only)."""
        self._waited, began = 0.0, time.thread_time() if self.measured else 0.0
        yield
        if self.measured:
            seconds = (time.thread_time() - began + self._waited) * DILATION
        else:
            jitter = 1 + _JITTER * self._draw.gauss(0, 1)
            seconds = NOMINAL.get(name, 0.0) * size * jitter + self._waited
        self.phases[name] = self.phases.get(name, 0.0) + seconds

    def wait(self, seconds: float) -> None:
        """Wait so many logged seconds inside a phase: sleeps for real on a measured clock."""
        if not self.measured:
            self._waited += seconds
            return
        began = time.perf_counter()
        time.sleep(seconds / DILATION)
        self._waited += time.perf_counter() - began

    def end_step(self) -> dict[str, float]:
        """The phases of the step that ends, in logged seconds; the clock moves on."""
        done, self.phases = self.phases, {}
        self.skip(sum(done.values()))
        return done

    def skip(self, seconds: float) -> None:
        """Time outside steps."""
        self.now += timedelta(seconds=seconds)

    def stamp(self, form: str = "%Y-%m-%d %H:%M:%S.%f") -> str:
        """The time as text."""
        return self.now.strftime(form)

    def milli(self) -> str:
        """The time as Python's logging prints it: a comma before the milliseconds."""
        return f"{self.now:%Y-%m-%d %H:%M:%S},{self.now.microsecond // 1000:03d}"
