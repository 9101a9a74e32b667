"""Static charts as SVG text: what a reader without scripts, and a printer, sees."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape
from msgspec import Struct

from loganalyze.report import numbers
from loganalyze.report.buckets import extremes
from loganalyze.report.curves import Curve
from loganalyze.running import median
from loganalyze.tracks import FloatArray, IntArray

LEFT, RIGHT, TOP, BOTTOM = 64, 10, 10, 22
COLUMNS = 110  # buckets of a curve
LONG_SHADE = 0.35  # share of the width
MOST_MARKS = 40
_WIDEST = 9  # characters of a label left of the curves
#: The axis ends here: the span of two larger doubles is none.
_MOST = 1e300


class Shade(Struct, frozen=True, kw_only=True):
    """A stretch of steps to shade, by severity."""

    first: int
    last: int
    severity: str


class Frame(Struct, frozen=True, kw_only=True):
    """The mapping from steps and values to a drawing of width x height."""

    width: int
    height: int
    first: int
    last: int
    low: float
    high: float

    def x(self, steps: IntArray) -> FloatArray:
        """Steps to pixels."""
        span = max(1, self.last - self.first)
        return LEFT + (steps - self.first) / span * (self.width - LEFT - RIGHT)

    def y(self, values: FloatArray) -> FloatArray:
        """Values to pixels, upside down."""
        span = (self.high - self.low) or 1.0
        return TOP + (self.high - values) / span * (self.height - TOP - BOTTOM)


@np.errstate(over="ignore", invalid="ignore")  # a log may print 1e308
def chart(
    curves: Sequence[Curve],
    unit: str,
    *,
    shades: Sequence[Shade] = (),
    restarts: Sequence[int] = (),
    window: tuple[int, int] | None = None,
    size: tuple[int, int] = (440, 180),
) -> Markup | None:
    """One metric over its steps (or a window of them); None if it has no finite value there."""
    drawn = [_cut(curve, window) for curve in curves]
    drawn = [item for item in drawn if len(item[1])]
    frame = _frame(drawn, window, size)
    if frame is None:
        return None
    parts = [_shade(frame, shade) for shade in shades]
    parts += _grid(frame, unit)
    parts += [_restart(frame, step) for step in restarts if frame.first <= step <= frame.last]
    several = len({curve.rank for curve, _, _ in drawn}) > 1
    parts += [path for item in drawn for path in _paths(frame, item, several)]
    parts += [_marks(frame, item) for item in drawn]
    head = f'<svg class="plot" viewBox="0 0 {frame.width} {frame.height}" role="img">'
    return Markup(head + "".join(parts) + "</svg>")


_Cut = tuple[Curve, IntArray, FloatArray]


def _cut(curve: Curve, window: tuple[int, int] | None) -> _Cut:
    if window is None:
        return curve, curve.steps, curve.values
    keep = (curve.steps >= window[0]) & (curve.steps <= window[1])
    return curve, curve.steps[keep], curve.values[keep]


def _frame(
    drawn: list[_Cut], window: tuple[int, int] | None, size: tuple[int, int]
) -> Frame | None:
    finite = [values[np.isfinite(values)] for _, _, values in drawn]
    known = np.concatenate(finite) if finite else np.empty(0)
    if not len(known):
        return None
    low, high = max(float(known.min()), -_MOST), min(float(known.max()), _MOST)
    pad = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    first = window[0] if window else min(int(steps[0]) for _, steps, _ in drawn)
    last = window[1] if window else max(int(steps[-1]) for _, steps, _ in drawn)
    return Frame(width=size[0], height=size[1], first=first, last=last,
                 low=low - pad, high=high + pad)  # fmt: skip


def round_values(low: float, high: float, unit: str = "", most: int = 4) -> FloatArray:
    """At most `most` values in [low, high] that are easy to read: multiples of 1, 2 or 5 tens.

    Bytes are counted in the binary unit that fits `high`, so that they are round there.
    """
    largest = max(abs(low), abs(high))
    base = 1024.0 ** min(5, int(np.log2(largest) / 10)) if unit == "B" and largest >= 1 else 1.0
    low, high = low / base, high / base
    if not high > low:
        return np.array([low * base])
    power = 10.0 ** np.floor(np.log10((high - low) / most))
    for width in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        first, last = np.ceil(low / width - 1e-9), np.floor(high / width + 1e-9)
        if last - first < most:
            break
    places: FloatArray = np.arange(first, last + 1) * width * base + 0.0  # never -0
    return places


def _grid(frame: Frame, unit: str) -> list[str]:
    rows = round_values(frame.low, frame.high, unit)
    parts = []
    labels = map(escape, tick_labels(rows.tolist(), unit))
    for label, y in zip(labels, frame.y(rows).tolist(), strict=True):
        parts.append(f'<path class="g" d="M{LEFT} {y:.0f}H{frame.width - RIGHT}"/>')
        parts.append(
            f'<text class="t" x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{label}</text>'
        )
    base = frame.height - 6
    middle = (frame.first + frame.last) // 2
    ends = ((frame.first, "start"), (middle, "middle"), (frame.last, "end"))
    for step, anchor in ends[:1] if frame.first == frame.last else ends:
        x = float(frame.x(np.array([step]))[0])
        parts.append(f'<text class="t" x="{x:.0f}" y="{base}" text-anchor="{anchor}">{step}</text>')
    return parts


def tick_labels(values: Sequence[float], unit: str) -> list[str]:
    """The labels of an axis: three digits, or as many as tell them apart, where there is room.

    >>> tick_labels([1.0, 1.005, 1.01], ""), tick_labels([0.0, 5e8, 1e9], "")
    (['1', '1.005', '1.01'], ['0', '5e8', '1e9'])
    """
    for digits in range(3, _WIDEST):
        labels = [_tick(value, unit, digits) for value in values]
        if len(set(labels)) == len(labels) and max(map(len, labels), default=0) <= _WIDEST:
            return labels
    return [_tick(value, unit, 3) for value in values]


def _tick(value: float, unit: str, digits: int) -> str:
    if unit == "B":
        return numbers.size(value)
    if unit == "share":
        return f"{100 * value:.{digits}g}%"
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-")


def _shade(frame: Frame, shade: Shade) -> str:
    if shade.last < frame.first or shade.first > frame.last:
        return ""
    a, b = frame.x(np.clip(np.array([shade.first, shade.last]), frame.first, frame.last)).tolist()
    width = max(3.0, b - a)
    height = frame.height - TOP - BOTTOM
    if width > LONG_SHADE * (frame.width - LEFT - RIGHT):
        height = 4  # a strip: shading most of a chart would say nothing
    return (f'<rect class="s {shade.severity}" x="{a - (1.5 if width == 3.0 else 0):.1f}" y="{TOP}"'
            f' width="{width:.1f}" height="{height}"/>')  # fmt: skip


def _restart(frame: Frame, step: int) -> str:
    x = float(frame.x(np.array([step]))[0])
    return f'<path class="r" d="M{x:.1f} {TOP}V{frame.height - BOTTOM}"/>'


def _paths(frame: Frame, item: _Cut, several: bool) -> list[str]:
    """The line of a curve; the part that was run again later as a line of its own.

    several: whether ranks must be told apart by colour.
    """
    curve, steps, values = item
    cut = len(steps) if curve.again_from is None else int(np.searchsorted(steps, curve.again_from))
    rank = curve.rank % 8 if several and curve.rank is not None else 0
    parts = ((steps[:cut], values[:cut], ""), (steps[cut:], values[cut:], " old"))
    return [_path(frame, curve, a, v, f"c{rank}{extra}") for a, v, extra in parts if len(a)]


def _path(frame: Frame, curve: Curve, steps: IntArray, values: FloatArray, style: str) -> str:
    share = (int(steps[-1]) - int(steps[0])) / max(1, frame.last - frame.first)
    columns = max(2, round(COLUMNS * share))
    whole = not len(curve.gaps) and bool(np.isfinite(values).all())
    many = len(steps) > 4 * columns and whole
    if many and (shape := _envelope(frame, steps, values, columns)):
        return f'<path class="c {style} {curve.role} range" d="{shape}"/>'
    index = extremes(values, columns)
    breaks = set(steps[-1:].tolist()) | set(curve.steps[curve.gaps].tolist())
    xs, ys = frame.x(steps[index]).tolist(), frame.y(values[index]).tolist()
    commands, pen = [], "M"
    for x, y, step in zip(xs, ys, steps[index].tolist(), strict=True):
        if not math.isfinite(y):
            pen = "M"
            continue
        commands.append(f"{pen}{x:.0f} {y:.1f}")
        pen = "M" if step in breaks else "L" if pen == "M" else " "
    shape = "".join(commands)
    if len(commands) == 1:
        shape, style = f"{shape}h0", f"{style} dot"  # one point: a line of no length, round ends
    return f'<path class="c {style} {curve.role}" d="{shape}"/>' if shape else ""


def _envelope(frame: Frame, steps: IntArray, values: FloatArray, columns: int) -> str:
    """The outline of what a noisy curve covers, where a line between extremes would show a saw.

    Empty for a smooth curve: there one column's range is what it moves to the next.
    """
    edges = np.linspace(steps[0], steps[-1], columns, endpoint=False)
    firsts = np.unique(np.searchsorted(steps, edges))
    high, low = np.maximum.reduceat(values, firsts), np.minimum.reduceat(values, firsts)
    moves = np.abs(np.diff(high + low)) / 2
    if not len(moves) or median(high - low) < 3 * median(moves):
        return ""
    ends = np.append(firsts[1:], len(steps)) - 1
    at = (steps[firsts] + steps[ends]) // 2
    at[0], at[-1] = steps[0], steps[-1]
    xs, highs, lows = frame.x(at).tolist(), frame.y(high).tolist(), frame.y(low).tolist()
    points = zip((*xs, *xs[::-1]), (*highs, *lows[::-1]), strict=True)
    return f"M{' '.join(f'{x:.0f} {y:.1f}' for x, y in points)}Z"


def _marks(frame: Frame, item: _Cut) -> str:
    """NaN and Inf as crosses at the foot of the chart."""
    _, steps, values = item
    places = steps[~np.isfinite(values)]
    if not len(places):
        return ""
    xs = np.unique(np.round(frame.x(places), 0))
    xs = xs[np.linspace(0, len(xs) - 1, min(MOST_MARKS, len(xs))).astype(int)]
    y = frame.height - BOTTOM - 6
    shape = "".join(f"M{x:.0f} {y - 4}l8 8m0-8l-8 8" for x in (xs - 4).tolist())
    return f'<path class="n" d="{shape}"><title>NaN</title></path>'
