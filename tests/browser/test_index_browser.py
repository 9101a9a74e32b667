"""The page over many runs in headless Chromium: sorted by its heads, quiet."""

from __future__ import annotations

import time
from pathlib import Path

import report_fixture as fixture
from chromium import MARKS, Browser
from msgspec.structs import replace

from loganalyze.report import write_files

pytestmark = MARKS


def test_heads_sort_the_table(tmp_path: Path) -> None:
    """A click sorts by that column, a second one the other way; nothing is fetched."""
    report = fixture.build(tmp_path)
    sick, clean = report.diagnoses
    for_z = replace(clean, run=replace(clean.run, meta=replace(clean.run.meta, id="a_clean")))
    write_files(replace(report, diagnoses=(sick, for_z)), tmp_path / "out")
    names = (
        "return [...document.querySelectorAll('tbody tr')].map(r => r.cells[1].innerText.trim())"
    )
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(tmp_path / "out" / "index.html")
        assert browser.run(names) == [sick.run.meta.id, "a_clean"]
        click = "document.querySelectorAll('th button')[1].click()"
        browser.run(click)
        assert browser.run(names) == ["a_clean", sick.run.meta.id]
        browser.run(click)
        assert browser.run(names) == [sick.run.meta.id, "a_clean"]
        assert browser.log("browser") == []
        assert not [
            m for m in browser.log("performance") if '"http' in m and "requestWillBeSent" in m
        ]
    finally:
        browser.driver.quit()


def open_until_stored(browser: Browser, path: Path, choices: int) -> None:
    """Open the page until it finds so many choices in the store of its browser.

    Pages are processes: on a busy machine one may look before the other's choice has arrived.
    """
    end = time.monotonic() + 40.0
    browser.open(path)
    while browser.run("return localStorage.length") != choices and time.monotonic() < end:
        time.sleep(0.05)
        browser.open(path)


def test_switches_change_language_and_theme(tmp_path: Path) -> None:
    """The index follows its switches, and remembers them the next time it is opened."""
    write_files(fixture.build(tmp_path), tmp_path / "out")
    index = tmp_path / "out" / "index.html"
    english = (
        "return [...document.querySelectorAll('i[lang=en]')].filter(n => n.offsetParent).length"
    )
    scheme = "return getComputedStyle(document.documentElement).colorScheme"
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(index)
        assert browser.run(english) > 0
        for switch in ("lang-zh", "theme-dark"):
            browser.run(f"document.getElementById('{switch}').click()")
        assert (browser.run(english), browser.run(scheme)) == (0, "dark")
        browser.driver.switch_to.new_window("tab")
        open_until_stored(browser, index, choices=2)
        assert (browser.run(english), browser.run(scheme)) == (0, "dark")
        assert browser.run("return document.getElementById('lang-zh').checked") is True
        assert browser.log("browser") == []
    finally:
        browser.driver.quit()
