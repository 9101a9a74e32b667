"""One run from its first line to its last: trains, tells the writer, writes log and label."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.endings import ending
from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.faults_system import text_of
from benchmarks.faultlab.injection import Ended, Injection
from benchmarks.faultlab.recipe import Recipe
from benchmarks.faultlab.rl import PolicyTrainer
from benchmarks.faultlab.training import Trainer
from benchmarks.faultlab.writers import writer_for
from benchmarks.faultlab.writers.base import SAVE_S, Writer

#: What torch itself raises when a fault breaks a step.
_RAISED = (IndexError, RuntimeError, ValueError)


def run(fault: Fault, seed: int, trainer: str, out: Path) -> Path:
    """Train one run into `<out>/<fault>-<trainer>-<seed>/`; its folder. label.json comes last."""
    recipe = Recipe(seed=seed, trainer=trainer, **fault.recipe)
    folder = out / f"{fault.name}-{trainer}-{seed}"
    log = folder / "log"
    log.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    onset = fault.onset(recipe.total, seed)
    if fault.restart:
        onset = _saved_before(recipe, fault) + 1
    clock = Clock(seed, recipe.measured)
    loop = PolicyTrainer if fault.loop == "rl" else Trainer
    running = loop(recipe, fault.make(onset), clock)
    writer = writer_for(recipe, clock)
    last, how = _whole(running, writer, fault)
    writer.write(log)
    label = _label(fault, recipe, onset, last, how, writer)
    label["lab_seconds"] = round(time.perf_counter() - began, 2)
    (folder / "label.json").write_text(json.dumps(label, indent=1), encoding="utf-8")
    return folder


def _saved_before(recipe: Recipe, fault: Fault) -> int:
    """The checkpoint that a resumed run starts from."""
    return int(recipe.total * fault.restart) // recipe.save * recipe.save


def _whole(trainer: Trainer, writer: Writer, fault: Fault) -> tuple[int, str]:
    """All processes of the run: the last step and how it ended."""
    recipe, first = trainer.recipe, 1
    writer.launch()
    if fault.restart:
        saved = _saved_before(recipe, fault)
        injection, trainer.injection = trainer.injection, Injection(1)
        if fault.name == "resume_replays_data":
            injection.built(trainer)
        _stretch(trainer, writer, 1, saved)
        state = trainer.state()
        _stretch(trainer, writer, saved + 1, min(saved + 27, recipe.total - 1))
        writer.raw(ending(fault.restart_kind, "", trainer.clock))
        trainer.clock.skip(640)
        trainer.injection = injection
        trainer.build()
        trainer.load(state)
        writer.launch(loaded=saved)
        first = saved + 1
    last, how = _stretch(trainer, writer, first, recipe.total)
    if how == "finished":
        writer.finished()
    return last, how


def _stretch(trainer: Trainer, writer: Writer, first: int, last: int) -> tuple[int, str]:
    """Steps first to last with evaluations and saves; stops where something ends the run."""
    step = first - 1
    try:
        for step in range(first, last + 1):
            writer.step(trainer.step(step))
            _between(trainer, writer, step)
    except Ended as ended:
        writer.raw(ending(ended.kind, ended.text, trainer.clock))
        return step, ended.kind
    except _RAISED as error:
        writer.raw(ending("crash", text_of(error), trainer.clock))
        return step, "crash"
    return last, "finished"


def _between(trainer: Trainer, writer: Writer, step: int) -> None:
    recipe = trainer.recipe
    if step % recipe.evaluate == 0:
        writer.evaluated(step, trainer.validation_loss())
    if step % recipe.save == 0:
        writer.saved(step, SAVE_S + trainer.injection.saving(trainer, step))


def _label(
    fault: Fault, recipe: Recipe, onset: int, last: int, how: str, writer: Writer
) -> dict[str, Any]:
    """What is known of the run: see README.md beside this module."""
    logged = [name for name in fault.metrics if name in writer.logs or name.startswith("aux_loss")]
    return {
        "schema": "faultlab/1", "fault": fault.name, "family": fault.family,
        "healthy": fault.healthy, "causes": list(fault.causes), "kinds": list(fault.kinds),
        "onset": None if fault.healthy else onset, "last_step": last, "ended": how,
        "metrics": list(fault.metrics), "logged": logged,
        # Only with all of its metrics in the log can anybody see the fault; "any" is for the
        # two names of host memory.
        "visible": not fault.metrics or bool(logged),
        "interval": recipe.interval, "recipe": asdict(recipe),
    }  # fmt: skip
