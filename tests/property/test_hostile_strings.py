"""Five hundred hostile strings as names, settings, events and quoted lines: no format obeys one."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile import BASES, CHUNK, CHUNKS, STRINGS, report_of, report_with, storable

from loganalyze.ingest import ingest
from loganalyze.model import Report
from loganalyze.pipeline import Judging, judge
from loganalyze.report import FORMATS, render, write_files

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


@cache
def rendered(chunk: int, format_: str) -> str:
    """A report over one part of the strings."""
    return render(report_of(chunk), format_, "en")


def test_there_are_five_hundred() -> None:
    """So many strings are tried, none twice."""
    assert len(STRINGS) >= 500
    assert len(set(STRINGS)) == len(STRINGS)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_page_has_no_element_of_a_log(chunk: int) -> None:
    """The page has the scripts and links of a harmless report, no handler, no foreign address."""
    page = Page(rendered(chunk, "html"))
    calm = Page(render(report_with(tuple(f"word{n}" for n in range(CHUNK))), "html", "en"))
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
    column = storable(word).replace('"', '""')
    rows = "".join(f"{step},{2 + 1 / step},{step}\n" for step in range(1, 30))
    path.write_text(f'step,train/loss,"{column}"\n{rows}', encoding="utf-8")
    made = ingest([str(folder)])
    report = Report(version="0", diagnoses=tuple(judge(run, Judging()) for run in made.runs))
    written = write_files(report, tmp_path / "out")
    assert {item.parent for item in written} == {tmp_path / "out"}
    assert {item.name for item in tmp_path.iterdir()} == {"logs", "out"}
    assert Page(render(report, "html", "en")).risky == []
    assert "\x1b" not in render(report, "text", "en")
