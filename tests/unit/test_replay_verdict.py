"""Verdicts: each injected fault is named, from the log to the page; knowledge of the parts."""

from __future__ import annotations

import json
import math
import re
import shlex
from html import unescape
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import replay_faults
import replay_lab as lab
import torch
from click.testing import CliRunner

from loganalyze import config
from loganalyze.cli import cli
from loganalyze.config import load_thresholds
from loganalyze.errors import UnreadableInput, UsageError
from loganalyze.replay import (
    Request,
    Step,
    environment,
    equality,
    formats,
    json_out,
    page,
    suspects,
    text,
)
from loganalyze.replay.builtin import from_capsule
from loganalyze.replay.case import read_case
from loganalyze.replay.page import colour
from loganalyze.replay.result import Match
from loganalyze.replay.session import replay
from loganalyze.report import nearby

torch.set_num_threads(1)
RULES = load_thresholds()


@pytest.mark.parametrize("name", replay_faults.FAULTS)
def test_the_fault_is_named_first(name: str, tmp_path: Path) -> None:
    """Cause, and the layer or sample behind it, come first; the instruments change nothing."""
    fault = replay_faults.FAULTS[name](1)
    result = replay_faults.judged(fault, tmp_path, 1)
    first = result.judgements[0]
    assert (first.state, first.cause) == ("supported", fault.cause)
    if fault.layer:
        assert result.layers[0].name == fault.layer
    if fault.sample:
        assert result.samples[0].id == fault.sample
    assert result.reproduced == ("not_reproduced" if fault.cause == "hardware" else "equal")
    assert result.deterministic
    assert result.untouched
    if fault.precision == "fp16":
        worst = formats.worst_first(result.formats)[0]
        assert (worst.name, worst.apart) == (fault.layer, math.inf)
    else:
        assert result.formats == ()


def test_a_healthy_step_is_not_accused(tmp_path: Path) -> None:
    """Where nothing is unusual, no cause is supported and the replay says so."""
    result = replay_faults.judged(replay_faults.healthy(3), tmp_path, 3)
    assert result.reproduced == "equal"
    assert not [j for j in result.judgements if j.state == "supported"]
    assert "Nothing unusual" in text.render(result, RULES, "en")


def test_another_model_is_not_the_same_step(tmp_path: Path) -> None:
    """Other code from the first step on is told, with what differs first."""
    recorder = lab.train(tmp_path, 6, snapshot_every=4)
    recorder.capture()
    request = Request(step=None, checkpoint=tmp_path)
    result = replay(from_capsule(_other(), request), request)
    assert result.reproduced == "not_the_same"
    assert result.first_difference is not None
    assert (result.first_difference.step, result.first_difference.name) == (1, "loss")
    assert result.judgements[0].cause == "other_run"


def _other() -> Step:
    made = lab.build()
    plain = made.loss_fn
    made.loss_fn = lambda model, batch: plain(model, batch) * 1.5
    return made


def test_a_recipe_without_records_still_says_what_it_sees(tmp_path: Path) -> None:
    """One batch, no history: samples are ranked, what is missing is said, nothing is claimed."""
    made = lab.build(seed=2)
    batch = lab.text(12, torch.Generator().manual_seed(1))
    for _ in range(30):
        lab.one_step(made, batch)
    bad = batch.clone()
    bad[7] = 3
    made.batch, made.step, made.seed = bad, 31, 5
    result = replay(made, Request(step=31, logged={"loss": 9.0}))
    assert result.samples[0].index == 7
    assert "replay_note_no_earlier_steps" in result.notes
    assert [m.name for m in result.matches] == ["logged_loss"]
    assert json.loads(json_out.render(result))["schema"] == "loganalyze.replay/1"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run with a poisoned sample, recorded, and diagnosed from the recorder's own log."""
    folder = tmp_path_factory.mktemp("chain")

    def poison(step: int, made: Step, batch: torch.Tensor) -> None:
        if step == 60:
            batch[5] = torch.randint(lab.VOCAB, (17,), generator=torch.Generator().manual_seed(9))

    lab.train(folder / "box", 75, fault=poison, samples=8, go_on=True, snapshot_every=32).flush()
    log = str(folder / "box/steps.jsonl")
    done = CliRunner().invoke(cli, ["diagnose", log, "-o", str(folder / "reports")])
    assert done.exit_code == 0, done.output
    return next((folder / "reports").glob("*.json")), folder


