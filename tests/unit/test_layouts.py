"""Numbers read by the column are the numbers that float() reads."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.templates import Slot, simple_number

_NUMBER = re.compile(r"(?<=[ab]=)[^ ]*")


def teach(raw: bytes) -> Lesson | None:
    """Numbers behind `a=` and `b=`; no lesson if one is not simple."""
    text = raw.decode("latin1")
    found = list(_NUMBER.finditer(text))
    if not found or not all(simple_number(match.group()) for match in found):
        return None
    slots = [Slot(text[m.start() - 2], 1.0, m.start(), m.group()) for m in found]
    return Lesson(tuple(slots), {"rank": len(found)})


def read(lines: list[bytes], reader: TemplateReader) -> dict[int, dict[str, float]]:
    """Line number to the values that were read of it."""
    text = b"".join(line + b"\n" for line in lines)
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    found = reader.read(Text(text, starts, ends), np.arange(len(lines)))
    if not found:
        return {}
    rows = Rows(found)
    columns = {name: (rows.column(name), rows.held(name)) for name in rows.names}
    return {
        int(line): {name: float(v[k]) for name, (v, held) in columns.items() if held[k]}
        for k, line in enumerate(rows.lines)
    }


def expected(line: bytes) -> dict[str, float]:
    """The same, one number after the other."""
    text = line.decode("latin1")
    return {text[m.start() - 2]: float(m.group()) for m in _NUMBER.finditer(text)}


numbers = st.one_of(
    st.integers(0, 10**15 - 1).map(str),
    st.floats(0, 10**8).map(lambda v: f"{v:.6f}"),
    st.floats(1e-12, 1e12).map(lambda v: f"{v:.6E}"),
    st.floats(0, 99).map(lambda v: f"{v:.3f}"),
    st.sampled_from(["nan", "-1.5", "1.5E+99", "1,000", "", "7", "0.1", "2.0e-05", "9E+22"]),
)  # fmt: skip
lines = st.lists(st.tuples(numbers, numbers, st.sampled_from(["", "x ", "|"])), max_size=30)


@settings(max_examples=150, deadline=None)
@given(lines)
def test_reads_what_float_reads(parts: list[tuple[str, str, str]]) -> None:
    """Whatever is read is float()'s number to the last bit; whatever is simple is read."""
    made = [f"{p}a={a} iteration b={b} ".encode() for a, b, p in parts]
    got = read(made, TemplateReader(lambda line: b"iteration" in line, teach))
    for number, line in enumerate(made):
        if number in got:
            assert got[number] == expected(line)
        exponents = re.findall(rb"[eE][+-]?(\d+)", line)
        if teach(line) is not None and all(int(exponent) < 10 for exponent in exponents):
            assert number in got


@pytest.mark.parametrize("odd", [b"12x4.5678", b"1234_.678", b"/2345.678", b"1234:.567"])
def test_a_byte_that_is_no_digit_is_not_read(odd: bytes) -> None:
    """Neighbours of the digits in the code table are no digits."""
    reader = TemplateReader(lambda line: True, teach)
    assert read([b"a=12345.678 iteration"] * 3, reader).keys() == {0, 1, 2}
    assert read([b"a=" + odd.ljust(9, b"0") + b" iteration"], reader) == {}


def test_many_rows_and_layouts() -> None:
    """More rows than are read at once, of several layouts of one length: all, in order."""
    made = [f"a={k % 1000:04d} {'xyz'[k % 3]} b={k:08d}".encode() for k in range(7000)]
    got = read(made, TemplateReader(lambda line: True, teach))
    assert list(got) == list(range(7000))
    assert all(values == {"a": k % 1000, "b": k} for k, values in got.items())


def test_layouts_that_come_late_are_learnt() -> None:
    """A layout that stands behind thousands of lines of others, and behind some that teach
    nothing, is learnt as well; none is read twice."""
    made = [f"a={k:08d} x".encode() for k in range(5000)]
    made[2100:2110] = [b"no number"] * 10
    made[3000] = b"b=0000.5 late"
    made[4500:] = [f"a={k:06d} b=1.5 end".encode() for k in range(500)]
    got = read(made, TemplateReader(lambda line: True, teach))
    assert list(got) == [k for k in range(5000) if not 2100 <= k < 2110]
    assert all(got[k] == expected(made[k]) for k in got)
