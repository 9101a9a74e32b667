"""Text, JSON, Markdown, SARIF, JUnit and GitHub: what each promises of the same report."""

from __future__ import annotations

import json
import math
import re
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import report_fixture as fixture
from msgspec.structs import replace

from loganalyze.errors import OutputError, UsageError
from loganalyze.model import Report
from loganalyze.report import FORMATS, render, write_files
from loganalyze.report.output import file_stems
from loganalyze.report.paper import display_width


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Both runs, with the log lines on disk."""
    return fixture.build(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The same with hostile text in every name."""
    return fixture.build(tmp_path_factory.mktemp("logs"), hostile=True)


def only(report: Report, index: int) -> Report:
    """The report of one of its runs."""
    return replace(report, diagnoses=(report.diagnoses[index],), unread=())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_text_begins_and_ends_with_the_verdict(report: Report, lang: str) -> None:
    """The verdict stands at the top and again above the commands that end the text."""
    lines = render(only(report, 0), "text", lang).splitlines()
    words = {"en": "2 critical incidents", "zh": "2 起严重事件"}[lang]
    assert any(words in line for line in lines[:5])
    assert words in lines[-3]
    assert "loganalyze replay" in lines[-2]
    assert "loganalyze explain" in lines[-1]


def test_text_names_what_went_wrong_first_and_cites_the_line(report: Report) -> None:
    """The first mover, its step, its limit with source, and file:line are in the text."""
    text = render(only(report, 0), "text", "en", width=200)
    assert f"Gradient explosion at step {fixture.SPIKE - 3}" in text
    assert f"train_7b.log:{fixture.SPIKE + 1}" in text
    assert "gradient.spike_z = 6" in text
    assert "median and MAD of the last 200 points" in text
    assert "Validation loss rises: needs Validation loss" in text


def test_text_of_a_clean_run_names_what_stands_behind_it(report: Report) -> None:
    """Clean is said with steps, metrics, ranks and checks."""
    text = render(only(report, 1), "text", "en")
    assert "Nothing wrong was found in 100 steps" in text
    assert "100 logged steps (10–1000), metrics: 2, ranks reporting: 1, checks: 2" in text


def test_text_of_nothing_says_so() -> None:
    """A report without runs names the inputs and ends with a command."""
    empty = Report(version="0", diagnoses=(), unread=fixture.build().unread)
    text = render(empty, "text", "en")
    assert "No metric was found in 1 inputs" in text
    assert text.rstrip().endswith("loganalyze formats")


def test_text_keeps_to_the_width(report: Report) -> None:
    """No line but the commands to type is wider than asked for; Chinese counts twice."""
    for lang in ("en", "zh"):
        lines = render(report, "text", lang, width=80).splitlines()
        wide = [line for line in lines if display_width(line) > 80 and "loganalyze " not in line]
        assert [line for line in wide if " " in line.strip() and "/" not in line] == []


