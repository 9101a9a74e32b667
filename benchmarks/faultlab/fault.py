"""What a fault is: an entry of the catalogue, and what its label says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.faultlab.injection import Injection
from benchmarks.faultlab.recipe import TRAINERS, Recipe

Make = Callable[[int], Injection]
#: How the name of a healthy twin begins.
TWIN = "twin_of_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault, or of healthy run.

    causes: entries of the trees that count as right, the best one first. kinds: kinds of finding
    that count as seeing it. metrics: what it shows in; a log without all of them can't tell.
    at: share of the run at which it begins, 0 from the start. recipe: settings it changes.
    """

    name: str
    family: str
    make: Make = Injection
    causes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("loss",)
    at: float = 0.6
    recipe: dict[str, Any] = field(default_factory=dict)
    trainers: tuple[str, ...] = TRAINERS
    restart: float = 0.0  # share of the run at which the process dies and a new one resumes
    restart_kind: str = "node"
    from_start: bool = False  # whether the fault's setting holds in the first process as well
    on_save: bool = False  # whether it begins with a save
    recorded: bool = False  # whether runs of it leave a capsule and a checkpoint
    loop: str = "pretrain"  # pretrain | rl
    healthy: bool = False

    def onset(self, recipe: Recipe) -> int:
        """First step that differs; a little different for each seed."""
        if self.restart:
            return self.saved(recipe) + 1
        if self.at == 0:
            return 1
        step = max(2, int(recipe.total * self.at) + recipe.seed * 37 % 41 - 20)
        return -(-step // recipe.save) * recipe.save if self.on_save else step

    def saved(self, recipe: Recipe) -> int:
        """Step of the checkpoint that the second process starts from; 0 without a second one."""
        return int(recipe.total * self.restart) // recipe.save * recipe.save


def twin(fault: Fault) -> Fault:
    """The same run without the fault: its settings, restarts and trainers, nothing injected.

    A fault that injects nothing is one of settings, and a text so small that it repeats belongs to
    the fault as well: their twins have the usual settings. A process that has to die, for a resume,
    is ended by its time limit, as planned.
    """
    of_settings = fault.make is Injection or fault.from_start
    return replace(
        fault, name=f"{TWIN}{fault.name}", family="healthy", healthy=True, make=Injection,
        causes=(), kinds=(), metrics=("loss",), restart_kind="time_limit", from_start=False,
        recorded=False, recipe={} if of_settings else fault.recipe,
    )  # fmt: skip