def test_from_the_log_to_the_sample(chain: tuple[Path, Path]) -> None:
    """Diagnose finds the spike; replay names its sample, and writes JSON and a page."""
    report, folder = chain
    done = CliRunner().invoke(cli, [
        "replay", str(report), "--recipe", f"capsule:{lab.BUILDER}", "--checkpoint",
        str(folder / "box"), "-o", str(folder / "out"), "--lang", "en",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "Most likely behind it: Carried by samples: without s60-5" in done.output
    assert "58 recorded values are bit-equal" in done.output
    document = json.loads(next((folder / "out").glob("*.replay.json")).read_text("utf-8"))
    assert (document["step"], document["reproduced"]) == (60, "equal")
    assert any(m["name"] == "logged_loss" and m["state"] == "equal" for m in document["matches"])
    html = next((folder / "out").glob("*.replay.html")).read_text("utf-8")
    assert html.startswith("<!doctype html>\n<html lang=\"en\">")
    assert "default-src 'none'" in html
    assert "<script" not in html
    assert not re.search(r"""(src|href)=["'](?!data:)""", html)
    assert html.count("<rect") > 200
    for lang in ("en", "zh"):
        assert f"<i lang={lang}>" in html
    assert not re.search(r"replay_[a-z]", html)
    assert document["sample_spread"]["hard_share"] > 0.5
    table = pl.read_parquet(next((folder / "out").glob("*.replay.parquet")))
    assert set(table["kind"]) == {
        "layer", "parameter", "embedding", "head", "sample", "position", "map",
    }  # fmt: skip
    known = {p["name"]: p["weight"]["l2"] for p in document["measured"]["parameters"]}
    written = table.filter(
        (pl.col("kind") == "parameter") & (pl.col("step") == 60) & (pl.col("what") == "weight")
        & (pl.col("statistic") == "l2")
    )  # fmt: skip
    assert dict(zip(written["name"], written["value"], strict=True)) == known


def test_the_options_named_for_a_log_with_a_box_work(chain: tuple[Path, Path]) -> None:
    """The box beside the log gives the command's options; run twice, the report has one section."""
    report, folder = chain
    page_file = report.with_suffix(".html")
    found = nearby.start([str(folder / "box/steps.jsonl")], 60)
    assert found.recipe == f"capsule:{lab.BUILDER}"
    assert nearby.start([str(folder / "box/steps.jsonl")], 9999) == nearby.OWN
    words = ["replay", str(report), "--recipe", found.recipe, "--checkpoint", found.checkpoint]
    for _ in range(2):
        done = CliRunner().invoke(cli, [*words, "-o", str(report.parent)])
        assert done.exit_code == 0, done.output
    whole = page_file.read_text("utf-8")
    assert whole.count('<section class="replay"') == 1
    section = whole[whole.index('<section class="replay"') : whole.index("<!-- end of replay")]
    assert whole.index("<!-- end of replay") < whole.index("</main>")
    assert "<script" not in section
    assert section.count("<i lang=en>") == section.count("<i lang=zh>") > 40


def test_the_printed_command_is_typed_as_it_stands(
    chain: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminal, page and Markdown print one replay command; pasted, it names the sample."""
    _, folder = chain
    monkeypatch.chdir(folder)
    words = ["diagnose", "box/steps.jsonl", "-o", "pasted", "--lang", "en"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    markdown = CliRunner().invoke(cli, [*words, "--format", "markdown"])
    command = next(line.removeprefix("Next:").strip() for line in done.output.splitlines()
                   if "loganalyze replay" in line)  # fmt: skip
    assert command in unescape(Path("pasted/steps.jsonl.html").read_text("utf-8"))
    assert command in markdown.stdout
    program, *typed = shlex.split(command)
    assert program == "loganalyze"
    done = CliRunner().invoke(cli, typed)
    assert done.exit_code == 0, done.output + str(done.exception)
    document = json.loads(Path("reports/steps.jsonl.replay.json").read_text("utf-8"))
    assert (document["step"], document["reproduced"]) == (60, "equal")
    assert document["judgements"][0]["cause"] == "samples"
    assert document["samples"][0]["id"] == "s60-5"


def test_what_is_not_a_report_gets_no_section() -> None:
    """A page without a main part is left as it is."""
    made = lab.build()
    made.batch = lab.text(4, torch.Generator().manual_seed(1))
    result = replay(made, Request(step=1))
    assert page.into_report("<p>x</p>", result, RULES) == "<p>x</p>"


def test_the_command_says_what_is_wrong(chain: tuple[Path, Path], tmp_path: Path) -> None:
    """Unknown findings, missing reports, devices and foreign files are told in one line."""
    report, _ = chain
    with pytest.raises(UsageError, match="no finding 'LA999-1'"):
        read_case(report, "LA999-1")
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_case(tmp_path / "no.json", None)
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UnreadableInput, match="no report of loganalyze"):
        read_case(tmp_path / "other.json", None)
    base = ["replay", str(report), "--recipe", f"capsule:{lab.BUILDER}"]
    wrong = CliRunner().invoke(cli, base)
    assert "needs --checkpoint" in str(wrong.exception)
    if not torch.cuda.is_available():
        cuda = CliRunner().invoke(cli, [*base, "--device", "cuda"])
        assert "no CUDA device" in str(cuda.exception)


def test_text_of_a_sample_is_inert_in_the_page(tmp_path: Path) -> None:
    """Ids and texts from data are escaped."""
    made = lab.build()
    made.batch = lab.text(4, torch.Generator().manual_seed(1))
    made.sample_ids = ["<script>x</script>"] * 4
    made.decode = lambda batch: "<img src=x>"
    html = page.render(replay(made, Request(step=1)), RULES, "zh")
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;img src=x&gt;" in html


@pytest.mark.parametrize(
    ("states", "same_place", "expected"),
    [
        (["equal"] * 6, True, "equal"),
        (["equal", "close"], False, "close"),
        (["equal"] * 4 + ["close"], True, "not_reproduced"),
        (["equal"] * 4 + ["close"], False, "close"),
        (["equal", "differs"], False, "not_reproduced"),
        (["differs", "equal"], True, "not_the_same"),
        ([], True, "unrecorded"),
    ],
)
def test_is_it_the_same_step(states: list[str], same_place: bool, expected: str) -> None:
    """Bit-equal, close, not reproduced, another run: by what differs first and what held before."""
    found = [Match(step=i, name="loss", recorded=0.0, replayed=0.0, state=s)  # type: ignore[arg-type]
             for i, s in enumerate(states)]  # fmt: skip
    assert equality.verdict(found, same_place)[0] == expected


def test_equality_of_numbers() -> None:
    """NaN equals NaN, the tolerance is relative, an infinity is never close to a number."""
    assert equality.equality(math.nan, math.nan, RULES) == "equal"
    assert equality.equality(1.0, 1.0005, RULES) == "close"
    assert equality.equality(1.0, 1.01, RULES) == "differs"
    assert equality.equality(math.inf, 1.0, RULES) == "differs"


def test_samples_are_ranked_and_bounded() -> None:
    """The worst first, not finite ones at the top, at most 5 % of them suspect."""
    losses = [1.0 + 0.01 * i for i in range(40)]
    losses[3], losses[9], losses[11] = math.nan, 9.0, 8.0
    ranked = suspects.rank_samples(losses, [], [], RULES)
    assert [s.index for s in ranked[:3]] == [3, 9, 11]
    assert [s.index for s in ranked if s.suspect] == [3, 9]
    assert suspects.rank_samples([], [], [], RULES) == ()


def test_the_environment_is_put_back() -> None:
    """Threads and flags are as recorded inside the block and as before after it; the rest told."""
    before = environment.capture()
    with environment.as_recorded({"threads": 2, "torch": "0.1"}) as differing:
        assert torch.get_num_threads() == 2
        assert differing == ("torch",)
    assert environment.capture() == before


def test_colours_of_the_map() -> None:
    """As before is grey, larger red, smaller blue, not finite black."""
    assert colour(1, 1) == "#dedede"
    assert colour(1e5, 1) == "#b9380b"
    assert colour(1e-5, 1) == "#0072b2"
    assert colour(math.inf, 1) == "#000"


def test_wording_is_complete() -> None:
    """Every key that the replay's code and page name has words in both languages."""
    from importlib.resources import files

    sources = [item.read_text("utf-8") for item in files("loganalyze.replay").iterdir()
               if item.name.endswith((".py", ".html"))]  # fmt: skip
    used = {key for source in sources for key in re.findall(r"\breplay_[a-z0-9_]+\b", source)}
    known = {key for key in config.strings() if key.startswith("replay_")}
    whole = {key for key in used if not key.endswith("_")}
    assert whole - known == set()
