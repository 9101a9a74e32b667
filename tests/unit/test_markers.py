"""The index of markers finds what a plain search finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from loganalyze_parsers import launcher
from loganalyze_parsers.api import Dialect
from loganalyze_parsers.markers import MarkerIndex

_READER = launcher.LauncherReader
DIALECTS = (
    Dialect(name="a", markers=("ab", "abc", "é"), reader=_READER),
    Dialect(name="b", markers=("bc", "c"), reader=_READER),
    Dialect(name="c", markers=("ab",), reader=_READER),
)


@given(st.lists(st.text(alphabet="abcé \x1b", max_size=8), max_size=20))
def test_finds_every_marker(lines: list[str]) -> None:
    """Bit n of a line says whether dialect n has a marker in it; ANSI codes make all bits."""
    expected = [
        sum(
            1 << index
            for index, dialect in enumerate(DIALECTS)
            if "\x1b" in line or any(marker in line for marker in dialect.markers)
        )
        for line in lines
    ]
    assert MarkerIndex(DIALECTS).wanted([line.encode() for line in lines]) == expected


def test_no_lines_and_broken_utf8() -> None:
    """An empty block and bytes that are no UTF-8 are fine."""
    index = MarkerIndex(DIALECTS)
    assert index.wanted([]) == []
    assert index.wanted([b"\xff\xfe ab"]) == [0b101]
