"""JSON objects read by templates are those that the JSON decoder reads, rows, places and all."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from loganalyze_parsers import history_json, json_rows, trainer_entries, trainer_state
from loganalyze_parsers.blocks import line_bounds
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.template_reader import TemplateReader

from loganalyze.model import Batch


def everything(batches: list[Batch]) -> list[object]:
    """All that batches say; NaN equal to itself."""
    told: list[object] = []
    for one in batches:
        frame = one.readings
        rows = None if frame is None else frame.select(sorted(frame.columns)).rows(named=True)
        told.append(repr((rows, one.events, one.problems, one.account, one.framework)))
    return told


def jsonl(made: random.Random, count: int) -> list[str]:
    """Rows of a few shapes, numbers of all forms, and lines that only the decoder understands."""
    lines = []
    for step in range(count):
        row: dict[str, object] = {"_step": step, "train/loss": made.uniform(0, 9)}
        row["lr"] = made.choice([made.random() * 1e-7, 1e-05, 0, -3, 10**20])
        row['a "b" é'] = made.choice([1, 2.5])
        if step % 7 == 0:
            row["eval/loss"] = made.random()
        if step % 11 == 0:
            row["train/loss"] = made.choice([float("nan"), float("inf"), None, True, "NaN", "x"])
        if step % 13 == 0:
            row["nested"] = {"x": made.random(), "y": [1, 2]}
        separators = (",", ":") if step % 5 == 0 else None
        lines.append(json.dumps(row, separators=separators, ensure_ascii=step % 3 == 0))
    lines[5:5] = ["", "no json", '{"_step": 5, "_step": 6}', '{"_step": 1,}', "[1]", "{}", " {} "]
    return lines


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("cut", [0, 9])
def test_lines_are_those_of_the_decoder(
    seed: int, end: str, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixed lines, also with the last one cut: the same rows, names, places and account."""
    text = end.join(jsonl(random.Random(seed), 300)) + end
    path = tmp_path / "history.jsonl"
    path.write_bytes(text.encode()[: len(text.encode()) - cut])
    fast = everything(list(history_json.parse(path, 3)))
    monkeypatch.setattr(json_rows, "MOST_SHAPES", 0)
    assert fast == everything(list(history_json.parse(path, 3)))


def test_most_lines_need_no_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plain history no line is decoded one by one."""
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'{{"_step": {k}, "loss": {k / 7!r}}}\n' for k in range(500)))
    monkeypatch.setattr(history_json, "put_all", lambda *_: pytest.fail("decoded"))
    (batch,) = history_json.parse(path, 0)
    assert batch.readings is not None
    assert batch.readings["loss"].to_list() == [k / 7 for k in range(500)]


@pytest.mark.parametrize(
    "raw",
    [b'{"a": 1,}', b'{"a": 01}', b'{"a": 1 "b": 2}', b'{"a": .5}', b'{"a": "NaN"}', b'{"a": NaN}',
     b'{"a": {"b": 1}}', b'{"a": [1]}', b'{"a": 1, "a": 2}', b'{"a": 1} {"b": 2}', b"{}",
     b'{"a": 1', b'"a": 1}', b'{"\\ud8": 1}'],
)  # fmt: skip
def test_what_is_no_plain_object_teaches_nothing(raw: bytes) -> None:
    """Torn, nested, repeated, or no JSON at all: the decoder must look."""
    assert json_rows.lesson_of(raw, lambda key: (key, 1.0)) is None


def history(made: random.Random, count: int) -> list[dict[str, object]]:
    """Entries of a Trainer: training rows, evaluations, hidden and open NaN, a summary."""
    entries: list[dict[str, object]] = []
    for step in range(1, count):
        row: dict[str, object] = {
            "epoch": step / count, "grad_norm": made.uniform(0.1, 2), "loss": made.uniform(1, 3),
            "learning_rate": made.random() * 1e-5, "step": step,
        }  # fmt: skip
        if step % 17 == 0:
            row["grad_norm"] = float("nan")
            row["loss"] = made.choice([0.0, entries[-1].get("loss", 1.0)])
        if step % 19 == 0:
            row = {"epoch": step / count, "eval_loss": made.random(), "step": step}
        if step % 23 == 0:
            row = made.choice([
                {**row, "train/tokens": 5}, {**row, "x": {"y": 1}}, {**row, "note": "a } brace"},
                {"loss": 1.0}, {"step": step}, {**row, "step": 1.5}, {**row, "step": "7/9"},
                {**row, "total_tokens": 0},
            ])  # fmt: skip
        entries.append(row)
    entries.append({"epoch": 3.0, "train_runtime": 9.5, "total_flos": 1e15, "step": count})
    return entries


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize("cut", [0, 3000])
def test_entries_are_those_of_the_decoder(
    seed: int, indent: int | None, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of all sorts, also of a torn file: the same rows, events, problems and account."""
    made = random.Random(seed)
    entries = history(made, 400)
    if seed % 2:
        entries = [one for one in entries if "note" not in one and "x" not in one]
    document = {"epoch": 3.0, "global_step": 9, "log_history": entries, "max_steps": 400}
    text = json.dumps(document, indent=indent)
    path = tmp_path / "trainer_state.json"
    path.write_text(text[: len(text) - cut])
    fast = everything(list(trainer_state.parse_state(path, 1)))
    monkeypatch.setattr(trainer_entries, "_LEAST", 10**9)
    assert fast == everything(list(trainer_state.parse_state(path, 1)))


def test_most_entries_need_no_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plain state file only the last entry is decoded one by one."""
    entries = [{"loss": k / 7, "step": k} for k in range(200)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": entries, "global_step": 200}, indent=2))
    decoded = []
    add = trainer_state._History.add
    monkeypatch.setattr(
        trainer_state._History, "add", lambda own, span: (decoded.append(span), add(own, span))
    )
    (batch,) = trainer_state.parse_state(path, 0)
    assert batch.readings is not None
    assert batch.readings["loss"].to_list() == [k / 7 for k in range(200)]
    assert batch.readings["line"].to_list() == [3 + 4 * k for k in range(200)]
    assert len(decoded) == 1


def test_shapes_are_bounded() -> None:
    """A text that differs on every line does not make a template of every line."""
    made: list[Lesson] = []
    reader = json_rows.object_reader(lambda key: (key, 1.0))
    teacher = reader._teacher
    reader._teacher = lambda raw: (
        made.append(lesson) or lesson if (lesson := teacher(raw)) else None
    )
    assert isinstance(reader, TemplateReader)
    raw = b"".join(b'{"at": "%d", "loss": 1.5}\n' % k for k in range(300))
    text = Text(raw, *line_bounds(raw))
    for _ in range(3):
        reader.read(text, np.arange(300))
    assert len(made) <= json_rows.MOST_SHAPES
