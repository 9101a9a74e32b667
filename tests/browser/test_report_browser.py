"""The page in headless Chromium: quiet, drawn, linked, bilingual, inert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
import pytest
import report_fixture as fixture
from chromium import MARKS, Browser
from msgspec.structs import replace

from loganalyze.report import render, write_files

pytestmark = MARKS
DRAWN = "return document.querySelectorAll('figure[data-drawn]').length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sick run's page, both runs in one page, and a hostile one."""
    folder = tmp_path_factory.mktemp("pages")
    report = fixture.build(folder)
    sick = write_files(replace(report, diagnoses=report.diagnoses[:1]), folder, "en")[0]
    both = folder / "both.html"
    beside = replace(report, baseline=fixture.clean_run().run)
    both.write_text(render(beside, "html", "zh"), encoding="utf-8")
    bad = folder / "hostile.html"
    bad.write_text(render(fixture.build(hostile=True), "html", "en"), encoding="utf-8")
    return {"sick": sick, "both": both, "hostile": bad}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file."""
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.driver.quit()


Opened = Callable[..., Browser]


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Opened:
    """Opens a page by name and waits for its first chart."""

    def open_page(name: str, hash_: str = "") -> Browser:
        browser.open(pages[name], hash_)
        browser.wait(DRAWN)
        return browser

    return open_page


def draw_all(browser: Browser) -> None:
    """Scroll each chart into view until it is drawn."""
    browser.wait(
        "const left = [...document.querySelectorAll('figure[data-chart]:not([data-drawn])')];"
        "left[0]?.scrollIntoView({block: 'center', behavior: 'instant'}); return left.length === 0"
    )


@pytest.mark.parametrize("name", ["sick", "both", "hostile"])
def test_page_is_quiet_and_asks_for_nothing(opened: Opened, name: str) -> None:
    """All charts drawn: no console message, no resource, no request but the file itself."""
    browser = opened(name)
    draw_all(browser)
    assert browser.log("browser") == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    sent = [m for m in browser.log("performance") if "Network.requestWillBeSent" in m]
    assert [m for m in sent if '"url":"http' in m or '"url":"ws' in m] == []


def test_no_extreme_and_no_nan_is_lost(opened: Opened) -> None:
    """The loss chart holds the spike's peak, and a cross for the logged NaN."""
    browser = opened("sick")
    data = browser.run(
        "const chart = document.querySelector('figure[data-hero]').chart;"
        "const high = Math.max(...chart.curves[0].y.filter(Number.isFinite));"
        "return [high, chart.live.data.find(t => t.role === 'nan').x.length]"
    )
    assert isinstance(data, list)
    peak = fixture.sick_run().run.readings["loss"].drop_nans().max()
    assert data[0] == pytest.approx(peak, rel=1e-6)
    assert data[1] == fixture.CRASH - fixture.NAN_FROM + 1
    assert browser.run("return document.querySelectorAll('.hero path.point').length") != 0


def test_restart_shows_both_branches(opened: Opened) -> None:
    """The steps that were run again are a line of their own, and the restart a dashed line."""
    browser = opened("sick")
    seen = browser.run(
        "const live = document.querySelector('figure[data-hero]').chart.live;"
        "return [live.data.filter(t => t.role === 'raw').length,"
        " live.layout.shapes.filter(s => s.line.dash === 'dash').length]"
    )
    assert seen == [2, 1]


def test_language_switch_leaves_no_other_language(opened: Opened) -> None:
    """After the switch all of one language is hidden, the page's lang follows, and so do charts."""
    browser = opened("sick")
    count = "return [...document.querySelectorAll('[lang=%s]')].filter(n => n !== document.documentElement && n.offsetParent).length"  # noqa: E501
    assert browser.run(count % "zh") == 0
    assert browser.run("document.querySelector('#lang-zh').click(); return 1") == 1
    assert browser.run(count % "en") == 0
    assert browser.run(count % "zh") != 0
    assert browser.run("return document.documentElement.lang") == "zh-CN"
    browser.run("document.querySelector('#lang-en').click()")


def test_theme_switch_changes_page_and_charts(opened: Opened) -> None:
    """Dark paints the page dark and redraws the charts with light lines."""
    browser = opened("sick")
    stroke = "return document.querySelector('figure[data-hero]').chart.live.data[0].line.color"
    light = browser.run(stroke)
    browser.run("document.querySelector('#theme-dark').click()")
    assert browser.run("return getComputedStyle(document.documentElement).colorScheme") == "dark"
    browser.wait(f"return ({stroke.removeprefix('return ')}) !== '{light}'")
    browser.run("document.querySelector('#theme-auto').click()")


