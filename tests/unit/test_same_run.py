"""Inputs of different makes that tell one curve are one run; steps run twice are compared."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from textlogs import megatron_line, run_of

from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.reruns import rerun
from loganalyze.same_run import Curve, match

Row = dict[str, float]


def rows(first: int, end: int, seed: int) -> list[Row]:
    """Trainer rows of every tenth step, as its console and its state both have them."""
    noise = random.Random(seed)
    return [
        {
            "loss": round(4 - n / 40 + 0.05 * noise.random(), 4),
            "grad_norm": round(noise.random() + 0.5, 6),
            "learning_rate": 5e-5 * (1 - n / 81),
            "epoch": round(n / 80, 2),
        }
        for n in range(first, end)
    ]


def state(path: Path, history: list[Row], first: int = 1) -> None:
    """A trainer_state.json with these rows, ten steps apart."""
    entries = [{**row, "step": 10 * n} for n, row in enumerate(history, first)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"epoch": 1.0, "log_history": entries, "max_steps": 800}, indent=1))


def console(path: Path, history: list[Row], *, quoted: bool = False) -> None:
    """The same rows as printed; quoted: as transformers 5 does, to 4 digits."""
    made = [{k: f"{v:.4g}" for k, v in row.items()} if quoted else row for row in history]
    path.write_text("".join(f"{row}\n" for row in made))


def the_run(folder: Path) -> RunLog:
    """The only run of a folder."""
    made = ingest([str(folder)])
    assert len(made.runs) == 1, [run.meta.grouping for run in made.runs]
    return made.runs[0]


def test_console_beside_its_state_is_one_run(tmp_path: Path) -> None:
    """Every number once, at the state's steps, with the console's crash among the events."""
    for quoted in (False, True):
        folder = tmp_path / str(quoted)
        history = rows(1, 41, seed=1)
        state(folder / "trainer_state.json", history)
        console(folder / "train.log", history, quoted=quoted)
        with (folder / "train.log").open("a") as file:
            file.write("RuntimeError: CUDA error: an illegal memory access was encountered\n")
        run = the_run(folder)
        assert run.readings["step"].to_list() == list(range(10, 410, 10))
        assert run.readings["loss"].to_list() == [row["loss"] for row in history]
        assert run.events.filter(kind="exception")["step"].to_list() == [400]
        assert "tells the same losses (40 of 40 records)" in run.meta.grouping


def test_console_goes_on_behind_the_last_state(tmp_path: Path) -> None:
    """Rows after the last saved state keep their place: the pace of the rows before is known."""
    history = rows(1, 41, seed=1)
    state(tmp_path / "trainer_state.json", history[:30])
    console(tmp_path / "train.log", history)
    run = the_run(tmp_path)
    assert run.readings["step"].to_list() == list(range(10, 410, 10))
    assert run.readings["loss"].to_list() == [row["loss"] for row in history]


def test_states_of_checkpoints_and_results_belong_to_their_run(tmp_path: Path) -> None:
    """An output folder with checkpoints and result files is one run."""
    history = rows(1, 41, seed=1)
    for folder, count in (("", 40), ("checkpoint-200", 20), ("checkpoint-400", 40)):
        state(tmp_path / folder / "trainer_state.json", history[:count])
    (tmp_path / "all_results.json").write_text('{"train_runtime": 42.0, "train_loss": 3.0}')
    run = the_run(tmp_path)
    assert run.readings["loss"].to_list() == [row["loss"] for row in history]
    assert len(run.sources) == 4


def test_attempt_before_a_resume_is_a_branch(tmp_path: Path) -> None:
    """Rows that only the crashed attempt's console has stand as superseded steps."""
    first, second = rows(1, 40, seed=1), rows(31, 81, seed=2)
    state(tmp_path / "trainer_state.json", first[:30] + second)
    console(tmp_path / "slurm-1.out", first)
    console(tmp_path / "slurm-2.out", second)
    run = the_run(tmp_path)
    told = [(s.relation, s.first, s.last, s.superseded_steps) for s in run.meta.segments]
    assert told == [("start", 10, 390, 0), ("resume", 310, 800, 90)]


HEADER = """***** Running training *****
  Num examples = 6400
  Num Epochs = 1
  Total train batch size (w. parallel, distributed & accumulation) = 8
  Total optimization steps = 800
"""


@pytest.mark.parametrize("told", [False, True])
def test_console_of_both_attempts_is_taken_apart(told: bool, tmp_path: Path) -> None:
    """One console with a crash and a resume: its steps are the state's, none lies beyond its end.

    told: whether it has the Trainer's header, and so knows its steps; without, it counts rows.
    """
    first, second = rows(1, 40, seed=1), rows(31, 81, seed=2)
    state(tmp_path / "trainer_state.json", first[:30] + second)
    parts = []
    for number, history in enumerate((first, second)):
        console(tmp_path / "part", history)
        resumed = "  Continuing training from global step 300\n" if number else ""
        parts.append((HEADER + resumed if told else "") + (tmp_path / "part").read_text())
    (tmp_path / "part").unlink()
    error = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    (tmp_path / "train.log").write_text(error.join(parts))
    run = the_run(tmp_path)
    ends = [(s.relation, s.first, s.last, s.superseded_steps) for s in run.meta.segments]
    assert ends == [("start", 10, 390, 0), ("resume", 310, 800, 90)]
    assert run.readings["step"].to_list() == [*range(10, 400, 10), *range(310, 810, 10)]
    losses = [row["loss"] for row in [*first, *second]]
    assert run.readings["loss"].to_list() == losses
    assert run.events.filter(kind="exception")["step"].to_list() == [390]
    assert "(80 of 89 records)" in run.meta.grouping


