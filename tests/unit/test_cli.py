"""The command line's contract: exit codes, streams, clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from textlogs import megatron_line

from loganalyze.cli import cli, main
from loganalyze.errors import LoganalyzeError


def call(*arguments: str | Path) -> tuple[int, Result]:
    """Exit code and result of a command, with errors turned into their codes as main() does."""
    result = CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)
    if isinstance(result.exception, LoganalyzeError):
        return result.exception.exit_code, result
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return int(result.return_value or 0), result


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("dignose x", ["dignose", "did you mean `loganalyze diagnose`?"]),
        ("diagnose", ["Missing argument", "`loganalyze diagnose --help`"]),
        ("diagnose --nope x", ["--nope", "`loganalyze diagnose --help`"]),
        ("diagnose no/such.log", ["no/such.log", "check the path"]),
        ("explain LA999", ["LA999", "LA102"]),
        ("rules --set a=1", ["'a'", "`loganalyze rules`"]),
    ],
)
def test_errors_are_one_line_with_the_next_thing_to_try(
    arguments: str, parts: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Wrong use is exit code 2, nothing on standard output, and one line on standard error."""
    monkeypatch.setattr("sys.argv", ["loganalyze", *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr()
    assert stopped.value.code == 2
    assert told.out == ""
    assert told.err.startswith("loganalyze: ")
    assert told.err.count("\n") == 1
    assert all(part in told.err for part in parts), told.err


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A log of 60 quiet steps."""
    lines = [
        megatron_line(n, lm_loss=f"{4 - n / 200 + (n % 7) / 300:.6f}", grad_norm="0.500")
        for n in range(1, 61)
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def dying(tmp_path: Path) -> Path:
    """A log whose loss turns NaN at step 61."""
    lines = [
        megatron_line(n, lm_loss=f"{4 - n / 200 + (n % 7) / 300:.6f}", loss_scale="1.0",
                      grad_norm="0.500")
        for n in range(1, 61)
    ]  # fmt: skip
    lines += [
        megatron_line(n, learning_rate="1E-4", loss_scale="1.0", grad_norm="nan")
        for n in range(61, 80)
    ]
    path = tmp_path / "dying.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_diagnose_writes_both_reports(dying: Path, tmp_path: Path) -> None:
    """diagnose prints a text and leaves <run>.html and <run>.json."""
    code, result = call("diagnose", dying, "-o", tmp_path / "out", "--lang", "en")
    assert code == 0
    assert "LA101" in result.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["dying.html", "dying.json"]


def test_no_files_with_a_dash(
    healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-o - writes no file."""
    monkeypatch.chdir(tmp_path)
    code, _ = call("diagnose", healthy, "-o", "-")
    assert code == 0
    assert not (tmp_path / "reports").exists()


def test_json_on_standard_output(dying: Path) -> None:
    """--format json prints one document of the published schema."""
    code, result = call("diagnose", dying, "-o", "-", "--format", "json")
    document = json.loads(result.output)
    assert code == 0
    assert document["schema"] == "loganalyze.report/1"
    assert document["verdict"] == "critical"
    assert document["runs"][0]["steps"] == {"first": 1, "last": 79, "count": 79}


@pytest.mark.parametrize(("level", "expected"), [("critical", 1), ("info", 1), ("never", 0)])
def test_fail_on(dying: Path, level: str, expected: int) -> None:
    """--fail-on turns findings into exit code 1."""
    assert call("diagnose", dying, "-o", "-", "--fail-on", level)[0] == expected


def test_ignored_findings_do_not_fail(dying: Path) -> None:
    """--ignore takes findings out of the judgement."""
    code, _ = call("diagnose", dying, "-o", "-", "--fail-on", "critical", "--ignore", "LA1",
                   "--ignore", "LA2", "--ignore", "LA7")  # fmt: skip
    assert code == 0


def test_missing_path_is_wrong_use(tmp_path: Path) -> None:
    """A path that does not exist is exit code 2 and names the path."""
    code, result = call("diagnose", tmp_path / "nothing.log")
    assert code == 2
    assert "nothing.log" in str(result.exception)


def test_empty_binary_and_wordless_files(tmp_path: Path) -> None:
    """Empty, binary and metric-free files are exit code 3, never clean."""
    for name, data in [("a.log", b""), ("b.log", bytes(range(256)) * 40), ("c.log", b"hello\n")]:
        (tmp_path / name).write_bytes(data)
        code, result = call("diagnose", tmp_path / name, "-o", "-", "--lang", "en")
        assert code == 3, name
        assert "clean" not in result.output.lower().splitlines()[-1]


def test_what_is_left_out_is_never_clean(dying: Path) -> None:
    """With every finding ignored nothing is called clean, and the checks are told to be off."""
    options = ("-o", "-", "--lang", "en", "--ignore", "LA")
    _, result = call("diagnose", dying, *options)
    told = " ".join(result.output.split())
    assert "left out by --select or --ignore" in told
    assert "✔" not in told
    _, result = call("diagnose", dying, *options, "--format", "json")
    document = json.loads(result.output)
    assert document["verdict"] == "info"
    checks = [check for run in document["runs"] for check in run["checks"]]
    assert {check["status"] for check in checks} == {"off"}


@pytest.mark.parametrize("format_", ["text", "markdown", "html", "json"])
def test_every_check_ran_or_could_not_or_was_off(format_: str, dying: Path) -> None:
    """Each check is told to have run, to lack something, or to be off, once, in every report."""
    options = ("-o", "-", "--lang", "en", "--ignore", "LA6", "--format", format_)
    told = call("diagnose", dying, *options)[1].stdout
    if format_ == "json":
        states = [check["status"] for check in json.loads(told)["runs"][0]["checks"]]
        assert set(states) == {"ran", "skipped", "off"}
        return
    for part in ("Checked and not found", "Could not check, because", "Switched off"):
        assert part in told
    lines = [line for line in told.splitlines() if "needs" in line and format_ != "html"]
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_a_code_that_names_nothing_is_wrong_use(option: str, dying: Path) -> None:
    """A mistyped code would switch a check on or off without a word: it is told instead."""
    for code in ("LA999", "spike", "LA102x"):
        exit_code, result = call("diagnose", dying, "-o", "-", option, code)
        assert exit_code == 2
        assert f"{code}: no finding has this code or name" in str(result.exception)
    for code in ("LA102", "la1", "loss_spike", "LA102-1"):
        assert call("diagnose", dying, "-o", "-", option, code)[0] == 0


def test_folder_without_logs(tmp_path: Path) -> None:
    """A folder without anything readable is exit code 3 and says so."""
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    code, result = call("diagnose", tmp_path)
    assert code == 3
    assert "no file that could be a log" in str(result.exception)


def test_log_cut_in_the_middle_of_a_line(dying: Path) -> None:
    """A log cut in the middle of a line is still analysed."""
    data = dying.read_bytes()
    dying.write_bytes(data[: len(data) - 70])
    code, result = call("diagnose", dying, "-o", "-", "--format", "json")
    assert code == 0
    assert json.loads(result.output)["runs"][0]["steps"]["count"] >= 78


def test_unknown_threshold_names_its_place(healthy: Path, tmp_path: Path) -> None:
    """An unknown key in the user's thresholds is an error with file and line."""
    file = tmp_path / "mine.toml"
    file.write_text("[loss_spike]\nz_warnin = 9.0\n")
    code, result = call("diagnose", healthy, "--thresholds", file)
    assert code == 2
    assert "mine.toml:2" in str(result.exception)


@pytest.mark.parametrize("text", [b"[loss_spike\n", b"[loss_spike]\n# \xff\nz_warning = 9.0\n"])
def test_a_damaged_file_of_thresholds_is_named(healthy: Path, tmp_path: Path, text: bytes) -> None:
    """What is no TOML, or no text at all, is told with the file's name and what is wrong."""
    file = tmp_path / "mine.toml"
    file.write_bytes(text)
    code, result = call("diagnose", healthy, "--thresholds", file)
    assert code == 2
    assert "mine.toml: not valid TOML" in str(result.exception)


def test_ingest_then_diagnose(dying: Path, tmp_path: Path) -> None:
    """A run directory of ingest gives the same JSON as the raw log."""
    assert call("ingest", dying, "--store", tmp_path / "runs")[0] == 0
    _, stored = call("diagnose", tmp_path / "runs" / "dying", "-o", "-", "--format", "json")
    _, raw = call("diagnose", dying, "-o", "-", "--format", "json")
    assert stored.output == raw.output


def test_ingest_tells_the_account(dying: Path, tmp_path: Path) -> None:
    """ingest prints how every line was accounted for, and how it grouped the inputs."""
    _, result = call("ingest", dying, "--store", tmp_path / "runs")
    assert "79 lines = 79 read + 0 ignored + 0 unknown" in result.output
    assert "grouped: one file" in result.output
