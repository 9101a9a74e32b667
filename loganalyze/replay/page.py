"""A replay's result as a self-contained page, and as a section of the run's report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from loganalyze import __version__
from loganalyze.config import Thresholds
from loganalyze.replay import formats, words
from loganalyze.replay.measured import gradient_norms, groups, sample_spread
from loganalyze.replay.result import HeatRow, Result

_CELL, _ROW, _NAME = 44, 16, 260
_ROWS = 160
_DECADES = 2.0  # a factor of a hundred is the full colour
_SHOWN = 24  # rows of a table
_BEGIN, _END = "<!-- replay {} -->", "<!-- end of replay {} -->"


def render(result: Result, rules: Thresholds, lang: str) -> str:
    """The page; `lang` is the language that it opens in."""
    title = words.say("replay_title", lang, step=result.step)
    return _filled("page.html", result, rules, lang=lang, title=title, version=__version__)


def into_report(report: str, result: Result, rules: Thresholds) -> str:
    """A report's page with the replay as its last section, in place of an older one of the finding.

    The page's own language and colour switches work on it; it brings no script.
    """
    if "</main>" not in report:
        return report
    name = escape(result.finding or str(result.step))
    begin, end = _BEGIN.format(name), _END.format(name)
    if begin in report and end in report:
        report = report[: report.index(begin)] + report[report.index(end) + len(end) :].lstrip("\n")
    section = _filled("section.html", result, rules)
    before, main, after = report.rpartition("</main>")
    return f"{before}{begin}\n{section}\n{end}\n{main}{after}"


def _filled(name: str, result: Result, rules: Thresholds, **given: str) -> str:
    losses = result.measured.samples.losses if result.measured.samples else ()
    ranked = sorted(
        (p for p in result.measured.parameters if p.gradient), key=lambda p: -p.gradient["l2"]
    )
    costly = sorted(result.measured.layers, key=lambda x: -x.cost.get("kept_bytes", 0.0))
    return _environment().get_template(name).render(
        r=result, found=any(j.state == "supported" for j in result.judgements),
        headline=_sides(lambda side: words.headline(result, side)),
        same=_sides(lambda side: words.same_line(result, rules, side)),
        causes=[(j, _sides(partial(words.cause_line, j))) for j in result.judgements],
        trials=[(e, _sides(partial(words.try_line, e))) for e in result.experiments],
        forward=heat_map(result.heat, result.steps, lambda row: row.forward),
        backward=heat_map(result.heat, result.steps, lambda row: row.backward),
        groups=groups(result.measured.parameters),
        norms=gradient_norms(result.measured.parameters), spread=sample_spread(losses),
        parameters=ranked[:_SHOWN], formats=formats.worst_first(result.formats)[:_SHOWN],
        attention=[x for x in result.measured.layers if x.attention][:_SHOWN],
        costs=[x for x in costly if x.cost][:_SHOWN], low=rules.value("replay.update_low"),
        high=rules.value("replay.update_high"),
        positions=_curve(result.measured.samples.positions) if result.measured.samples else "",
        **given,
    )  # fmt: skip


def _environment() -> Environment:
    places = {"head.html": "loganalyze", "page.html": "loganalyze.replay",
              "section.html": "loganalyze.replay"}  # fmt: skip
    texts = {name: files(place).joinpath(name).read_text("utf-8")
             for name, place in places.items()}  # fmt: skip
    made = Environment(loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True)  # fmt: skip
    made.globals.update(t=_spoken, b=_pair, number=words.number, exact=words.exact, size=words.size)
    return made


def _sides(make: Callable[[str], str]) -> Mapping[str, str]:
    return {lang: make(lang) for lang in words.LANGUAGES}


def _spoken(key: str, **values: object) -> Markup:
    return _pair(words.both(key, **values))


def _pair(text: Mapping[str, str]) -> Markup:
    """Both languages side by side; the page shows one."""
    if text["en"] == text["zh"]:
        return escape(text["en"])
    return Markup("<i lang=en>{}</i><i lang=zh>{}</i>").format(text["en"], text["zh"])


def _curve(values: Sequence[float]) -> Markup:
    """Values from left to right as a line, with the first, last and largest beside it; SVG."""
    finite = [(i, v) for i, v in enumerate(values) if math.isfinite(v)]
    if len(finite) < 2:
        return Markup("")
    high, last = max(v for _, v in finite), max(1, len(values) - 1)
    points = [f"{60 + 560 * i / last:.1f},{84 - 72 * v / max(high, 1e-30):.1f}" for i, v in finite]
    return Markup(
        f'<svg viewBox="0 0 700 104" width="700" height="104" role="img">'
        f'<text x="54" y="16" text-anchor="end">{words.number(high)}</text>'
        f'<text x="54" y="88" text-anchor="end">0</text><path d="M{" L".join(points)}"/>'
        f'<text x="60" y="100">0</text><text x="620" y="100" text-anchor="end">{last}</text></svg>'
    )


def heat_map(
    rows: Sequence[HeatRow], steps: Sequence[int], pick: Callable[[HeatRow], Sequence[float]]
) -> Markup:
    """Layers down, steps across, colour by the logarithm of the ratio to the first step; SVG."""
    shown = [row for row in rows if any(not math.isnan(v) for v in pick(row))][:_ROWS]
    width = _NAME + _CELL * len(steps) + 90
    height = _ROW * (len(shown) + 1) + 6
    parts = [f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">']
    for column, step in enumerate(steps):
        x = _NAME + _CELL * column + _CELL / 2
        parts.append(f'<text x="{x:g}" y="12" text-anchor="middle">{step}</text>')
    for line, row in enumerate(shown, 1):
        parts += _heat_row(row.name, pick(row), line * _ROW + 2)
    return Markup("".join([*parts, "</svg>"]))


def _heat_row(name: str, values: Sequence[float], y: int) -> list[str]:
    base = next((v for v in values if math.isfinite(v) and v > 0), math.nan)
    parts = [f'<text x="{_NAME - 6}" y="{y + 12}" text-anchor="end">{escape(name[-38:])}</text>']
    for column, value in enumerate(values):
        title = escape(f"{name}: {words.number(value)}")
        parts.append(
            f'<rect x="{_NAME + _CELL * column}" y="{y}" width="{_CELL - 1}" height="{_ROW - 1}" '
            f'fill="{colour(value, base)}"><title>{title}</title></rect>'
        )
    x = _NAME + _CELL * len(values) + 6
    parts.append(f'<text x="{x}" y="{y + 12}">{words.number(values[-1])}</text>')
    return parts


def colour(value: float, base: float) -> str:
    """Grey for as before, red for larger, blue for smaller, black for not finite."""
    if math.isnan(value):
        return "#8884"
    if math.isinf(value):
        return "#000"
    if not base > 0 or value <= 0:
        return "#8888"
    part = max(-1.0, min(1.0, math.log10(value / base) / _DECADES))
    strong = (185, 56, 11) if part > 0 else (0, 114, 178)
    mixed = (round(222 + (channel - 222) * abs(part)) for channel in strong)
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
