"""What every writer does: lines on the run's clock, told of by the driver."""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.recipe import Recipe, StepRecord

SAVE_S, EVALUATION_S, LAUNCH_S = 3.1, 2.4, 24.0  # on the run's clock


class Writer:
    """Collects console lines; subclasses say how. `logs` names what evidence they write."""

    #: Canonical metrics that this trainer's log carries.
    logs: tuple[str, ...] = ()
    name = "train.log"

    def __init__(self, recipe: Recipe, clock: Clock) -> None:
        """The draw is for noise lines."""
        self.recipe, self.clock = recipe, clock
        self.lines: list[str] = []
        self.draw = random.Random(recipe.seed * 13 + 1)
        self.processes = 0
        self.window: list[StepRecord] = []

    def launch(self, loaded: int | None = None) -> None:
        """A new process begins; loaded: step of the checkpoint that it resumes from."""
        self.processes += 1
        self.window = []
        self.clock.skip(LAUNCH_S)

    def step(self, record: StepRecord) -> None:
        """Take a step in; a line appears at the end of each interval."""
        self.window.append(record)
        if record.number % self.recipe.interval == 0:
            self.interval(self.window)
            self.window = []

    def interval(self, window: list[StepRecord]) -> None:
        """Write the line of the steps of an interval."""
        raise NotImplementedError

    def evaluated(self, step: int, loss: float) -> None:
        """An evaluation ended."""
        self.clock.skip(EVALUATION_S)

    def saved(self, step: int, seconds: float) -> None:
        """A checkpoint was written, which took so long."""
        self.clock.skip(seconds)

    def finished(self) -> None:
        """The run came to its end."""

    def raw(self, lines: Iterable[str]) -> None:
        """Lines of other makes: tracebacks, the launcher's, Slurm's."""
        self.lines += lines

    def settings(self) -> dict[str, object]:
        """Configuration in this trainer's words."""
        return {}

    def write(self, folder: Path) -> None:
        """The log's files into the folder."""
        (folder / self.name).write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def mean_of(window: Iterable[StepRecord]) -> float:
    """Mean loss of the steps that were not skipped; NaN if one is, or if there is none."""
    losses = [record.loss for record in window if not record.skipped]
    return sum(losses) / len(losses) if losses else float("nan")


def dotted(settings: Mapping[str, object], width: int = 48) -> list[str]:
    """Rows of an argument dump."""
    return [f"  {k} {'.' * (width - len(k))} {v}" for k, v in sorted(settings.items())]


def real(package: str) -> bool:
    """Whether a trainer's own package writes its log: it is there, and nobody asked for ours."""
    return "LAB_OWN_WRITERS" not in os.environ and importlib.util.find_spec(package) is not None