def test_link_to_a_finding_opens_it_and_zooms_to_its_raw_points(opened: Opened) -> None:
    """#LA102-1 unfolds the incident, and every logged step of the view is in the chart."""
    browser = opened("sick", "#LA102-1")
    seen = browser.wait(
        "const c = document.querySelector('figure[data-hero]').chart, r = c.run.view.range;"
        "if (!r) return false; const x = [...c.curves[0].x].filter(s => s >= r[0] && s <= r[1]);"
        "return [r[0], r[1], x.length, document.getElementById('LA102-1').closest('details').open]"
    )
    assert isinstance(seen, list)
    first, last, points, is_open = seen
    assert first < fixture.SPIKE < fixture.SPIKE + 29 < last
    assert points == int(last) - int(first) + 1
    assert is_open is True


def test_link_to_a_step_zooms_every_chart(opened: Opened) -> None:
    """#step=3500&theme=dark shows that step in all charts that are drawn, in the dark."""
    browser = opened("sick", "#step=3500&theme=dark")
    draw_all(browser)
    browser.wait(
        "return [...document.querySelectorAll('figure[data-drawn]')].filter(f => f.chart.visible)"
        ".every(f => { const r = f.chart.live.layout.xaxis.range; return r[0] < 3500 && r[1] > 3500"
        " && r[1] - r[0] < 1000 })"
    )
    assert browser.run("return document.querySelector('#theme-dark').checked") is True
    browser.run("localStorage.clear()")


def test_axis_scale_and_mean(opened: Opened) -> None:
    """Wall time makes a date axis, log a log axis, and a mean is drawn over the raw line."""
    browser = opened("sick")
    for name, value in (("axis", "wall"), ("scale", "log"), ("smooth", "100")):
        browser.run(f"document.querySelector('input[name={name}-0][value=\"{value}\"]').click()")
    browser.wait(
        "const live = document.querySelector('figure[data-hero]').chart.live;"
        "return live.layout.xaxis.type === 'date' && live.layout.yaxis.type === 'log'"
        " && live.data.some(t => t.role === 'smooth') && live.data.some(t => t.role === 'raw')"
    )


def test_keys_search_and_help(opened: Opened) -> None:
    """j moves, / searches the list, ? opens the help."""
    from selenium.webdriver.common.by import By

    browser = opened("sick")
    body = browser.driver.find_element(By.TAG_NAME, "body")
    body.send_keys("j")
    assert browser.run("return !!document.activeElement.closest('.incident')") is True
    body.send_keys("/")
    browser.driver.switch_to.active_element.send_keys("slow rank")
    rows = (
        "return [...document.querySelectorAll('.findings tbody tr')].filter(r => !r.hidden).length"
    )
    assert browser.wait(f"{rows} === 1") is True
    browser.run("document.activeElement.blur()")
    body.send_keys("?")
    assert browser.run("return document.getElementById('help').open") is True


def test_csv_guards_formula_cells(opened: Opened) -> None:
    """A metric or run that begins like a formula is text in the CSV."""
    browser = opened("hostile")
    text = browser.run(
        "return new Promise((done) => { const old = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then(done); return old(blob); };"
        "document.querySelector('figure.chart [data-do=csv]').click() })"
    )
    lines = str(text).splitlines()
    assert lines[0] == "run,metric,unit,segment,rank,kind,step,value"
    assert len(lines) > 100
    assert not any(cell.startswith(("=", "+", "@")) for cell in lines[1].split(","))


def test_incident_is_copied_as_markdown(opened: Opened) -> None:
    """The copy holds title, evidence, quoted lines, causes and the command, in one language."""
    browser = opened("sick")
    text = browser.run(
        "return new Promise((done) => {"
        "navigator.clipboard.writeText = (text) => { done(text); return Promise.resolve(); };"
        "document.querySelector('#incident-2 [data-do=markdown]').click() })"
    )
    lines = str(text).splitlines()
    assert lines[0].startswith("### Loss spike, led by: Gradient explosion")
    assert any(line.startswith("- **LA202-1 Gradient explosion**") for line in lines)
    assert any("train_7b.log:2601" in line and "iteration" in line for line in lines)
    assert "--finding LA202-1" in lines[-1]
    assert "梯度" not in str(text)


