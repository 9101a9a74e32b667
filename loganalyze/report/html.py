"""Assembles the page: template, styles, scripts, packed data, and the policy that fences them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files as resources
from itertools import takewhile
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from loganalyze import config
from loganalyze.model import Report
from loganalyze.report import amounts, numbers, page, story
from loganalyze.report.budget import page_points
from loganalyze.report.charts import page_data, plotly_hash, plotly_packed, script_hash
from loganalyze.report.curves import charts
from loganalyze.report.judged import judged_by
from loganalyze.report.model import RunView, views
from loganalyze.report.story import Files
from loganalyze.report.templates import environment_of
from loganalyze.report.wording import Both, Param, both, plain

TEMPLATES = (
    "page.html",
    "switches.html",
    "parts.html",
    "run.html",
    "incident.html",
    "tables.html",
    "index.html",
)
STYLES = ("base.css", "layout.css", "parts.css", "charts.css", "print.css")
SCRIPTS = (
    "unpack.js",
    "state.js",
    "axes.js",
    "plot.js",
    "marks.js",
    "links.js",
    "tools.js",
    "main.js",
)
#: The script of the page's head.
CHOICES = "js/choices.js"
#: Prefix of the wording that scripts need at hand.
_FOR_SCRIPTS = "js_"


def render_html(report: Report, lang: str, *, files: Files | None = None) -> str:
    """One page that needs nothing else: no request leaves it, no text of a log runs in it."""
    runs = views(report.diagnoses)
    share = page_points(runs) // max(1, len(runs))
    pages, packed = [], []
    with ThreadPoolExecutor(2) as beside:  # much of it leaves the interpreter to others
        for run in runs:
            drawn = beside.submit(charts, run, share)
            packed.append(beside.submit(page_data, run, drawn.result))
            pages.append(page.run_page(run, drawn.result(), files or {}, report.baseline))
        context = {**_around(report, runs, lang), "runs": pages}
        data = [one.result() for one in packed]
    context["facts"] = [safe_json(facts) for facts, _ in data]
    context["blocks"] = [Markup(text) for _, text in data]
    return environment().get_template("page.html").render(context)


def _around(report: Report, runs: tuple[RunView, ...], lang: str) -> dict[str, Any]:
    """What the template needs beside the runs."""
    script = _script()
    return {
        "report": report,
        "version": report.version,
        "lang": lang,
        "short": _short_names([run.id for run in runs]),
        "line": story.report_line(report, runs),
        "title": _title(report, [run.id for run in runs], lang),
        "policy": policy(script, plotly_hash()),
        "choices": Markup(asset(CHOICES)),
        "style": Markup("\n".join(asset(f"css/{name}") for name in STYLES)),
        "script": Markup(script),
        "words": safe_json(_script_words()),
        "plotly": Markup(plotly_packed()),
    }


def _title(report: Report, runs: list[str], lang: str) -> str:
    verdict = story.verdict_word(report.verdict).of(lang)
    return f"{verdict}: {', '.join(runs) or 'loganalyze'}"


def _short_names(ids: list[str]) -> list[str]:
    """Run ids without a long beginning that they all share: narrow places tell them apart."""
    columns = zip(*ids, strict=False) if len(ids) > 1 else ()
    shared = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, columns))
    return [f"…{item[shared:]}" if 10 < shared < len(item) else item for item in ids]


def policy(script: str, *hashes: str) -> str:
    """Nothing may be fetched; only the page's own scripts may run; styles are the page's own."""
    allowed = " ".join((script_hash(asset(CHOICES)), script_hash(script), *hashes))
    return (
        f"default-src 'none'; script-src {allowed}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@cache
def asset(name: str) -> str:
    """A packaged asset as text."""
    path = resources("loganalyze.report").joinpath("assets", *name.split("/"))
    return path.read_text(encoding="utf-8")


def _head() -> str:
    """The head that all pages share."""
    return resources("loganalyze").joinpath("head.html").read_text(encoding="utf-8")


@cache
def _script() -> str:
    """All scripts as one: they share one module's scope."""
    return "\n".join(asset(f"js/{name}") for name in SCRIPTS)


def _script_words() -> dict[str, list[str]]:
    return {
        key.removeprefix(_FOR_SCRIPTS): [entry["en"], entry["zh"]]
        for key, entry in sorted(config.strings().items())
        if key.startswith(_FOR_SCRIPTS)
    }


def safe_json(value: Any) -> Markup:
    """JSON that is inert inside a script element, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text.encode("utf-8", "backslashreplace").decode("utf-8"))


@cache
def environment() -> Environment:
    """The templates with what all of them may call."""
    sources = {"head.html": _head(), **{name: asset(name) for name in TEMPLATES}}
    made = environment_of(sources, _cleaned)
    made.globals.update(
        t=_spoken, b=_pair, label=_label, both=both, plain=plain, number=numbers.number,
        grouped=numbers.grouped, size=numbers.size, span=numbers.steps, clock=numbers.clock,
        story=story, judged_by=judged_by, steps_text=amounts.span,
    )  # fmt: skip
    return made


def _spoken(key: str, **params: Param) -> Markup:
    """A key's wording in both languages; the page shows one of them."""
    return _pair(both(key, **params))


def _pair(text: Both | str) -> Markup:
    """Both languages side by side, or once where they say the same."""
    if not isinstance(text, Both):
        return escape(_shown(text))
    if text.same:
        return escape(_shown(text.en))
    return Markup("<i lang=en>{}</i><i lang=zh>{}</i>").format(
        _kept_together(_shown(text.en)), _kept_together(_shown(text.zh))
    )


def _kept_together(text: str) -> str:
    """A number and its per cent sign are never parted by the end of a line."""
    return text.replace(" %", "\u00a0%")


def _cleaned(value: Any) -> Any:
    """What a template prints: text of a log without control characters; markup as it is."""
    return _shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _shown(text: str) -> str:
    """Control and direction characters would hide or reorder what is read: shown as ·."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() or ch == "\n" else "·" for ch in text)


def _label(key: str, name: str = "aria-label", **params: Param) -> Markup:
    """An attribute in both languages: scripts swap it with the language."""
    text = both(key, **params)
    return Markup('{0}="{1}" data-{0}-en="{1}" data-{0}-zh="{2}"').format(
        Markup(name), _shown(text.en), _shown(text.zh)
    )
