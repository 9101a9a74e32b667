"""Five hundred hostile strings as names, settings, events and quoted lines: no format obeys one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synth import make_run

from loganalyze.ingest import ingest
from loganalyze.model import Problem, Report, RunLog
from loganalyze.pipeline import Judging, judge
from loganalyze.report import FORMATS, render, write_files

_MARK = "pwned"
_HTML = (
    f"<script>{_MARK}()</script>", f"</script><script>{_MARK}()</script>",
    f"<img src=x onerror={_MARK}()>", f'"><img src=x onerror="{_MARK}()">',
    f"'><svg/onload={_MARK}()>", f"<svg><script>{_MARK}()</script></svg>",
    f"</title><script>{_MARK}()</script>", f"</style><img src=x onerror={_MARK}()>",
    f"<!--<img src=--><img src=x onerror={_MARK}()//>", f"--><script>{_MARK}()</script>",
    f"<a href=javascript:{_MARK}()>x</a>", f"javascript:{_MARK}()", f'" onclick="{_MARK}()',
    f"' onmouseover='{_MARK}()", f"` onfocus=`{_MARK}()", f"<iframe srcdoc='{_MARK}'>",
    "<base href=//evil.example/>", '<meta http-equiv=refresh content="0;url=//evil.example">',
    "<link rel=stylesheet href=//evil.example/x.css>", "<form action=//evil.example><input>",
    "{{7*7}}", "{% raw %}", "${7*7}", "{loss}", "{0}", "%s%n", "&lt;script&gt;", "&#60;script&#62;",
    "<style>*{display:none}</style>", "]]><script>", "<?xml version='1.0'?>", "<!DOCTYPE x>",
    "<math><mi//xlink:href='data:x,<script>'>", "<textarea>", "</pre></code></td></table>",
)  # fmt: skip
_TERMINAL = (
    "\x1b[31mred", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x07x\x1b]8;;\x07", "\x1b[2J",
    "\x9b31m", "\x07\x07", "a\rb", "a\x08\x08b", "\x00", "\x1bP+q\x1b\\", "\x1b[6n", "a\nb", "\x7f",
)  # fmt: skip
_UNICODE = (
    "\u202egnp.exe", "\u2066x\u2069", "\u200f", "\u2028alert(1)", "\u2029", "\ufeff", "\ud800",
    "\U000e0041", "a\u0300" * 40, "\u200b", "ı" * 300,
)  # fmt: skip
_SHEETS = (
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1+1",
    '=HYPERLINK("//evil.example")',
)
_MARKDOWN = (
    "[x](javascript:pwned())", "![x](//evil.example/x.png)", "`code`", "```\n```", "# head",
    "| a | b |", "**b**", "@everyone", "#1", "<details>", "\\", "* * *", "[x]: //evil.example",
    "http://evil.example/x",
)  # fmt: skip
_MACHINES = (
    "::error file=x::y", "::set-output name=x::y", "%0A::error::x", "##[error]x",
    "file:///etc/passwd",
    "../../etc/passwd", "..\\..\\x", "//evil.example/share", "data:text/html,<script>", "%2e%2e%2f",
    "con", "x" * 4000, "' or 1=1 --", "$(reboot)", "; reboot", "`reboot`", "| reboot", "~",
    "-rf", "*",
)  # fmt: skip
BASES = (*_HTML, *_TERMINAL, *_UNICODE, *_SHEETS, *_MARKDOWN, *_MACHINES)
AROUND = ("{}", "a{}", "{} z", '"{}"', "train/{}/loss")
STRINGS = tuple(dict.fromkeys(way.replace("{}", base) for base in BASES for way in AROUND))
_CHUNK = 125
CHUNKS = range((len(STRINGS) + _CHUNK - 1) // _CHUNK)
_URLS = ("src", "href", "action", "formaction", "data", "xlink:href", "srcdoc", "poster")


class Page(HTMLParser):
    """Counts elements, and keeps what could run or fetch."""

    def __init__(self, text: str) -> None:
        """Parse the whole page."""
        super().__init__(convert_charrefs=True)
        self.risky: list[tuple[str, str, str]] = []
        self.counts: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and its handlers and addresses."""
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            address = name in _URLS and not str(value).startswith(("#", "data:image/", "data:,"))
            if name.startswith("on") or address:
                self.risky.append((tag, name, str(value)))