def test_hostile_text_does_nothing(opened: Opened) -> None:
    """Log text with markup is shown, not run, in the page and in the charts."""
    browser = opened("hostile")
    draw_all(browser)
    assert browser.run("return window.pwned === undefined") is True
    assert browser.run("return document.querySelectorAll('img[src=x]').length") == 0


@pytest.mark.parametrize("chunk", hostile.CHUNKS)
def test_five_hundred_hostile_strings(browser: Browser, tmp_path: Path, chunk: int) -> None:
    """Each as metric, setting, event, path and quoted line: nothing runs, nothing is asked for."""
    path = tmp_path / "hostile.html"
    path.write_text(render(hostile.report_of(chunk), "html", "en"), encoding="utf-8")
    browser.open(path)
    browser.wait(DRAWN)
    assert browser.run("return window.pwned === undefined") is True
    asked = [entry for entry in browser.log("performance") if "requestWillBeSent" in entry]
    assert not [entry for entry in asked if "evil.example" in entry or "http://" in entry]
    assert browser.log("browser") == []
    inserted = "img[src=x], iframe, base, form[action], textarea, a[href^=javascript]"
    assert browser.run(f"return document.querySelectorAll({inserted!r}).length") == 0


def test_page_without_scripts_is_complete(browser: Browser, pages: dict[str, Path]) -> None:
    """With scripts off: verdict, incidents, drawings and both switches are there and work."""
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(pages["sick"])
        shown = browser.driver.find_element("css selector", "h1").text
        assert shown == "2 critical incidents need attention now"
        browser.driver.find_element("css selector", "label:has(#lang-zh)").click()
        assert (
            browser.driver.find_element("css selector", "h1").text == "2 起严重事件，需要立即处理"
        )
        assert len(browser.driver.find_elements("css selector", "svg.plot")) > 10
        assert not browser.driver.find_element("css selector", ".toolbar").is_displayed()
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_page_without_scripts_has_every_section(browser: Browser, pages: dict[str, Path]) -> None:
    """With scripts off every section shows text: audit, baseline, coverage, inputs, thresholds."""
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(pages["both"])
        for name in ("incidents", "findings", "charts", "baseline", "configuration", "coverage",
                     "checks", "inputs", "details"):  # fmt: skip
            section = browser.driver.find_element("id", name)
            assert section.is_displayed()
            assert len(section.text) > 20, name
        drawn = browser.driver.find_elements("css selector", "#baseline svg.plot")
        assert len(drawn) >= 1
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_print_of_a_dark_page_is_dark_on_white(opened: Opened) -> None:
    """Paper is white and its ink dark, whatever theme the screen has."""
    browser = opened("sick", "#theme=dark")
    ink = (
        "const v = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);"
        "return [v('--bg').trim(), v('--ink').trim()]"
    )
    assert browser.run(ink) != ["#fff", "#1c1f23"]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.run(ink) == ["#fff", "#1c1f23"]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        browser.run("localStorage.clear()")


def test_finding_is_linked_from_chart_and_list(opened: Opened) -> None:
    """A mark in the chart leads to its finding, the list's link to the chart's raw points."""
    browser = opened("sick")
    browser.run(
        "const live = document.querySelector('figure[data-hero]').chart.live;"
        "const data = live.data.find(t => t.role === 'finding');"
        "live.emit('plotly_click', {points: [{data, customdata: data.customdata[0]}]})"
    )
    browser.wait("return location.hash.startsWith('#LA') && !!document.querySelector(':target')")
    browser.run("document.querySelector('.findings a[href=\"#LA102-1\"]').click()")
    shown = browser.wait(
        "const c = document.querySelector('figure[data-hero]').chart, r = c.run.view.range;"
        "return location.hash === '#LA102-1' && r && r[1] - r[0] < 1000 && [r[0], r[1]]"
    )
    assert isinstance(shown, list)
    assert shown[0] < fixture.SPIKE < shown[1]


def test_print_shows_everything(opened: Opened) -> None:
    """On paper folded parts are open and the controls are gone."""
    browser = opened("sick")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.run("dispatchEvent(new Event('beforeprint'))")
        assert browser.run("return [...document.querySelectorAll('details')].every(d => d.open)")
        assert browser.run("return document.querySelector('.bar').offsetParent") is None
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 3840])
def test_no_width_scrolls_sideways(opened: Opened, width: int) -> None:
    """From a small phone to 4K nothing is wider than the window."""
    browser = opened("both")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.run("for (const node of document.querySelectorAll('details')) node.open = true")
        wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
        assert isinstance(wide, int)
        assert wide <= 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