def test_other_runs_stay_apart(tmp_path: Path) -> None:
    """Two runs of other noise are two runs, whatever their steps and makes."""
    state(tmp_path / "trainer_state.json", rows(1, 41, seed=1))
    console(tmp_path / "train.log", rows(1, 41, seed=2))
    assert len(ingest([str(tmp_path)]).runs) == 2


def test_two_consoles_stay_two_runs(tmp_path: Path) -> None:
    """Inputs of the same make are never joined by their numbers: a run may have been repeated."""
    for name in ("monday.log", "tuesday.log"):
        console(tmp_path / name, rows(1, 41, seed=1))
    assert len(ingest([str(tmp_path)]).runs) == 2


def test_steps_run_twice_are_compared(tmp_path: Path) -> None:
    """Equal rows are counted, and the step at which both times differ most is named."""
    lines = [megatron_line(n, lm_loss=f"{9 - n / 100:.4f}") for n in range(1, 51)]
    lines.append("loading checkpoint from /ckpt at iteration 30")
    again = {44: "8.9000", 47: "nan"}
    lines += [megatron_line(n, lm_loss=again.get(n, f"{9 - n / 100:.4f}")) for n in range(31, 71)]
    run = run_of("\n".join(lines) + "\n", tmp_path)
    found = rerun(run, 1)
    assert found is not None
    assert (found.metric, found.common, found.equal, found.step) == ("loss", 20, 18, 47)
    assert found.before == 8.53


def test_lost_work_is_counted_to_the_step(tmp_path: Path) -> None:
    """With a row every ten steps the steps run again are those behind the checkpoint, not rows."""

    def part(first: int, end: int) -> list[str]:
        return [megatron_line(n, lm_loss=f"{9 - n / 1000:.4f}") for n in range(first, end, 10)]

    for load, lost in (("at iteration 305", 185), ("", 190)):
        text = [*part(10, 500), f"loading checkpoint from /ckpt {load}", *part(310, 700)]
        run = run_of("\n".join(text) + "\n", tmp_path)
        assert run.meta.segments[1].superseded_steps == lost


def job(folder: Path, name: str, first: int, end: int, *, load: str = "", save: str = "") -> None:
    """A Megatron log of one job that may load a checkpoint and saves every twenty steps."""
    lines = [f"loading checkpoint from {load}"] if load else []
    for n in range(first, end):
        lines.append(megatron_line(n, lm_loss=f"{9 - n / 100:.4f}"))
        if save and n % 20 == 0:
            lines.append(f"saving checkpoint at iteration {n} to {save} in torch_dist format")
            lines.append(f"successfully saved checkpoint from iteration {n} to {save}")
    (folder / name).write_text("\n".join(lines) + "\n")


def test_job_that_goes_on_from_a_checkpoint_is_the_same_run(tmp_path: Path) -> None:
    """Files of jobs queued again are one run with its segments and the work lost between them."""
    job(tmp_path, "slurm-101.out", 1, 51, save="/ckpt/a")
    job(tmp_path, "slurm-102.out", 41, 71, load="/ckpt/a at iteration 40", save="/ckpt/a")
    job(tmp_path, "slurm-103.out", 61, 91, load="/ckpt/a at iteration 60", save="/ckpt/a")
    run = the_run(tmp_path)
    told = [(s.relation, s.first, s.last, s.superseded_steps) for s in run.meta.segments]
    assert told == [("start", 1, 50, 0), ("resume", 41, 70, 10), ("resume", 61, 90, 10)]
    assert "goes on from its checkpoint of step 60" in run.meta.grouping


def test_branch_that_saves_elsewhere_is_another_run(tmp_path: Path) -> None:
    """A job that loads the same checkpoint and saves to its own place is an experiment apart."""
    job(tmp_path, "base.out", 1, 51, save="/ckpt/a")
    job(tmp_path, "branch.out", 41, 71, load="/ckpt/a at iteration 40", save="/ckpt/b")
    assert len(ingest([str(tmp_path)]).runs) == 2


def test_a_step_told_too_early_is_the_same_record() -> None:
    """A bar drawn before its last step: the losses are the same in order, so all rows meet."""
    losses = 3.0 + np.random.default_rng(3).standard_normal(40)
    steps = np.arange(2, 82, 2)
    early = steps - np.isin(np.arange(40), (17, 30))
    host, guest = (
        Curve(steps=at, places=np.arange(40), values={"loss": losses}) for at in (steps, early)
    )
    found = match(host, guest)
    assert found is not None
    assert (found.same, found.host.tolist()) == (40, found.guest.tolist())
