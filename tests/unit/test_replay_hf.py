"""The hf recipe: a Trainer's own checkpoint and a dataset file, or recorded batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")
pytest.importorskip("transformers", reason="needs transformers and accelerate")
pytest.importorskip("accelerate", reason="needs transformers and accelerate")

import replay_hf
import torch
from click.testing import CliRunner

from loganalyze.cli import cli
from loganalyze.errors import UsageError
from loganalyze.replay import Request, batches
from loganalyze.replay.recipe import load_step
from loganalyze.replay.session import replay

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Trainer run with a poisoned sample: checkpoints, black box, dataset file."""
    folder = tmp_path_factory.mktemp("hf")
    replay_hf.train(folder)
    lines = [json.dumps({key: value.tolist() for key, value in row.items()})
             for row in replay_hf.rows()]  # fmt: skip
    (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def checkpoint(trained: Path) -> Path:
    """The nearest checkpoint before the bad step."""
    return trained / "out" / f"checkpoint-{replay_hf.SAVE}"


def test_from_the_trainer_to_the_sample(trained: Path, tmp_path: Path) -> None:
    """The spike that the Trainer's own log shows is replayed bit for bit, its sample named."""
    state = str(trained / "out/trainer_state.json")
    done = CliRunner().invoke(cli, ["diagnose", state, "-o", str(tmp_path / "reports")])
    assert done.exit_code == 0, done.output
    report = next((tmp_path / "reports").glob("*.json"))
    done = CliRunner().invoke(cli, [
        "replay", str(report), "--recipe", f"capsule:{replay_hf.BUILDER}", "--checkpoint",
        str(trained / "box"), "-o", str(tmp_path / "out"), "--lang", "en",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output + str(done.exception)
    document = json.loads(next((tmp_path / "out").glob("*.replay.json")).read_text("utf-8"))
    assert document["step"] == replay_hf.BAD
    assert document["reproduced"] == "equal"
    assert document["judgements"][0]["cause"] == "samples"
    assert document["samples"][0]["index"] == 5


@pytest.mark.parametrize("data", ["rows.jsonl", "box"])
def test_a_checkpoint_replays_bit_for_bit(trained: Path, data: str) -> None:
    """Model, optimizer, generators and data come together: every logged loss and norm is equal."""
    request = Request(step=replay_hf.BAD, checkpoint=checkpoint(trained), data=trained / data)
    result = replay(load_step("hf", request), request)
    assert len([m for m in result.matches if m.name in ("loss", "grad_norm")]) >= 2 * (
        replay_hf.BAD - replay_hf.SAVE
    )
    assert {m.state for m in result.matches} == {"equal"}
    assert (result.judgements[0].cause, result.samples[0].index) == ("samples", 5)
    assert result.untouched


def test_what_the_checkpoint_lacks_is_said(trained: Path, tmp_path: Path) -> None:
    """No folder, no data, a checkpoint that is too late: one line each with what to do."""
    place, rows = checkpoint(trained), trained / "rows.jsonl"
    for request, words in [
        (Request(step=56), "needs --checkpoint"),
        (Request(step=56, checkpoint=tmp_path), "no Trainer checkpoint"),
        (Request(step=56, checkpoint=place), "needs --data"),
        (Request(step=3, checkpoint=place, data=rows), "the step to replay is 3"),
        (Request(step=999, checkpoint=place, data=rows), "lacks batches"),
    ]:
        with pytest.raises(UsageError, match=words):
            load_step("hf", request)


def test_dropped_samples_no_longer_count() -> None:
    """The divisor of a transformers loss follows the samples that are left."""
    labels = torch.tensor([[1, 2, 3], [4, -100, 5]])
    batch = {"input_ids": labels.clamp(min=0), "labels": labels,
             "num_items_in_batch": torch.tensor(3)}  # fmt: skip
    assert float(batches.select(batch, [0])["num_items_in_batch"]) == pytest.approx(3 * 3 / 5)
