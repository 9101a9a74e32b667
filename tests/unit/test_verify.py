"""`verify` finds what stands in the inputs again, and notices whatever does not."""

from __future__ import annotations

import gzip
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from textlogs import megatron_line

from loganalyze.cli import cli
from loganalyze.errors import LoganalyzeError, UnreadableInput
from loganalyze.pipeline import Judging, report_on
from loganalyze.report.json_out import render_json
from loganalyze.verify import citations, verify
from loganalyze.verify_numbers import FACTORS, holds

Json = dict[str, Any]


def sick_log(folder: Path, name: str = "sick.log") -> Path:
    """A log with a spike at step 70 and a NaN from step 90 on, both truth of this file."""
    lines = []
    for step in range(1, 121):
        loss = 4 - step / 100 + (step % 7) / 500 + (3.0 if 70 <= step < 74 else 0.0)
        said = {"lm_loss": f"{loss:.6E}"} if step < 90 else {}
        norm = "nan" if step >= 90 else f"{0.5 + (4 if 70 <= step < 74 else 0):.3f}"
        lines.append(megatron_line(step, learning_rate="1.000000E-04", **said,
                                   grad_norm=norm))  # fmt: skip
    data = ("\n".join(lines) + "\n").encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def report_of(log: Path) -> Path:
    """The JSON report of a log, beside it."""
    path = log.with_name("report.json")
    path.write_text(render_json(report_on([str(log)], Judging())), encoding="utf-8")
    return path


def changed(report: Path, edit: Any) -> Path:
    """The report after `edit` changed its document."""
    document: Json = json.loads(report.read_text(encoding="utf-8"))
    edit(document)
    report.write_text(json.dumps(document), encoding="utf-8")
    return report


def keys(report: Path) -> list[str]:
    """The failures' keys, each once."""
    return sorted({failure.key for failure in verify(report).failures})


@pytest.mark.parametrize("name", ["sick.log", "sick.log.gz"])
def test_a_fresh_report_holds(tmp_path: Path, name: str) -> None:
    """Every citation of an untouched input is found, compressed or not."""
    result = verify(report_of(sick_log(tmp_path, name)))
    assert result.citations > 4
    assert result.found + result.worked_out == result.citations
    assert result.failures == ()


def test_missing_input(tmp_path: Path) -> None:
    """An input that is gone fails once itself, and once for each line cited from it."""
    log = sick_log(tmp_path)
    report = report_of(log)
    log.unlink()
    result = verify(report)
    assert result.failures[0].key == "verify_missing"
    assert len(result.failures) == 1 + result.citations


def test_grown_input_is_a_note(tmp_path: Path) -> None:
    """Lines added at the end are told, and fail nothing."""
    log = sick_log(tmp_path)
    report = report_of(log)
    with log.open("ab") as file:
        file.write(b"one more line\n")
    result = verify(report)
    assert result.failures == ()
    assert [note.key for note in result.notes] == ["verify_grown"]


def test_changed_input(tmp_path: Path) -> None:
    """A digit changed in a cited number: the file has changed, and the line does not say it."""
    log = sick_log(tmp_path)
    report = report_of(log)
    (first, *_) = [c for c in citations(json.loads(report.read_text())) if c.label == "loss_peak"]
    data = log.read_bytes()
    part = data[first.offset : first.offset + first.length]
    worse = part.replace(b"lm loss: 6", b"lm loss: 9").replace(b"lm loss: 5", b"lm loss: 9")
    assert worse != part
    log.write_bytes(data.replace(part, worse))
    assert keys(report) == ["verify_changed", "verify_no_number"]


def test_line_put_in_before(tmp_path: Path) -> None:
    """A line put in at the start moves every place."""
    log = sick_log(tmp_path)
    report = report_of(log)
    log.write_bytes(b"x" * 40 + b"\n" + log.read_bytes())
    found = set(keys(report))
    assert "verify_changed" in found
    assert found & {"verify_other_line", "verify_no_number"}


def test_cut_input(tmp_path: Path) -> None:
    """Places behind the new end are named as such."""
    log = sick_log(tmp_path)
    report = report_of(log)
    log.write_bytes(log.read_bytes()[:3000])
    assert "verify_past_end" in keys(report)


@pytest.mark.parametrize(("field", "new", "key"), [
    ("value", 123.456789, "verify_no_number"),
    ("line", 3, "verify_other_line"),
    ("offset", 10**9, "verify_past_end"),
    ("path", "elsewhere.log", "verify_missing"),
])  # fmt: skip
def test_forged_report(tmp_path: Path, field: str, new: object, key: str) -> None:
    """Each field of a citation is held to the input."""

    def forge(document: Json) -> None:
        for finding in document["runs"][0]["findings"]:
            for entry in finding["evidence"]:
                if entry["label"] == "loss_peak":
                    entry[field] = new

    assert key in keys(changed(report_of(sick_log(tmp_path)), forge))


