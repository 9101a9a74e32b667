"""A real transformers Trainer run: recorder, log, diagnose, replay, verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")
pytest.importorskip("transformers", reason="needs transformers and accelerate")

import replay_hf
import torch
from click.testing import CliRunner

from loganalyze.cli import cli

torch.set_num_threads(1)


@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_from_the_trainer_to_the_sample(tmp_path: Path) -> None:
    """The spike that the Trainer's own log shows is replayed bit for bit, its sample named."""
    replay_hf.train(tmp_path)
    state = str(tmp_path / "out/trainer_state.json")
    done = CliRunner().invoke(cli, ["diagnose", state, "-o", str(tmp_path / "reports")])
    assert done.exit_code == 0, done.output
    report = next((tmp_path / "reports").glob("*.json"))
    done = CliRunner().invoke(cli, [
        "replay", str(report), "--recipe", f"capsule:{replay_hf.BUILDER}", "--checkpoint",
        str(tmp_path / "box"), "-o", str(tmp_path / "out"), "--lang", "en",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output + str(done.exception)
    document = json.loads(next((tmp_path / "out").glob("*.replay.json")).read_text("utf-8"))
    assert document["step"] == replay_hf.BAD
    assert document["reproduced"] == "equal"
    assert document["judgements"][0]["cause"] == "samples"
    assert document["samples"][0]["index"] == 5
