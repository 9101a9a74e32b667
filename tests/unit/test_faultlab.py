"""The fault lab trains, writes logs that our parsers read, and labels them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paths import loopback_is_up

torch = pytest.importorskip("torch")
pytest.importorskip("benchmarks.faultlab", reason="the lab lives in the checkout, not the wheel")

from benchmarks import diagnosis  # noqa: E402
from benchmarks.faultlab.catalogue import BY_NAME, FAULTS  # noqa: E402
from benchmarks.faultlab.corpus import tasks  # noqa: E402
from benchmarks.faultlab.driver import run  # noqa: E402
from benchmarks.faultlab.fault import TWIN, Fault  # noqa: E402
from benchmarks.faultlab.injection import Injection  # noqa: E402
from loganalyze.config import kinds  # noqa: E402
from loganalyze.knowledge import catalogue  # noqa: E402
from loganalyze.pipeline import Judging, report_on  # noqa: E402

#: Fault and trainer of each run of the smoke part.
SMOKE = (
    ("healthy", "megatron"),
    ("healthy", "deepspeed"),
    ("healthy", "hf"),
    ("healthy", "wandb"),
    ("healthy", "plain"),
    ("crash", "plain"),
    ("disk_full", "megatron"),
    ("mask_all_inf", "hf"),
    ("lr_reset_on_resume", "megatron"),
    ("loss_scale_collapse", "deepspeed"),
    ("replica_unsynced", "plain"),
    ("entropy_collapse", "wandb"),
)
SHORT = 40


@pytest.fixture(autouse=True)
def own_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainers' packages take seconds to import; the lab's own writers do here."""
    monkeypatch.setenv("LAB_OWN_WRITERS", "1")


def shortened(name: str) -> Fault:
    """The same fault in a run of a few steps, of two processes at most."""
    fault = BY_NAME[name]
    recipe = {**fault.recipe, "total": SHORT, "save": 10, "evaluate": 20}
    if "replicas" in recipe:
        recipe |= {"replicas": 2, "ranks": 2}
    return replace(fault, recipe=recipe)


def read_again(folder: Path) -> tuple[dict[str, Any], set[int]]:
    """A run's label, and the steps that our parsers find in its log; nothing may be left unread."""
    label = json.loads((folder / "label.json").read_text(encoding="utf-8"))
    report = report_on([str(folder / "log")], Judging())
    assert not report.unread
    steps = [s for d in report.diagnoses for s in d.run.readings["step"].drop_nulls().to_list()]
    return label, set(steps)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trainer"), SMOKE)