def test_damaged_archive(tmp_path: Path) -> None:
    """A compressed input that breaks is a failure with a reason, not a crash."""
    log = sick_log(tmp_path, "sick.log.gz")
    report = report_of(log)
    log.write_bytes(log.read_bytes()[:400])
    found = keys(report)
    assert "verify_changed" in found
    assert found != ["verify_changed"]


@pytest.mark.parametrize("text", [
    "", "[]", "{", '{"schema": "other/1"}', '{"schema": "loganalyze.report/1"}',
    '{"schema": "loganalyze.report/1", "inputs": 3, "runs": []}',
])  # fmt: skip
def test_unreadable_report(tmp_path: Path, text: str) -> None:
    """Anything but a report is UnreadableInput (exit code 3)."""
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(UnreadableInput):
        verify(path)


@given(st.floats(1e-12, 1e12), st.sampled_from(FACTORS))
def test_number_in_another_unit(value: float, factor: float) -> None:
    """A value is found when the line prints it in any of the units."""
    assert holds(f"step 7 | x: {value / factor!r} |".encode(), value)


@given(st.floats(1.1, 9.4))
def test_other_numbers_are_not_enough(value: float) -> None:
    """A value is not found where the only number is another one, half a per cent away."""
    assert not holds(f"x: {value * 1.005:.6f}".encode(), value)


@pytest.mark.parametrize(("line", "value", "expected"), [
    ("loss: nan", "NaN", True),
    ("iteration 3/ 9 | loss scale: 1.0 | grad norm: 2.0 |", "NaN", True),
    ("iteration 3/ 9 | lm loss: 2.0 | grad norm: 2.0 |", "NaN", False),
    ("loss: inf", "Infinity", True),
    ("loss: inf", "-Infinity", False),
    ("loss: 1,234.5", 1234.5, True),
    ("12:30<1:02:03, 2.00it/s", 3723.0, True),
    ("12:30<1:02:03, 2.00it/s", 0.5, True),
    ("\x1b[31mRuntimeError:  boom\x1b[0m", "RuntimeError: boom", True),
    ("token=abc RuntimeError: boom", "token=[masked:key] RuntimeError: boom", True),
    ("RuntimeError: bang", "RuntimeError: boom", False),
    ("  lr ......... 2.0e-3", "lr = 0.002", True),
    ("  lr ......... 2.5e-3", "lr = 0.002", False),
    ("whatever", None, True),
    ("loss: 0.0", 0.0, True),
    ("loss: 0.1", 0.0, False),
])  # fmt: skip
def test_what_a_line_says(line: str, value: float | str | None, expected: bool) -> None:
    """Numbers, words for no number, texts, masked texts and settings, as lines print them."""
    assert holds(line.encode(), value) is expected


@pytest.mark.parametrize("shape", ["<f", "<d", ">d"])
def test_binary_records(shape: str) -> None:
    """In binary formats the value's own bytes count."""
    value = struct.unpack(shape, struct.pack(shape, 0.1234567))[0]
    data = b"\x08\x01tag" + struct.pack(shape, value) + b"\xff"
    assert holds(data, value, binary=True)
    assert not holds(data, value, binary=False)
    assert holds(b"ab" + struct.pack("<f", math.nan), "NaN", binary=True)


def test_command(tmp_path: Path) -> None:
    """Exit codes 0 and 1, text in two languages, JSON on request."""
    log = sick_log(tmp_path)
    report = report_of(log)

    def call(*more: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["verify", str(report), *more], standalone_mode=False)
        return int(result.return_value), result.output

    assert call("--lang", "en")[0] == 0
    assert "引用" in call("--lang", "zh")[1]
    log.unlink()
    code, text = call("--lang", "en")
    assert code == 1
    assert f"{log.as_posix()}: the input is no longer there" in text
    code, text = call("--format", "json")
    document = json.loads(text)
    assert (code, document["ok"], document["schema"]) == (1, False, "loganalyze.verify/1")


def test_command_without_a_report(tmp_path: Path) -> None:
    """No such file is exit code 3, with a hint."""
    result = CliRunner().invoke(cli, ["verify", str(tmp_path / "no.json")], standalone_mode=False)
    assert isinstance(result.exception, LoganalyzeError)
    assert result.exception.exit_code == 3
    assert result.exception.hint


def test_the_page_stands_for_the_data_beside_it(tmp_path: Path) -> None:
    """`verify report.html` checks report.json in the same folder."""
    report = report_of(sick_log(tmp_path))
    page = str(report.with_suffix(".html"))
    result = CliRunner().invoke(cli, ["verify", page, "--lang", "en"], standalone_mode=False)
    assert result.return_value == 0
    assert "found again" in result.output


def test_relative_paths_count_from_the_report_or_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report moved together with its log still verifies; --root names another folder."""
    monkeypatch.chdir(tmp_path)
    report = report_of(sick_log(Path()))
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert verify(tmp_path / report).failures == ()
    moved = other / "moved.json"
    moved.write_text((tmp_path / report).read_text())
    assert verify(moved).failures
    assert verify(moved, tmp_path).failures == ()
