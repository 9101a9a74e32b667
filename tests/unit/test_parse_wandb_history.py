"""Histories as JSON lines, JSON documents and Parquet; legacy W&B folders."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import polars as pl
import pytest
from loganalyze_parsers import head_of, history_parquet, parser_for
from trackers import parsed, rows, rules

from loganalyze.model import Batch


def read(path: Path, text: str) -> Batch:
    """The one batch of a file with this text."""
    path.write_text(text)
    (batch,) = parsed(path)
    return batch


def test_legacy_history(tmp_path: Path) -> None:
    """Bare NaN is a number, media are none, a cut last line is left out and told."""
    text = (
        '{"train/loss": 3.5, "_step": 1, "_runtime": 2, "_timestamp": 1600000000.0}\n'
        '{"train/loss": NaN, "_step": 2, "_runtime": 3, "_timestamp": 1600000001.0}\n'
        '{"pic": {"_type": "image-file", "size": 7}, "_step": 3, "_timestamp": 1600000002.0}\n'
        '{"train/loss": 1.'
    )
    (tmp_path / "config.yaml").write_text("wandb_version: 1\nlr:\n  desc: null\n  value: 0.5\n")
    batch = read(tmp_path / "wandb-history.jsonl", text)
    frame = rows(batch)
    assert [event.detail for event in batch.events] == [{"lr": "0.5"}]
    assert frame["step"].to_list() == [1, 2]
    assert math.isnan(frame["loss"][1])
    assert rules(batch) == ["input_breaks_off"]
    assert batch.account.lines == 4
    assert batch.account.ignored == {"row without a number": 1}
    assert text.encode()[frame["offset"][1] :].startswith(b'{"train/loss": NaN')


def test_legacy_events_take_steps_from_the_history(tmp_path: Path) -> None:
    """A system record has the step that was last logged before it."""
    history = [{"loss": 1.0, "_step": at, "_timestamp": 1e9 + 10 * at} for at in range(5)]
    (tmp_path / "wandb-history.jsonl").write_text("\n".join(map(json.dumps, history)))
    event = {"system.gpu.0.gpu": 50, "system.proc.memory.rssMB": 2, "_timestamp": 1e9 + 25}
    batch = read(tmp_path / "wandb-events.jsonl", json.dumps({**event, "_wandb": True}) + "\n")
    frame = rows(batch)
    assert frame["step"].to_list() == [2]
    assert frame["gpu_util"].to_list() == [0.5]
    assert frame["host_rss_bytes"].to_list() == [2.0 * 1024**2]


def test_empty_legacy_history(tmp_path: Path) -> None:
    """A file of 0 bytes has no rows and no problem of its own."""
    batch = read(tmp_path / "wandb-history.jsonl", "")
    assert batch.readings is None
    assert batch.account.lines == 0


def test_lines_of_other_makers(tmp_path: Path) -> None:
    """A step and a known metric are enough where no trainer's dialect reads the line."""
    lines = [{"iteration": at, "train_loss": 2.0, "opt": {"lr": 0.5}} for at in range(3)]
    batch = read(tmp_path / "log.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    assert rows(batch)["step"].to_list() == [0, 1, 2]
    assert rows(batch)["raw/opt.lr"].to_list() == [0.5] * 3


@pytest.mark.parametrize("name", ["wandb-summary.json", "wandb-metadata.json"])
def test_summary_is_no_history(tmp_path: Path, name: str) -> None:
    """Last values are not a row of a curve."""
    path = tmp_path / name
    path.write_text('{"_step": 300, "_timestamp": 1600000000.0, "loss": 2.0}')
    parser = parser_for(head_of(path))
    assert parser is None or parser.name == "text"


def test_document_of_rows(tmp_path: Path) -> None:
    """A list of objects; a row is cited where it stands."""
    text = '[\n  {"_step": 0, "loss": 2.5},\n  {"_step": 1, "loss": "Infinity"}\n]\n'
    batch = read(tmp_path / "history.json", text)
    frame = rows(batch)
    assert frame["loss"].to_list() == [2.5, math.inf]
    assert frame["line"].to_list() == [2, 3]
    at, size = frame["offset"][1], frame["length"][1]
    assert json.loads(text.encode()[at : at + size]) == {"_step": 1, "loss": "Infinity"}
    assert batch.account.ignored == {"frame of the JSON": 2}


def test_torn_document_keeps_its_rows(tmp_path: Path) -> None:
    """What precedes the tear is read, and the tear is told."""
    batch = read(tmp_path / "h.json", '[{"_step": 0, "loss": 2.5},\n{"_step": 1, "lo')
    assert rows(batch)["step"].to_list() == [0]
    assert rules(batch) == ["input_breaks_off"]


def test_document_of_columns(tmp_path: Path) -> None:
    """pandas' other way: an object of columns, each an object of numbered cells."""
    text = '{"_step": {"0": 4, "1": 8}, "loss": {"0": 2.5, "1": null}, "lr": {"1": 0.5}}'
    frame = rows(read(tmp_path / "h.json", text))
    assert frame["step"].to_list() == [4, 8]
    assert frame["loss"].to_list() == [2.5, None]
    assert frame["lr"].to_list() == [None, 0.5]


def test_parquet_history(tmp_path: Path) -> None:
    """Steps may be floats, non-finite numbers words; rows are cited by number."""
    path = tmp_path / "entity_project_x_0.runhistory.parquet"
    pl.DataFrame(
        {"_step": [0.0, 1.0], "train/loss": ["2.5", "NaN"], "hist": [[1], [2]], "lr": [1, 2]}
    ).write_parquet(path)
    (batch,) = parsed(path)
    frame = rows(batch)
    assert frame["step"].to_list() == [0, 1]
    assert frame["loss"][0] == 2.5
    assert math.isnan(frame["loss"][1])
    assert frame["line"].to_list() == [1, 2]
    assert "raw/hist" not in frame.columns


def test_parquet_of_something_else(tmp_path: Path) -> None:
    """A table without a known metric is left out, by name."""
    path = tmp_path / "goods.parquet"
    pl.DataFrame({"_step": [0.0], "Mean budget": [1.5]}).write_parquet(path)
    (batch,) = parsed(path)
    assert batch.readings is None
    assert rules(batch) == ["no_known_metric"]
    assert batch.account.ignored == {"row without a known metric": 1}


def test_damaged_parquet(tmp_path: Path) -> None:
    """A file that only begins like Parquet is told as unreadable."""
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    (batch,) = parsed(path)
    assert rules(batch) == ["unreadable"]


def test_damaged_parquet_is_told(tmp_path: Path) -> None:
    """Any one bit may be wrong: rows or a problem, and no error of the library."""
    out = io.BytesIO()
    pl.DataFrame({"_step": [1, 2, 3], "train/loss": [3.0, 2.0, 1.0]}).write_parquet(out)
    whole, path = out.getvalue(), tmp_path / "history.parquet"
    for bit in range(32, 8 * len(whole), 97):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        for batch in history_parquet.PARSER.parse(path, 0):
            assert batch.readings is not None or batch.problems


def test_a_block_that_was_learnt_for_nothing(tmp_path: Path) -> None:
    """Damage on the lines that a template was learnt for: they go the slow way, none is lost."""
    clock = ("1700000001.0", "1700000002.0", "170000000null", "1700000004.0")
    lines = [
        f'{{"loss": {9 - n}.01, "_step": {n}, "_runtime": {"null" if n % 2 else 1.5 * n}, '
        f'"_timestamp": {clock[n % 4]}}}'
        for n in range(1, 7)
    ]
    batch = read(tmp_path / "wandb-history.jsonl", "\n".join([*lines, '{"loss": null1}']))
    assert rows(batch)["step"].to_list() == [1, 3, 4, 5]
    assert batch.account.unknown == 3


def test_an_observers_names_are_canonical(tmp_path: Path) -> None:
    """What the seeds' observer hands to W&B is judged: concentration, samples, memory in GiB."""
    names = {
        "grad_concentration": ("grad_concentration", 120.0),
        "sample_loss_p50": ("sample_loss_p50", 2.0),
        "sample_loss_p95": ("sample_loss_p95", 9.0),
        "hard_sample_loss_share": ("hard_sample_share", 0.4),
        "gpu_memory_allocated_gb": ("mem_allocated_bytes", 1.5 * 2**30),
    }
    given = {name: value / (2**30 if metric.startswith("mem") else 1)
             for name, (metric, value) in names.items()}  # fmt: skip
    text = "".join(
        json.dumps({"_step": step, "_timestamp": 1.7e9 + step, "loss": 3.0, **given}) + "\n"
        for step in range(4)
    )
    read_back = read(tmp_path / "history.jsonl", text).readings
    assert read_back is not None
    for metric, value in names.values():
        assert read_back[metric].to_list() == [value] * 4