def test_run_is_written_labelled_and_read(name: str, trainer: str, tmp_path: Path) -> None:
    """A short run ends where its label says, and every step of its log is read again."""
    if name == "replica_unsynced" and not loopback_is_up():
        pytest.skip("real ranks speak to each other over the loopback, which is down here")
    label, steps = read_again(run(shortened(name), 7, trainer, tmp_path))
    assert label["last_step"] - label["interval"] <= max(steps) <= label["last_step"]
    assert label["last_step"] == SHORT or label["ended"] != "finished"
    if not label["healthy"] and label["onset"] > 1:
        assert 1 < label["onset"] <= label["last_step"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the packages' own
@pytest.mark.parametrize(
    ("name", "trainer", "package"),
    [
        ("healthy_resume", "hf", "transformers"),
        ("disk_full", "hf", "transformers"),
        ("healthy", "wandb", "wandb"),
        ("healthy_resume", "tensorboard", "tensorboard"),
    ],
)
def test_the_trainers_own_packages_write_it(
    name: str, trainer: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of the real transformers Trainer, W&B offline and SummaryWriter hold every step."""
    pytest.importorskip(package, reason=f"needs {package}")
    monkeypatch.delenv("LAB_OWN_WRITERS")
    label, steps = read_again(run(shortened(name), 7, trainer, tmp_path))
    wanted = range(label["interval"], label["last_step"] + 1, label["interval"])
    assert set(wanted) - steps <= {label["last_step"]}


@pytest.mark.slow
def test_recorded_runs_leave_a_capsule_and_a_checkpoint(tmp_path: Path) -> None:
    """The capsule holds the step at which the bad batch came; the checkpoint is from before it."""
    folder = run(shortened("bad_batch_garbage"), 3, "plain", tmp_path)
    onset = json.loads((folder / "label.json").read_text(encoding="utf-8"))["onset"]
    (box,) = (folder / "blackbox").glob("capsule-*/capsule.json")
    recorded = [step["step"] for step in json.loads(box.read_text(encoding="utf-8"))["steps"]]
    assert onset in recorded
    assert torch.load(folder / "checkpoint/state.pt")["step"] < onset


@pytest.mark.slow
def test_seed_decides_every_byte(tmp_path: Path) -> None:
    """The same seed on a modelled clock writes the same log."""
    one = run(shortened("bad_batch_garbage"), 3, "megatron", tmp_path / "a")
    two = run(shortened("bad_batch_garbage"), 3, "megatron", tmp_path / "b")
    assert (one / "log/train.log").read_bytes() == (two / "log/train.log").read_bytes()


@pytest.mark.slow
def test_twin_is_equal_until_the_onset(tmp_path: Path) -> None:
    """A fault changes nothing before its onset, and something at it."""
    sick = run(shortened("bad_batch_garbage"), 3, "plain", tmp_path)
    well = run(shortened("healthy"), 3, "plain", tmp_path)
    onset = json.loads((sick / "label.json").read_text(encoding="utf-8"))["onset"]
    losses = [
        re.findall(r"^step +\d+ \| loss: (\S+)", (f / "log/train.log").read_text(), re.MULTILINE)
        for f in (sick, well)
    ]
    assert losses[0][: onset - 1] == losses[1][: onset - 1]
    assert losses[0][onset - 1] != losses[1][onset - 1]


def test_catalogue_speaks_of_known_causes_and_kinds() -> None:
    """Every cause and kind of a label exists in the program's own tables; names are unique."""
    assert len(BY_NAME) == len(FAULTS) + sum(not fault.healthy for fault in FAULTS)
    for fault in BY_NAME.values():
        assert set(fault.causes) <= set(catalogue()), fault.name
        assert set(fault.kinds) <= set(kinds()), fault.name
        assert bool(fault.causes) != fault.healthy


def test_every_kind_has_its_turn() -> None:
    """Three hundred tasks hold every kind, none twice, each fault beside its healthy twin."""
    from itertools import islice

    listed = list(islice(tasks(5000), 300))
    assert len(set(listed)) == 300
    assert {name for name, _, _ in listed} == set(BY_NAME)
    sick = {task for task in listed[:-1] if not BY_NAME[task[0]].healthy}
    assert len(sick) > 100
    assert all((f"{TWIN}{name}", seed, trainer) in listed for name, seed, trainer in sick)


def test_a_twin_has_nothing_injected_and_the_usual_settings_where_those_were_the_fault() -> None:
    """A slow rank's twin keeps its four ranks; that of a rate too high has the usual rate."""
    slow, high = BY_NAME[f"{TWIN}slow_rank"], BY_NAME[f"{TWIN}lr_too_high"]
    assert (slow.make, high.make) == (Injection, Injection)
    assert slow.recipe == BY_NAME["slow_rank"].recipe
    assert (high.recipe, high.causes, high.healthy) == ({}, (), True)


def test_only_findings_that_reach_the_fault_detect_it() -> None:
    """A finding of the right kind that ended before the onset does not count."""
    from loganalyze.model import Finding

    label = {"kinds": ["loss_spike"], "onset": 200, "interval": 1}
    made = {"id": "LA101-1", "code": "LA101", "metric": "loss", "severity": "warning"}
    late = Finding(kind="loss_spike", step_first=201, step_last=203, **made)
    early = Finding(kind="loss_spike", step_first=100, step_last=103, **made)
    other = Finding(kind="loss_plateau", step_first=201, step_last=203, **made)
    assert [diagnosis.sees(f, label) for f in (late, early, other)] == [True, False, False]


def test_what_no_log_shows_is_labelled_so(tmp_path: Path) -> None:
    """The betas stand in DeepSpeed's log and not in a plain one; the label says which and why."""
    short = replace(BY_NAME["betas_eps"], recipe={"total": 4})
    shown, hidden = (
        json.loads((run(short, 3, trainer, tmp_path) / "label.json").read_text(encoding="utf-8"))
        for trainer in ("deepspeed", "plain")
    )
    assert (shown["visible"], shown["why_not"]) == (True, "")
    assert (hidden["visible"], hidden["why_not"]) == (False, "plain logs no config")
