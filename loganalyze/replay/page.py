"""A replay's result as one self-contained page: no script, no request, both languages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from loganalyze import __version__
from loganalyze.config import Thresholds
from loganalyze.replay import words
from loganalyze.replay.measured import gradient_norms, groups, sample_spread
from loganalyze.replay.result import HeatRow, Result

_CELL, _ROW, _NAME = 44, 16, 260
_ROWS = 160
_DECADES = 2.0  # a factor of a hundred is the full colour


def render(result: Result, rules: Thresholds, lang: str) -> str:
    """The page; `lang` is the language that it opens in."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    source = files("loganalyze.replay").joinpath("page.html").read_text(encoding="utf-8")
    losses = result.measured.samples.losses if result.measured.samples else ()
    ranked = sorted(
        (p for p in result.measured.parameters if p.gradient), key=lambda p: -p.gradient["l2"]
    )
    return environment.from_string(source).render(
        r=result, lang=lang, version=__version__, t=_spoken, b=_pair, number=words.number,
        exact=words.exact, title=words.say("replay_title", lang, step=result.step),
        headline=_sides(lambda side: words.headline(result, side)),
        same=_sides(lambda side: words.same_line(result, rules, side)),
        causes=[(j, _sides(partial(words.cause_line, j))) for j in result.judgements],
        trials=[(e, _sides(partial(words.try_line, e))) for e in result.experiments],
        forward=heat_map(result.heat, result.steps, lambda row: row.forward),
        backward=heat_map(result.heat, result.steps, lambda row: row.backward),
        groups=groups(result.measured.parameters),
        norms=gradient_norms(result.measured.parameters), spread=sample_spread(losses),
        parameters=ranked[:24],
    )  # fmt: skip


def _sides(make: Callable[[str], str]) -> Mapping[str, str]:
    return {lang: make(lang) for lang in words.LANGUAGES}


def _spoken(key: str, **values: object) -> Markup:
    return _pair(words.both(key, **values))


def _pair(text: Mapping[str, str]) -> Markup:
    """Both languages side by side; the page shows one."""
    if text["en"] == text["zh"]:
        return escape(text["en"])
    return Markup("<i lang=en>{}</i><i lang=zh>{}</i>").format(text["en"], text["zh"])


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
