"""--baseline: what healthy runs teach, where it is kept, and how findings are judged against it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from synth import Planted, make_run, noise, plant, power_law

from loganalyze.cli import cli
from loganalyze.config import load_thresholds
from loganalyze.detectors import Context, detect
from loganalyze.detectors.normal import Normal, dump, learn, load
from loganalyze.model import Finding, RunLog

POINTS = 3000


def run_of(seed: int, *, share=0.012, floor=1.8, time=1.0, spikes=()) -> RunLog:
    """A pre-training run: noise share, level the loss falls to, seconds a step, planted spikes."""
    rng = np.random.default_rng(seed)
    loss = power_law(POINTS, floor=floor) * np.exp(noise(rng, POINTS, share))
    seconds = time * np.exp(noise(rng, POINTS, 0.01))
    return make_run({"loss": plant(loss, spikes), "step_time_s": np.round(seconds, 4)})


def taught(*runs: RunLog) -> tuple[Normal, ...]:
    """What runs teach."""
    made = []
    for number, run in enumerate(runs):
        thresholds = load_thresholds("pretrain")
        context = Context(run=run, thresholds=thresholds, profile="pretrain")
        made.append(learn(context, f"good-{number}", detect(run, thresholds)[0]))
    return tuple(made)


def found(run: RunLog, *normals: Normal) -> list[Finding]:
    """Findings of warning or worse."""
    findings, _ = detect(run, load_thresholds("pretrain"), baseline=normals)
    return [item for item in findings if item.severity != "info"]


@pytest.mark.parametrize("share", [0.005, 0.012, 0.03])
def test_the_noise_that_was_put_in_is_learnt(share: float) -> None:
    """Noise of the plateau within a tenth; what neighbours share is no noise between points."""
    (normal,) = taught(run_of(1, share=share))
    phase = normal.phases["loss"][-1]
    assert phase.name == "plateau"
    assert phase.noise == pytest.approx(share * np.sqrt(1 - 0.3), rel=0.15)


def test_the_slope_is_that_of_the_curve() -> None:
    """Theil and Sen's slope over the logarithm of the steps, beside the slope of the pure curve."""
    (normal,) = taught(run_of(2, share=0.005))
    for phase in normal.phases["loss"][1:]:
        steps = np.arange(phase.first, phase.last + 1)
        x, y = np.log(steps), np.log(power_law(POINTS)[steps - 1])
        assert phase.slope == pytest.approx(np.polyfit(x, y, 1)[0], rel=0.15)
        assert phase.slope_low <= phase.slope <= phase.slope_high


def test_speed_is_learnt() -> None:
    """Median and p95 over p50 of the step time."""
    (normal,) = taught(run_of(3, time=2.0))
    assert normal.speed is not None
    assert normal.speed.median == pytest.approx(2.0, rel=0.01)
    assert normal.speed.p95_p50 == pytest.approx(np.exp(1.645 * 0.01), rel=0.01)


def test_a_healthy_run_of_the_same_kind_is_clean() -> None:
    """Another seed gives nothing to say."""
    normals = taught(run_of(4), run_of(5))
    assert found(run_of(6), *normals) == []


def test_a_run_that_is_slow_all_along_is_seen_only_beside_a_baseline() -> None:
    """A quarter slower from the first step to the last."""
    slow = run_of(7, time=1.25)
    assert found(slow) == []
    (item,) = found(slow, *taught(run_of(4)))
    assert item.kind == "throughput_drop"
    assert item.statistics["excess_share"] == pytest.approx(0.25, abs=0.01)
    assert "good-0" in item.threshold.source


def test_a_loss_that_falls_too_slowly_is_seen_only_beside_a_baseline() -> None:
    """Towards a level of 6 instead of 1.8: healthy to look at, but far behind."""
    lame = run_of(8, floor=6.0)
    assert found(lame) == []
    assert "loss_plateau" in {item.kind for item in found(lame, *taught(run_of(4)))}


def test_more_noise_than_in_healthy_runs_is_told() -> None:
    """Four times the noise from the first step on."""
    loud = run_of(9, share=0.048)
    assert "loss_oscillation" not in {item.kind for item in found(loud)}
    assert "loss_oscillation" in {item.kind for item in found(loud, *taught(run_of(4)))}


