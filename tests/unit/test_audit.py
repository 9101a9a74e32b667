"""`audit`: the memory budget against arithmetic, the levels, a snippet for each trainer."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from synth_system import context, event, make_run

from loganalyze.budget import estimate
from loganalyze.cli import cli
from loganalyze.config import load_data, metrics
from loganalyze.coverage import coverage_of
from loganalyze.detectors.audit_changes import detect_changes
from loganalyze.detectors.audit_curves import detect_contradictions
from loganalyze.report.wording import find

_SEVEN_B = {
    "num_layers": "32", "hidden_size": "4096", "num_attention_heads": "32", "vocab_size": "32000",
    "seq_length": "4096", "micro_batch_size": "1", "bf16": "True", "world_size": "64",
    "tensor_model_parallel_size": "8", "pipeline_model_parallel_size": "2",
}  # fmt: skip
_SIZE = 32 * 12 * 4096**2 + 4096 * 32000


@pytest.mark.parametrize(("stage", "divided"), [("0", ""), ("1", "o"), ("2", "og"), ("3", "ogp")])
def test_budget_is_the_seeds_table_shared_over_the_ranks(stage: str, divided: str) -> None:
    """2 + 2 + 12 bytes a parameter; ZeRO shares optimizer, gradients, parameters in this order."""
    made = estimate({**_SEVEN_B, "zero_stage": stage})
    assert made is not None
    own, ranks = _SIZE / 16, 4  # 8 x 2 model-parallel, 64 / 16 data-parallel
    assert made.parts["optimizer"] == pytest.approx(12 * own / (ranks if "o" in divided else 1))
    assert made.parts["gradients"] == pytest.approx(2 * own / (ranks if "g" in divided else 1))
    assert made.parts["parameters"] == pytest.approx(2 * own / (ranks if "p" in divided else 1))
    assert made.parts["activations"] == pytest.approx(4096 * 4096 * (10 + 24 / 8) * 32)
    assert made.total == pytest.approx(sum(made.parts.values()))


def test_budget_says_what_it_had_to_assume() -> None:
    """Without a model size there is none; without a vocabulary it says so."""
    assert estimate({"lr": "1e-4"}) is None
    made = estimate({"num_layers": "2", "hidden_size": "64"})
    assert made is not None
    assert "no vocabulary" in made.assumed


def test_levels_name_what_is_missing_with_its_frequency() -> None:
    """A log of loss and step time reaches L1 and L7; the norm is missing at L2."""
    told = coverage_of(make_run({"loss": [1.0, 0.9], "step_time_s": [1.0, 1.0]}))
    reached = [level.name for level in told.levels if level.present]
    assert reached == ["L1", "L7"]
    second = told.levels[1]
    assert "grad_norm" in second.missing
    assert all(level.every["en"] and level.every["zh"] for level in told.levels)
    assert {item.name for item in told.black_box if item.held} == {"step"}


def test_data_of_the_coverage_are_known_and_worded() -> None:
    """Key metrics have words, each trainer has a snippet, and Python snippets parse."""
    data = load_data("coverage.toml")
    assert list(data["level"]) == [f"L{n}" for n in range(1, 8)]
    keys = {key for level in data["level"].values() for key in level["key"]}
    assert {key for key in keys if key not in metrics() and find(key) is None} == set()
    assert set(data["trainer"].values()) | {"plain"} == set(data["snippet"])
    for name in ("huggingface", "lightning", "plain", "wandb"):
        ast.parse(data["snippet"][name])
    for entry in (*data["level"].values(), *data["black_box"].values()):
        assert entry["title"]["en"]
        assert entry["title"]["zh"]


def test_a_changed_setting_of_a_later_attempt_is_told() -> None:
    """Only settings of weight that both attempts printed, with both values."""
    first = {"lr": "1e-4", "seed": "1", "clip_grad": "1.0", "save": "a"}
    second = {**first, "lr": "2e-4", "save": "b"}
    steps = [*range(1, 9), *range(1, 9)]
    run = make_run(
        {"loss": [3.0 - s / 10 for s in steps]}, steps=steps,
        events=[event("config", -1, **first), event("config", 7, **second)],
    )  # fmt: skip
    found = detect_changes(context(run))
    told = [(f.statistics["setting"], f.statistics["limit"], f.statistics["value"]) for f in found]
    assert told == [("lr", "1e-4", "2e-4")]


def test_a_rate_that_no_adam_survives_is_a_warning() -> None:
    """0.05 with Adam is; with SGD it is a usual rate."""
    rates = {"lr": [0.05] * 30, "loss": [3.0] * 30}
    for name, wanted in (("adamw", ["warning"]), ("sgd", [])):
        made = make_run(rates, events=[event("config", 0, optimizer=name, a="1", b="2", c="3")])
        found = [f for f in detect_contradictions(context(made)) if f.metric == "lr"]
        assert [f.severity for f in found] == wanted


def test_a_wide_start_is_told_against_the_vocabulary() -> None:
    """Ten lines four nats above ln(V) are a warning, one line or a nat and a half a note."""
    for first, lines, wanted in ((14.5, 10, ["warning"]), (14.5, 1, ["info"]),
                                 (12.0, 10, ["info"]), (10.5, 10, [])):  # fmt: skip
        losses = [*[first] * lines, *[9.0] * 30]
        made = make_run({"loss": losses}, events=[event("config", 0, vocab_size="32000")])
        found = [f for f in detect_contradictions(context(made)) if f.metric == "loss"]
        assert [f.severity for f in found] == wanted


def test_the_command_prints_text_and_json(tmp_path: Path) -> None:
    """`audit` of a small log, in both forms and languages."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"iter {n}: loss 3.{n}, time 100.00ms, mfu 30.00%\n" for n in range(9)))
    text = CliRunner().invoke(cli, ["audit", str(log), "--lang", "zh"])
    assert "黑匣子" in text.output
    told = json.loads(CliRunner().invoke(cli, ["audit", str(log), "--format", "json"]).output)
    assert told[0]["schema"] == "loganalyze.audit/1"
    assert [level["level"] for level in told[0]["levels"]] == [f"L{n}" for n in range(1, 8)]
