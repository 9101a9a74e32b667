"""The page: self-contained, complete without scripts, inert, small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
import report_fixture as fixture
from msgspec.structs import replace
from plotly.offline import get_plotlyjs

from loganalyze import config
from loganalyze.config import load_thresholds
from loganalyze.model import Report
from loganalyze.report import render
from loganalyze.report.charts import trimmed
from loganalyze.report.html import _short_names, safe_json
from loganalyze.report.wording import cause_text

ALLOWED = {"script", "style", "link", "meta", "img"}


class Page(HTMLParser):
    """Collects elements, ids, links and what could make a request or run."""

    def __init__(self, text: str) -> None:
        """Parse the whole page."""
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        given = dict(attrs)
        self.tags.append((tag, given))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.hrefs.append(str(given["href"]))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Rendered pages: both runs, hostile, empty."""
    folder = tmp_path_factory.mktemp("logs")
    report = fixture.build(folder)
    return {
        "both": render(report, "html", "en"),
        "zh": render(report, "html", "zh"),
        "hostile": render(
            fixture.build(tmp_path_factory.mktemp("hostile"), hostile=True), "html", "en"
        ),
        "empty": render(Report(version="0", diagnoses=(), unread=report.unread), "html", "en"),
    }


@pytest.mark.parametrize("name", ["both", "zh", "hostile", "empty"])
def test_nothing_is_fetched_and_nothing_else_runs(texts: dict[str, str], name: str) -> None:
    """Only data: addresses, links inside the page, no handler attribute, two scripts of ours."""
    page = Page(texts[name])
    for tag, given in page.tags:
        for key, value in given.items():
            assert not key.startswith("on"), (tag, key)
            if key == "src" or (tag == "link" and key == "href"):
                assert str(value).startswith("data:"), (tag, value)
        if tag == "script":
            assert given.get("type", "head") in (
                "head", "module", "application/json", "application/octet-stream",
            )  # fmt: skip
    assert all(href.startswith("#") for href in page.hrefs)
    kinds = [given.get("type", "head") for tag, given in page.tags if tag == "script"]
    assert (kinds.count("head"), kinds.count("module")) == (1, 1)


def test_policy_allows_exactly_the_pages_scripts(texts: dict[str, str]) -> None:
    """The policy starts from nothing; its hashes are those of the page's scripts and of plotly."""
    text = texts["both"]
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    rules = policy[1].replace("&#39;", "'")
    scripts = re.findall(r'<script(?: type="module")?>(.*?)</script>', text, re.S)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules
    assert rules.startswith("default-src 'none'; script-src 'sha256-")
    assert rules.count("'sha256-") == 3
    assert "unsafe-inline" not in rules.split("style-src")[0]


@pytest.mark.parametrize("name", ["both", "zh", "hostile"])
def test_links_lead_somewhere_and_ids_are_unique(texts: dict[str, str], name: str) -> None:
    """Each # link but #step= has its target."""
    page = Page(texts[name])
    assert len(page.ids) == len(set(page.ids))
    targets = {href[1:] for href in page.hrefs if not href.startswith("#step=")}
    assert targets <= set(page.ids)


def test_first_screen_says_it_all_without_scripts(texts: dict[str, str]) -> None:
    """Verdict, first mover, step, why, what to do, drawings and inputs are plain HTML."""
    text = texts["both"]
    for wanted in (
        "2 critical incidents need attention now", "2 起严重事件，需要立即处理",
        "Gradient explosion",
        f"at step {fixture.SPIKE - 3}",
        cause_text("loss_spike", "C.SPIKE.TRANSIENT").title.zh,
        "train_7b.log:2601", '<svg class="plot"',
        "gradient.spike_z", "median and MAD of the last 200 points", "fabric manager says hello",
        "LA601-1", "notes.bin", "Validation loss rises", "--finding LA202-1",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_quoted_lines_are_those_of_the_file(texts: dict[str, str]) -> None:
    """The quote holds the cited step's line as it stands in the log."""
    assert re.search(r"<code>iteration\s+2601/ 6000 \| lm loss: [\d.E+]+ \|</code>", texts["both"])


def test_hostile_text_is_inert(texts: dict[str, str]) -> None:
    """No element, attribute or script comes out of a log's text, in HTML or in JSON."""
    text = texts["hostile"]
    page = Page(text)
    assert all(tag != "img" or given.get("class") is None for tag, given in page.tags)
    assert not any(given.get("src") == "x" for _, given in page.tags)
    for block in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.S):
        assert "<" not in block
        assert "\u2028" not in block
        json.loads(block)
    assert "pwned" in text


