"""Lines of `name value` pairs: one description a trainer, one reader for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import NO_NUMBER, Dialect, Line, Taken
from loganalyze_parsers.numbers import MAGNITUDE, NUMBER, goes_on, number, whole

Names = Mapping[str, tuple[str, float]]
_VALUE = lazy.pattern(rf"(?:np\.\w{{1,12}}\()?({NUMBER})\)?\s*([KMGBTP](?![A-Za-z]))?(%)?")
_DIGIT = lazy.pattern(r"\d")


class PairFormat(Struct, frozen=True, kw_only=True):
    """How one trainer writes a line.

    start: finds the line; its named groups are numbers of the line too, `step` is the step,
    `total` is the length of an epoch, and `epoch` (from 0) or `round` (from 1) shifts the step by
    whole epochs.
    pair: key and value of each pair behind the start. names: key -> (metric, factor); other
    numbers are kept as raw/<key>. dropped: keys whose numbers say nothing. mend: a last look.
    others: reads what loops of one's own print beside these pairs.
    """

    start: re.Pattern[str]
    pair: re.Pattern[str]
    names: Names = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    mend: Callable[[dict[str, float]], dict[str, float] | None] | None = None
    whole_line: bool = False  # pairs stand before the start too
    others: Callable[[str], dict[str, float]] | None = None


def scaled(text: str) -> float | None:
    """A number with thousands commas, a K/M/G suffix or a percent sign (kept as percent).

    >>> scaled("1,234"), scaled("11.5K"), scaled("20.36%"), scaled("n/a"), scaled("8,.03")
    (1234.0, 11500.0, 20.36, None, None)
    """
    text = text.strip().strip("'\"")
    match = _VALUE.match(text)
    if match is None or goes_on(text, match):
        return None
    value = number(match[1])
    return None if value is None else value * MAGNITUDE[match[2] or ""]


def named(pairs: Iterable[tuple[str, str]], form: PairFormat) -> dict[str, float]:
    """Metrics of the pairs, by the format's names."""
    values: dict[str, float] = {}
    for key, text in pairs:
        key = key.strip()
        if key in form.dropped:
            continue
        value = scaled(text)
        if value is None:
            continue
        name, factor = form.names.get(key, (f"raw/{key.rstrip(' :(')}", 1.0))
        values[name] = value * factor
    return values


def step_of(match: re.Match[str]) -> int | None:
    """The step that the start of a line says, counted through the epochs."""
    found = match.groupdict()
    if not found.get("step"):
        return None
    said = scaled(found["step"].replace(",", "").replace("k", "K"))
    step = None if said is None else whole(round(said, 6))
    if step is not None and found.get("total"):
        epochs = int(found.get("epoch") or 0) or int(found.get("round") or 1) - 1
        step += max(epochs, 0) * int(found["total"])
    return step


class PairReader:
    """Reads single-line records of any of a trainer's formats."""

    open = False

    def __init__(self, formats: tuple[PairFormat, ...]) -> None:
        """formats: tried in order; the first that finds its start reads the line."""
        self._formats = formats

    def feed(self, line: Line) -> Taken | None:
        """The reading of a line; None if no format finds its start."""
        for form in self._formats:
            matches = list(form.start.finditer(line.text))
            if matches:
                found = [self._reading(line, form, m, e) for m, e in _spans(matches, line.text)]
                readings = [reading for reading in found if reading is not None]
                return Taken(readings=readings) if readings else Taken(ignored=NO_NUMBER)
        return None

    def _reading(
        self, line: Line, form: PairFormat, match: re.Match[str], end: int
    ) -> Reading | None:
        begin = 0 if form.whole_line else match.end()
        values = named(form.pair.findall(line.text, begin, end), form)
        if form.others and _DIGIT.search(left := form.pair.sub(" ", line.text[begin:end])):
            for name, value in form.others(left).items():
                if not name.startswith("raw/") or name[4:] not in form.names:
                    values.setdefault(name, value)
        extra = {k: v for k, v in match.groupdict().items() if v and k not in _STEP_GROUPS}
        values.update(named(extra.items(), form))
        mended = form.mend(values) if form.mend else values
        if not mended:
            return None
        return Reading(
            step=step_of(match), ref=line.ref, values=mended, rank=line.rank, wall_s=line.wall_s
        )

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """No state to tell."""


_STEP_GROUPS = frozenset({"step", "epoch", "round", "total"})


def _spans(matches: list[re.Match[str]], text: str) -> list[tuple[re.Match[str], int]]:
    """Each start with where its pairs end: at the next start, if lines were glued."""
    ends = [*(match.start() for match in matches[1:]), len(text)]
    return list(zip(matches, ends, strict=True))


def pair_dialect(
    name: str, markers: tuple[str, ...], *formats: PairFormat, about: str = ""
) -> Dialect:
    """A dialect of single-line records."""
    return Dialect(
        name=name, markers=markers, reader=lambda: PairReader(formats), about=about, stateless=True
    )
