"""Progress bars of tqdm: where a loop stands and how long it has run.

    12%|#2        | 120/1000 [01:02<07:30,  1.95it/s]
    12%|#2        | 120/1000 [1:02:03<7:30:00, 30.1s/it, lr=1e-05, loss=0.731]
    12% 120/1000 [01:02<07:30,  1.95it/s]

Without room for it (notebooks that print text) the drawing between the two `|` is left out. A bar
is redrawn many times a second into one line (behind carriage returns) and anything may be glued to
it. The printed rate is smoothed; the difference of two elapsed times is not, but it has
a resolution of one second only.

>>> bar = find_bars("  1%|#  | 12/864 [00:43<1:05:18,  4.60s/it]{'loss': 0.5}")[0]
>>> bar.done, bar.total, bar.elapsed_s, bar.described
(12, 864, 43.0, False)
>>> find_bars("Steps:   3%|- | 30/1000 [1 day, 0:00:09<?, 1.1s/it, loss=0.25]")[0].postfix
{'loss': 0.25}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.numbers import number

#: What every bar ends with; `feed` need not look at a line without one of them.
MARKERS = ("it/s", "s/it")

_CLOCK = r"(?:\d{1,9} days?, )?\d{1,9}(?::\d\d){1,2}|\?"
_BAR = lazy.pattern(
    r"(?P<percent>\d{1,3})%(?:\|[^|\r\n]{0,500}\|)?\s{0,20}"
    r"(?P<done>\d{1,15})/(?P<total>\d{1,15})\s{0,20}"
    rf"\[(?P<elapsed>{_CLOCK})<(?P<left>{_CLOCK}),"
    r"\s{0,20}(?P<rate>[\d.]{1,40}|\?)\s{0,20}(?P<unit>it/s|s/it)"
    r"(?:,\s*(?P<postfix>[^\]\r\n]{0,2000}))?(?:\]|(?P<torn>$))"
)
#: A redraw that says nothing but how far the loop is: all of it is in `_BAR` too.
_BARE = lazy.pattern(
    rb"\s{0,20}\d{1,3}%(?:\|[^|\r\n]{0,500}\|)?\s{0,20}(\d{1,15})/(\d{1,15})\s{0,20}"
    rb"\[\d{1,9}(?::\d\d){1,2}<(?:\d{1,9}(?::\d\d){1,2}|\?),"
    rb"\s{0,20}(?:[\d.]{1,40}|\?)\s{0,20}(?:it/s|s/it)\]\s{0,20}"
)
#: What stands before these is not the bar's own text: another bar, a glued dictionary.
_ENDS_OTHER = lazy.pattern(r"[|\r\n\]}]")
_TIME = lazy.pattern(r"(?:(\d{1,15}) days?, )?(\d+(?::\d\d){1,2}(?:\.\d+)?)")
_PAIR = lazy.pattern(r"([A-Za-z][\w/. -]{0,120}?)\s{0,20}[=:]\s{0,20}([^,=]{1,200}?)(?=,|$)")


class Bar(Struct, frozen=True):
    """One redraw: `done` of `total` iterations after elapsed_s seconds.

    described: a text stands before the percentage (evaluation, data preparation, downloads), as
    the Trainer's own bar never has; `about` is that text. postfix: the numbers a trainer hung onto
    the bar. bare: there is no such text, and nothing was hung onto it.
    """

    done: int
    total: int
    elapsed_s: float | None
    described: bool
    postfix: Mapping[str, float]
    start: int
    end: int
    about: str = ""
    bare: bool = False


def may_hold_bar(text: str) -> bool:
    """Whether a text is worth a search for bars."""
    return "%" in text and ("it/s" in text or "s/it" in text)


def find_bars(text: str) -> tuple[Bar, ...]:
    """All bars on a line, from left to right."""
    return _found(text) if may_hold_bar(text) else ()


@lru_cache(maxsize=8)  # several readers ask for those of one line
def _found(text: str) -> tuple[Bar, ...]:
    return tuple(_bar(match, text) for match in _BAR.finditer(text))


def is_bare(text: str, bars: Sequence[Bar]) -> bool:
    """Whether a line is one bar that says nothing but how far it is."""
    if len(bars) != 1 or not bars[0].bare:
        return False
    return not text[: bars[0].start].strip() and not text[bars[0].end :].strip()


def redrawn(pieces: Iterable[tuple[bytes, int]]) -> set[int]:
    """Which pieces of a line (text and place) a reader that waits for nothing need not see.

    Of a bare bar that moves on, redraw after redraw, only the first and the last can matter: every
    reader keeps where the bar stood last, and nothing else. Neither its start nor its end is left
    out: a first row may stand there, and a full bar may be that of something else.

    >>> bars = [b" %d%%| | %d/8 [00:0%d<?, 1.0s/it]" % (12 * n, n, n) for n in range(1, 9)]
    >>> sorted(redrawn(zip(bars, range(8))))
    [1, 2, 3, 4, 5]
    """
    found: set[int] = set()
    run: list[int] = []
    bar = (0, 0)  # total and done of the last of the run
    for piece, place in pieces:
        match = _BARE.fullmatch(piece)
        drawn = (int(match[2]), int(match[1])) if match else (0, 0)
        if not (run and drawn[0] == bar[0] and drawn[1] >= bar[1]):
            found.update(run[1:-1])
            run = []
        if 0 < drawn[1] < drawn[0]:
            run.append(place)
        bar = drawn
    found.update(run[1:-1])
    return found


def clock_seconds(text: str) -> float | None:
    """Seconds of `M:SS`, `H:MM:SS`, `2 days, H:MM:SS` or `1h 2m 3s`; None for anything else.

    >>> clock_seconds("1 day, 2:03:04"), clock_seconds("2d 0h 18m 21s"), clock_seconds("?")
    (93784.0, 173901.0, None)
    """
    text = text.strip()
    match = _TIME.fullmatch(text)
    if match:
        seconds = 0.0
        for part in match[2].split(":"):
            seconds = seconds * 60 + float(part)
        return seconds + 86400.0 * int(match[1] or 0)
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text)
    if not parts or re.sub(r"[\d.dhms\s]", "", text):
        return None
    unit = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    return sum(float(value) * unit[name] for value, name in parts)


def _bar(match: re.Match[str], text: str) -> Bar:
    before = text[max(match.start() - 120, 0) : match.start()]
    about = _ENDS_OTHER.split(before)[-1].strip()
    postfix = match["postfix"] or ""
    if match["torn"] is not None:  # its last number may be cut in the middle
        postfix = postfix.rpartition(",")[0]
    return Bar(
        done=int(match["done"]),
        total=int(match["total"]),
        elapsed_s=clock_seconds(match["elapsed"]),
        described=bool(about),
        postfix=_postfix(postfix),
        start=match.start("percent"),
        end=match.end(),
        about=about,
        bare=not about and match["postfix"] is None and match["torn"] is None,
    )


def _postfix(text: str) -> dict[str, float]:
    if not text:
        return {}
    found: dict[str, float] = {}
    for name, raw in _PAIR.findall(text):
        value = number(raw)
        if value is not None:
            found[name.strip()] = value
    return found