def test_a_spike_as_high_as_healthy_ones_is_a_note() -> None:
    """Where the healthy run's noise reaches as far, a spike is no warning."""
    spike = Planted(first=2000, last=2000, height=0.4)
    sick = run_of(10, spikes=[spike])
    assert {item.kind for item in found(sick)} == {"loss_spike"}
    assert "loss_spike" in {item.kind for item in found(sick, *taught(run_of(4)))}
    wild = run_of(11, share=0.12)
    assert "loss_spike" not in {item.kind for item in found(sick, *taught(wild))}


def test_findings_of_the_healthy_run_teach_nothing() -> None:
    """A spike in the baseline widens nothing: the same spike is still a warning."""
    spike = Planted(first=2000, last=2009, height=0.5)
    (normal,) = taught(run_of(12, spikes=[spike]))
    assert normal.left_out == 1
    assert max(phase.reach for phase in normal.phases["loss"][1:]) < 0.2


def test_stored_and_read_back_is_the_same() -> None:
    """Through JSON and back."""
    (normal,) = taught(run_of(13))
    assert load(json.loads(json.dumps(dump(normal)))) == normal


def _log(path: Path, seed: int, seconds: float) -> Path:
    rng = np.random.default_rng(seed)
    loss = power_law(400) * np.exp(noise(rng, 400, 0.012))
    time = seconds * np.exp(noise(rng, 400, 0.01))
    rows = "".join(
        f'{{"step": {n}, "loss": {value:.4f}, "step_time": {took:.4f}}}\n'
        for n, (value, took) in enumerate(zip(loss, time, strict=True), 1)
    )
    path.write_text(rows, encoding="utf-8")
    return path


def _diagnose(*arguments: object) -> dict:
    done = CliRunner().invoke(cli, ["diagnose", *map(str, arguments), "-q", "-o", "-"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command_learns_stores_and_prints(tmp_path: Path) -> None:
    """From the command line: learnt once, kept in the run directory, printed in the report."""
    good, slow = _log(tmp_path / "good.jsonl", 1, 1.0), _log(tmp_path / "slow.jsonl", 2, 1.4)
    store = tmp_path / "runs"
    assert CliRunner().invoke(cli, ["ingest", str(good), "--store", str(store)]).exit_code == 0
    (place,) = [path.parent for path in store.glob("*/run.json")]
    alone = _diagnose(slow, "--format", "json")["runs"][0]
    assert not alone["judged_by"]["thresholds"]
    first = _diagnose(slow, "--baseline", place, "--format", "json")["runs"][0]
    assert (place / "normal.json").is_file()
    again = _diagnose(slow, "--baseline", place, "--format", "json")["runs"][0]
    assert again == first
    assert "throughput_drop" in {item["kind"] for item in first["findings"]}
    names = {entry["name"] for entry in first["judged_by"]["thresholds"]}
    assert {"baseline.loss_plateau_noise", "baseline.step_time_s_median"} <= names


def test_a_setting_of_ones_own_is_printed_with_its_origin(tmp_path: Path) -> None:
    """Effective values: the profile with its reason, and what differs from the packaged values."""
    log = _log(tmp_path / "good.jsonl", 1, 1.0)
    told = _diagnose(log, "--set", "loss_spike.z_warning=9", "--format", "json")["runs"][0]
    judged = told["judged_by"]
    assert judged["profile"] == "pretrain"
    assert judged["why"].startswith("the loss begins at")
    assert [(e["name"], e["value"]) for e in judged["thresholds"]] == [("loss_spike.z_warning", 9)]
    text = (
        CliRunner()
        .invoke(cli, ["diagnose", str(log), "--set", "loss_spike.z_warning=9", "-q", "-o", "-"])
        .stdout
    )
    assert "loss_spike.z_warning" in text


def test_a_baseline_without_metrics_is_an_error(tmp_path: Path) -> None:
    """An empty file teaches nothing, and is named."""
    log = _log(tmp_path / "good.jsonl", 1, 1.0)
    empty = tmp_path / "empty.log"
    empty.write_text("nothing here\n", encoding="utf-8")
    done = CliRunner().invoke(
        cli, ["diagnose", str(log), "--baseline", str(empty), "-o", "-"], standalone_mode=False
    )
    assert done.exit_code != 0
    assert "empty.log" in str(done.exception)