def test_safe_json_cannot_end_a_script() -> None:
    """<, >, &, U+2028 and U+2029 are escaped; the value survives."""
    value = {"a</script>": "<!-- & \u2028\u2029"}
    text = str(safe_json(value))
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_page_is_the_same_every_time(texts: dict[str, str]) -> None:
    """Two renderings of the same report are the same text."""
    assert render(fixture.build(), "html", "en") == render(fixture.build(), "html", "en")


def test_page_stays_small(texts: dict[str, str]) -> None:
    """Two runs with 8 ranks fit in 2.5 MB."""
    assert len(texts["both"].encode()) < 2_500_000


def test_missing_panels_and_levels_are_named(texts: dict[str, str]) -> None:
    """What the log lacks is said for panels and levels."""
    text = texts["both"]
    assert "not in this log: Validation loss, Perplexity" in text
    assert "Not logged, so this stays open: which layer went wrong?" in text
    assert "日志中没有：验证损失、困惑度" in text


def test_restart_and_ranks_are_shown(texts: dict[str, str]) -> None:
    """The branch that was run again is drawn, and the slow rank leads the ranking."""
    text = texts["both"]
    assert re.search(r'class="c c0 old raw"', text)
    ranking = text.split('class="ranking"', 1)[1]
    first = re.search(r"<tr><td>(\d+)</td>", ranking)
    assert first is not None
    assert first[1] == "5"


def test_template_output_has_no_untranslated_key(texts: dict[str, str]) -> None:
    """No key of strings/ shows through."""
    assert not re.search(r">\s*ui[ _]\w+", texts["both"])


def _large(steps: int, findings: int) -> Report:
    """One run of 12 noisy metrics with many findings in many incidents."""
    sick = fixture.sick_run()
    rng = np.random.default_rng(3)
    names = [name for name in config.metrics() if "/" not in name][:20]
    readings = pl.DataFrame({
        "step": np.arange(steps), "segment": np.zeros(steps, np.int32),
        "rank": np.zeros(steps, np.int32), "wall_s": 1.7e9 + np.arange(steps, dtype=float),
        "source": np.zeros(steps, np.int32), "line": np.arange(1, steps + 1),
        "offset": np.zeros(steps, np.int64), "length": np.zeros(steps, np.int64),
        **{name: rng.normal(2, 0.1, steps) for name in names},
    })  # fmt: skip
    span = steps // (findings + 2)
    found = tuple(
        replace(sick.findings[1], id=f"LA102-{i + 1}", metric=names[i % 3], step_first=i * span,
                step_last=i * span + 30, step_peak=i * span + 3)
        for i in range(findings)
    )  # fmt: skip
    stories = tuple(
        replace(sick.incidents[1], id=f"I{i}", step_first=found[i].step_first,
                step_last=found[i].step_last, first_mover=found[i].id, findings=(found[i].id,))
        for i in range(0, findings, 3)
    )  # fmt: skip
    run = replace(sick.run, readings=readings)
    rules = tuple(load_thresholds().entries.values())
    many = replace(sick, run=run, findings=found, incidents=stories, thresholds=rules)
    return Report(version="0", diagnoses=(many,))


def test_page_of_a_large_run_stays_small() -> None:
    """20 metrics with 200 findings in 67 incidents: at most 2.5 MB, all findings listed."""
    text = render(_large(60_000, 200), "html", "en")
    assert len(text.encode()) < 2_500_000
    ids = set(Page(text).ids)
    assert {f"LA102-{i + 1}" for i in range(200)} <= ids


def test_plotly_is_trimmed_where_the_bundle_is_known() -> None:
    """The tested plotly.js loses half of its script, not its head, licences or entry point."""
    whole = get_plotlyjs()
    cut = trimmed(whole)
    assert len(cut) < 0.5 * len(whole)
    assert cut[:600] == whole[:600]
    assert cut[-400:] == whole[-400:]
    for mark in ("MIT license", "Feross Aboukhadijeh", "Sindre Sorhus"):
        assert cut.count(mark) == whole.count(mark) > 0
    assert "newPlot" in cut


def test_unknown_plotly_stays_whole() -> None:
    """A bundle that plotly.toml doesn't list goes into the page as it is."""
    other = get_plotlyjs() + " "
    assert trimmed(other) == other


def test_narrow_places_tell_runs_apart() -> None:
    """A long shared beginning is left out; short or lone names stay."""
    assert _short_names(["sweep/group-a/run1", "sweep/group-a/run2"]) == ["…1", "…2"]
    assert _short_names(["alpha", "beta"]) == ["alpha", "beta"]
    assert _short_names(["only/one/name/there/is"]) == ["only/one/name/there/is"]
