"""Templates of lines and spans of numbers against float() and a regular expression."""

from __future__ import annotations

import random
import re
import struct

import numpy as np
import pytest
from loganalyze_parsers import lessons, tfevents_records
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.spans import (
    Free,
    any_number,
    free_number,
    lengths_of,
    text_values,
    values_of,
)
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.templates import Slot

_LINE = re.compile(rb"at (\d+) loss (\S+), rate=(\S+)\]")


def rows_of(texts: list[str], width: int = 48) -> np.ndarray:
    """Texts under each other, padded by zeros."""
    return np.frombuffer(b"".join(t.encode().ljust(width, b"\0") for t in texts), np.uint8).reshape(
        len(texts), width
    )


def behind(made: random.Random, decimals: int) -> str:
    """A point and so many digits; nothing without digits."""
    return f".{made.randrange(10**decimals):0{decimals}}" if decimals else ""


@pytest.mark.parametrize("decimals", [0, 1, 3, 6])
@pytest.mark.parametrize("words", [1, 2])
def test_numbers_of_any_length_are_those_of_float(decimals: int, words: int) -> None:
    """Every length that fits the words: the terminator is found, the value is float()'s."""
    made = random.Random(decimals)
    free = Free(decimals, ord(" "), words)
    most = 8 * words - 1 - (decimals + 1 if decimals else 0)
    texts = [
        str(made.randrange(10**size)) + behind(made, decimals)
        for size in range(1, most + 1)
        for _ in range(50)
    ]
    rows = rows_of([f"{text} tail 9" for text in texts])
    lengths = lengths_of(rows, 0, free)
    assert lengths.tolist() == [len(text) for text in texts]
    values, fine = values_of(rows, 0, lengths, free)
    assert fine.all()
    assert values.tolist() == [float(text) for text in texts]


@pytest.mark.parametrize(
    "text", ["", ".5", "1.", "12", "1.25", "-1.5", "1e5.5", "nan", "1 .5", "a.5", "1,2.5", "+1.5"]
)
def test_what_is_not_a_number_as_taught_is_not_taken(text: str) -> None:
    """One digit behind the point and at least one before it, or the line is not read."""
    free = free_number("10.5", ord("|"))
    rows = rows_of([f"{text}|"])
    _, fine = values_of(rows, 0, lengths_of(rows, 0, free), free)
    assert not fine.any()


def test_texts_are_read_as_float_reads_them() -> None:
    """repr() of doubles of all sizes comes back to the last bit; what is not finite is refused."""
    made = random.Random(4)
    sizes = [10.0 ** made.randrange(-300, 300) for _ in range(999)]
    numbers = [made.choice([-1, 1]) * made.random() * size for size in sizes]
    data = " ".join(map(repr, numbers)).encode() + b" nan inf 1_0 0x1"
    bounds = [(m.start(), m.end()) for m in re.finditer(rb"\S+", data)]
    starts, ends = (np.array([[b[k]] for b in bounds]) for k in (0, 1))
    values, fine = text_values(data, starts, ends)
    assert fine.tolist() == [True] * 999 + [False] * 4
    assert values[:999, 0].tolist() == numbers


def lesson_of(line: bytes) -> Lesson | None:
    """What a line of the test's own make says."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    names = ("step", "loss", "rate")
    slots = [
        Slot(name, 1.0, match.start(k), match[k].decode(), varies=name == "rate")
        for k, name in enumerate(names, 1)
    ]
    return Lesson(tuple(slots))


@pytest.mark.parametrize("rows", [7, 8192])
def test_a_template_reads_what_the_pattern_reads(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of many lengths among others: the same lines, the same numbers, whatever the chunk."""
    monkeypatch.setattr(lessons, "_ROWS", rows)
    made = random.Random(5)
    lines = [
        made.choice([b"noise 12", b"at x loss 1.50, rate=2]", b"at 7 loss 1.50, rate=2] "])
        if made.random() < 0.2
        else f"at {step} loss {made.random() * 10 ** made.randrange(4):.2f}, "
        f"rate={made.random() * 10.0 ** made.randrange(-9, 9)!r}]".encode()
        for step in range(500)
    ]
    raw = b"\n".join(lines) + b"\n"
    ends = np.array([k for k, byte in enumerate(raw) if byte == 10])
    starts = np.concatenate(([0], ends[:-1] + 1))
    reader = TemplateReader(lambda line: True, lesson_of)
    found = reader.read(Text(raw, starts, ends), np.arange(len(lines)))
    read = {
        int(line): tuple(values)
        for one in found
        for line, values in zip(one.lines, one.values.T.tolist(), strict=True)
    }
    wanted = {
        k: tuple(map(float, match.groups()))
        for k, line in enumerate(lines)
        if (match := _LINE.fullmatch(line)) and match[1].isdigit()
    }
    assert read == wanted


def test_any_number_is_left_as_text() -> None:
    """A slot of any form has no fixed decimals."""
    assert any_number(93).decimals == free_number("1e-05", 93).decimals == -1


def record(size: int) -> bytes:
    """A record's frame around zeros, checksums wrong behind the payload."""
    length = struct.pack("<Q", size)
    crc = tfevents_records.masked_of_lengths(np.frombuffer(length, "<u8"))
    return length + crc.tobytes() + bytes(size + 4)


def test_guessed_records_are_those_of_the_lengths() -> None:
    """Sizes that recur, change and stop to recur: every record's place is found."""
    made = random.Random(6)
    sizes = [20 + k % 7 for k in range(3000)] + [21 + k % 5 for k in range(3000)]
    sizes[4321] = 999
    sizes += [made.randrange(90) for _ in range(2000)] + [33] * 4000
    data = b"".join(map(record, sizes)) + record(50)[:30]
    places, behind = tfevents_records._walk(data)
    wanted = np.concatenate(([0], np.cumsum(np.array(sizes) + 16)))
    assert places.tolist() == wanted[:-1].tolist()
    assert behind == wanted[-1]