def test_text_is_plain_unless_colour_is_asked_for(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No escape code without color=True, and none with NO_COLOR."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in render(report, "text", "en")
    assert "\x1b[1;31m" in render(report, "text", "en", color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in render(report, "text", "en", color=True)


def test_json_follows_its_schema(report: Report, hostile: Report) -> None:
    """Both reports are valid against the schema file in the package."""
    text = files("loganalyze.report").joinpath("schema/report-1.schema.json").read_text("utf-8")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    for item in (report, hostile):
        jsonschema.validate(json.loads(render(item, "json", "en")), schema)


def test_json_is_the_same_in_every_language_and_order(report: Report) -> None:
    """Language, order of runs, detectors and findings don't change a byte."""
    turned = Report(
        version=report.version,
        diagnoses=tuple(
            replace(d, detectors=d.detectors[::-1], findings=d.findings[::-1])
            for d in report.diagnoses[::-1]
        ),
        unread=report.unread,
    )
    first = render(report, "json", "en")
    assert first == render(turned, "json", "zh")


def test_json_writes_nonfinite_numbers_as_strings(report: Report) -> None:
    """A NaN in the evidence is the string NaN, and the text is strict JSON."""

    def refuse(name: str) -> float:
        raise AssertionError(name)

    data = json.loads(render(report, "json", "en"), parse_constant=refuse)
    run = next(run for run in data["runs"] if run["id"] == "pretrain-7b")
    found = {finding["id"]: finding for finding in run["findings"]}
    assert found["LA101-1"]["evidence"][0]["value"] == "NaN"
    assert math.isnan(report.diagnoses[0].findings[2].evidence[0].value)  # type: ignore[arg-type]


def test_json_cites_bytes_that_hold_the_line(report: Report) -> None:
    """Path, offset and length lead to the quoted line."""
    data = json.loads(render(report, "json", "en"))
    run = next(run for run in data["runs"] if run["id"] == "pretrain-7b")
    found = {finding["id"]: finding for finding in run["findings"]}
    cited = found["LA102-1"]["evidence"][0]
    raw = Path(cited["path"]).read_bytes()[cited["offset"] : cited["offset"] + cited["length"]]
    assert f"{cited['step']}/" in raw.decode()
    assert cited["line"] == cited["step"] + 1


def test_sarif_has_what_version_2_1_0_requires(report: Report, hostile: Report) -> None:
    """Each result names a rule, a level and a place; paths are percent-encoded."""
    for item in (report, hostile):
        log = json.loads(render(item, "sarif", "en"))
        run = log["runs"][0]
        rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
        assert log["version"] == "2.1.0"
        assert len(run["results"]) == 6
        for result in run["results"]:
            assert result["ruleId"] in rules
            assert result["level"] in ("error", "warning", "note")
            for place in result["locations"]:
                uri = place["physicalLocation"]["artifactLocation"]["uri"]
                assert re.fullmatch(r"[\w\-.~/%:]+", uri)
                assert place["physicalLocation"]["region"]["startLine"] >= 1


def test_junit_counts_add_up(report: Report, hostile: Report) -> None:
    """Well-formed XML whose counters equal its cases; warnings and critical findings fail."""
    for item in (report, hostile):
        root = ElementTree.fromstring(render(item, "junit", "zh").encode())
        for suite in root.findall("testsuite"):
            assert int(suite.get("tests", "0")) == len(suite.findall("testcase"))
            assert int(suite.get("failures", "0")) == len(suite.findall("testcase/failure"))
        assert len(root.findall("testsuite/testcase/failure")) == 5


def test_github_has_one_command_per_finding(hostile: Report) -> None:
    """Hostile text can't start a second command."""
    lines = render(hostile, "github", "en").splitlines()
    assert len(lines) == 6
    assert all(re.match(r"::(error|warning|notice) ", line) for line in lines)


def test_markdown_keeps_hostile_text_inert(hostile: Report) -> None:
    """No tag, mention or link is left outside code spans."""
    text = render(hostile, "markdown", "en")
    prose = re.sub(r"(`+).*?\1", "", text)
    assert "<img" not in prose
    assert "</script" not in prose
    assert not re.search(r"(?<!\\)@all", prose)


def test_no_format_passes_a_control_character_on(hostile: Report) -> None:
    """ESC from a log reaches no terminal, page or file."""
    for name in FORMATS:
        text = render(hostile, name, "en")
        assert "\x1b" not in text, name


def test_unknown_format_is_wrong_use(report: Report) -> None:
    """The message lists the formats."""
    with pytest.raises(UsageError) as caught:
        render(report, "pdf", "en")
    assert "sarif" in caught.value.hint


def test_files_are_written_whole_and_named_safely(hostile: Report, tmp_path: Path) -> None:
    """Two files a run and two of all, safe names, no temporary file left, the same bytes twice."""
    folder = tmp_path / "deep" / "reports"
    first = write_files(hostile, folder, "en")
    again = {path: path.read_bytes() for path in first}
    assert [path.suffix for path in first] == [
        ".html", ".json", ".html", ".json", ".html", ".parquet",
    ]  # fmt: skip
    assert {path.parent for path in first} == {folder}
    assert write_files(hostile, folder, "en") == first
    assert {path: path.read_bytes() for path in first} == again
    assert sorted(folder.iterdir()) == sorted(first)


def test_foreign_files_are_not_replaced(report: Report, tmp_path: Path) -> None:
    """A file that is no report stays, unless forced."""
    target = tmp_path / "pretrain-7b.html"
    target.write_text("my notes")
    with pytest.raises(OutputError) as caught:
        write_files(report, tmp_path)
    assert "--force" in caught.value.hint
    assert target.read_text() == "my notes"
    write_files(report, tmp_path, force=True)
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("name", ["index.html", "findings.parquet"])
def test_foreign_index_stops_before_anything_is_written(
    hostile: Report, tmp_path: Path, name: str
) -> None:
    """The files over all runs are as careful as those of one; then not even those are written."""
    (tmp_path / name).write_text("my notes")
    with pytest.raises(OutputError):
        write_files(hostile, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_commands_name_the_written_files(report: Report, tmp_path: Path) -> None:
    """After writing, the text ends with opening the page and replaying from the JSON."""
    written = write_files(report, tmp_path)
    lines = render(report, "text", "en", written=written).splitlines()
    assert f"loganalyze open {tmp_path}/pretrain-7b.html" in lines[-2]
    assert f"loganalyze replay {tmp_path}/pretrain-7b.json --finding LA202-1" in lines[-1]


def test_file_names_stay_unique() -> None:
    """Ids that differ only in unsafe characters or case get different files."""
    assert file_stems(("a/b", "a b", "A_B", "..", "")) == ("a_b", "a_b-2", "A_B-3", "run", "run-2")


def test_an_unwritable_folder_is_one_clear_error(report: Report, tmp_path: Path) -> None:
    """A file where the folder should be: an OutputError that names it, nothing half-written."""
    blocked = tmp_path / "reports"
    blocked.write_text("in the way")
    with pytest.raises(OutputError) as caught:
        write_files(report, blocked)
    assert str(blocked) in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]