def hostile_run(words: tuple[str, ...]) -> RunLog:
    """A run in which each of the words is a metric, a setting, an event, a path and a problem."""
    losses = [2.0] * 30 + [float("nan")] * 10
    metrics: dict[str, list[float | None]] = {"loss": [*losses]}
    for number, word in enumerate(words[:40]):
        metrics[f"raw/{_storable(word)}"] = [float(number)] * 40
    events = [
        {"kind": "exception", "step": 31, "text": _storable(word), "detail": {word: word}}
        for word in words
    ]
    run = make_run(metrics, events=events, config={word: word for word in words})
    sources = [replace(run.sources[0], path=word, parser=word) for word in words]
    samples = replace(run.sources[0].account, unknown_samples=words)
    problems = [Problem(rule=word, message=word) for word in words]
    return replace(
        run,
        meta=replace(run.meta, id=words[0], framework=words[-1], grouping=words[1]),
        sources=(replace(run.sources[0], path=words[2], account=samples), *sources),
        problems=tuple(problems),
    )


def _storable(word: str) -> str:
    """Without lone surrogates, which no frame of polars holds."""
    return word.encode("utf-8", "replace").decode()


@cache
def rendered(chunk: int, format_: str) -> str:
    """A report over one part of the strings."""
    words = STRINGS[chunk * _CHUNK : (chunk + 1) * _CHUNK]
    return render(_report(words), format_, "en")


@cache
def _report(words: tuple[str, ...]) -> Report:
    return Report(version="0", diagnoses=(judge(hostile_run(words), Judging()),))


def test_there_are_five_hundred() -> None:
    """So many strings are tried, none twice."""
    assert len(STRINGS) >= 480
    assert len(set(STRINGS)) == len(STRINGS)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_page_has_no_element_of_a_log(chunk: int) -> None:
    """The page has the scripts and links of a harmless report, no handler, no foreign address."""
    page = Page(rendered(chunk, "html"))
    calm = Page(render(_report(tuple(f"word{n}" for n in range(_CHUNK))), "html", "en"))
    assert page.risky == []
    for tag in ("script", "iframe", "base", "form", "meta", "link", "style", "object", "embed"):
        assert page.counts.get(tag, 0) == calm.counts.get(tag, 0), tag
    assert "textarea" not in page.counts


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("format_", FORMATS)
def test_no_control_character_is_passed_on(chunk: int, format_: str) -> None:
    """No escape, bell, back space or direction override of a log stands in an output."""
    text = rendered(chunk, format_)
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)
    if format_ != "html":  # where they are characters like any other
        assert not re.search("[\x7f-\x9f]", text)
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
    text.encode("utf-8")


@pytest.mark.parametrize("chunk", CHUNKS)
def test_machine_formats_stay_whole(chunk: int) -> None:
    """JSON and SARIF parse, SARIF addresses are references, JUnit is XML, GitHub adds no line."""
    json.loads(rendered(chunk, "json"))
    document = json.loads(rendered(chunk, "sarif"))
    for result in document["runs"][0]["results"]:
        for place in (*result["locations"], *result["relatedLocations"]):
            uri = place["physicalLocation"]["artifactLocation"]["uri"]
            assert re.fullmatch(r"[A-Za-z0-9._~/%:-]*", uri)
            assert not uri.lower().startswith(("javascript:", "data:", "//"))
    ElementTree.fromstring(rendered(chunk, "junit"))
    for line in rendered(chunk, "github").splitlines():
        assert re.match(r"::(error|warning|notice) ", line)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_markdown_has_no_markup_of_a_log(chunk: int) -> None:
    """Outside code spans stands no tag, no link, no picture and no mention."""
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", rendered(chunk, "markdown"))
    assert not re.search(r"<[a-zA-Z/!?]", prose)
    assert not re.search(r"(?<!\\)\]\(", prose)
    assert "@everyone" not in prose


def _name(word: str) -> str:
    return "x" + re.sub(r"[/\x00]", "_", word)[:60]


@pytest.mark.parametrize("word", BASES[::4])
def test_file_of_that_name(word: str, tmp_path: Path) -> None:
    """A log of a hostile name, with the name as a column, gives reports inside the folder only."""
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / f"{_name(word)}.csv".encode("utf-8", "replace").decode()
    column = _storable(word).replace('"', '""')
    rows = "".join(f"{step},{2 + 1 / step},{step}\n" for step in range(1, 30))
    path.write_text(f'step,train/loss,"{column}"\n{rows}', encoding="utf-8")
    made = ingest([str(folder)])
    report = Report(version="0", diagnoses=tuple(judge(run, Judging()) for run in made.runs))
    written = write_files(report, tmp_path / "out")
    assert {item.parent for item in written} == {tmp_path / "out"}
    assert {item.name for item in tmp_path.iterdir()} == {"logs", "out"}
    assert Page(render(report, "html", "en")).risky == []
    assert "\x1b" not in render(report, "text", "en")
