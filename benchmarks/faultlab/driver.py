"""One run from its first line to its last: trains, tells the writer, writes log and label."""

from __future__ import annotations

import json
import resource
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.faultlab import blackbox
from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.endings import ending
from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.faults_system import text_of
from benchmarks.faultlab.injection import Ended, Injection
from benchmarks.faultlab.ranks import processes
from benchmarks.faultlab.recipe import Recipe
from benchmarks.faultlab.rl import PolicyTrainer
from benchmarks.faultlab.training import Trainer
from benchmarks.faultlab.writers import WRITERS, real, writer_for
from benchmarks.faultlab.writers.base import SAVE_S, Writer

#: Causes that are true of how a first process died, beside the fault.
_DEATHS = {
    "node": ("C.HW.NODE", "C.LIFE.FAILURE"),
    "time_limit": ("C.LIFE.PLANNED",),
}
#: What torch itself raises when a fault breaks a step.
_RAISED = (IndexError, RuntimeError, ValueError)


def run(fault: Fault, seed: int, trainer: str, out: Path) -> Path:
    """Train one run into `<out>/<fault>-<trainer>-<seed>/`; its folder. label.json comes last."""
    recipe = Recipe(seed=seed, trainer=trainer, **fault.recipe)
    folder = out / f"{fault.name}-{trainer}-{seed}"
    log = folder / "log"
    log.mkdir(parents=True, exist_ok=True)
    began, worked = time.perf_counter(), _processor_time()
    onset = fault.onset(recipe)
    clock = Clock(seed, recipe.measured)
    writer = writer_for(recipe, clock)
    others = processes(fault.name, recipe, onset) if recipe.replicas > 1 else nullcontext()
    with others as exchange:
        loop = PolicyTrainer if fault.loop == "rl" else Trainer
        running = loop(recipe, fault.make(onset), clock, exchange)
        last, how = _trained(running, writer, fault, folder)
    label = _label(fault, recipe, onset, last, how)
    label["lab_seconds"] = round(time.perf_counter() - began, 2)
    label["cpu_seconds"] = round(_processor_time() - worked, 2)
    (folder / "label.json").write_text(json.dumps(label, indent=1), encoding="utf-8")
    return folder


def _processor_time() -> float:
    """Seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _trained(trainer: Trainer, writer: Writer, fault: Fault, folder: Path) -> tuple[int, str]:
    """Run and log: by the real `transformers` Trainer, or by the lab's loop and a writer."""
    if trainer.recipe.trainer == "hf" and real("transformers"):
        from benchmarks.faultlab import hf_loop

        return hf_loop.whole(trainer, fault, folder)
    if fault.recorded:
        trainer.recorder = blackbox.record(trainer, folder)
    last, how = _whole(trainer, writer, fault, folder)
    if trainer.recorder is not None:
        trainer.recorder.flush()
    writer.write(folder / "log")
    return last, how


def _whole(trainer: Trainer, writer: Writer, fault: Fault, folder: Path) -> tuple[int, str]:
    """All processes of the run: the last step and how it ended."""
    recipe, first = trainer.recipe, 1
    writer.launch()
    if fault.restart:
        saved = fault.saved(recipe)
        injection, trainer.injection = trainer.injection, Injection(1)
        if fault.from_start:
            injection.built(trainer)
        _stretch(trainer, writer, 1, saved, folder)
        state = trainer.state()
        _stretch(trainer, writer, saved + 1, min(saved + 27, recipe.total - 1), folder)
        writer.raw(ending(fault.restart_kind, "", trainer.clock))
        trainer.clock.skip(640)
        trainer.injection = injection
        trainer.build()
        trainer.load(state)
        writer.launch(loaded=saved)
        first = saved + 1
    last, how = _stretch(trainer, writer, first, recipe.total, folder)
    if how == "finished":
        writer.finished()
    return last, how


def _stretch(
    trainer: Trainer, writer: Writer, first: int, last: int, folder: Path
) -> tuple[int, str]:
    """Steps first to last with evaluations and saves; stops where something ends the run."""
    step = first - 1
    try:
        for step in range(first, last + 1):
            writer.step(trainer.step(step))
            _between(trainer, writer, step)
            if trainer.recorder is not None and step % trainer.recipe.save == 0:
                blackbox.checkpoint(trainer, folder, step)
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


def evidence(fault: Fault, trainer: str) -> dict[str, Any]:
    """Of what a fault shows in, what a trainer logs; and if nothing, what is lacking."""
    logs = WRITERS[trainer].logs
    logged = [name for name in fault.metrics if name in logs or name.startswith("aux_loss")]
    visible = not fault.metrics or bool(logged)
    return {
        "metrics": list(fault.metrics), "logged": logged, "visible": visible,
        "why_not": "" if visible else f"{trainer} logs no {' or '.join(fault.metrics)}",
    }  # fmt: skip


def truth(fault: Fault, trainer: str) -> dict[str, Any]:
    """The part of a label that the catalogue alone decides: a corrected entry needs no new runs."""
    return {
        "fault": fault.name, "family": fault.family, "healthy": fault.healthy,
        "causes": list(fault.causes), "kinds": list(fault.kinds),
        "also": list(_DEATHS[fault.restart_kind]) if fault.restart else [],
        **evidence(fault, trainer),
    }  # fmt: skip


def _label(fault: Fault, recipe: Recipe, onset: int, last: int, how: str) -> dict[str, Any]:
    """What is known of the run: see README.md beside this module."""
    return {
        "schema": "faultlab/1", **truth(fault, recipe.trainer),
        "onset": None if fault.healthy else onset, "last_step": last, "ended": how,
        "interval": recipe.interval, "recipe": asdict(recipe),
    }  # fmt: skip
