"""Whether bytes of a log hold an observed value: as printed, in another unit, or as text."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator

from loganalyze_parsers.commas import plain
from loganalyze_parsers.numbers import NUMBER

#: What a printed number may be multiplied with on its way to SI units: powers of ten (ms, %, k, M,
#: GB), of 1024 (KiB ... PiB), minutes, hours, and ln 2 (losses printed in base 2).
FACTORS = tuple(
    factor
    for base in (
        *(10.0**k for k in (0, 1, 2, 3, 6, 9, 12, 15)), *(1024.0**k for k in range(1, 6)),
        60.0, 3600.0, math.log(2),
    )
    for factor in (base, 1 / base)
)  # fmt: skip
#: Single precision keeps seven digits; what was printed is read back exactly.
_TOLERANCE = 1e-6
_NUMBER = re.compile(NUMBER)
_PLAIN = re.compile(r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_CLOCK = re.compile(r"\b(?:(\d+):)?(\d{1,3}):(\d{2})(\.\d+)?\b")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MASK = re.compile(r"\[masked:\w+\]")
_LOSS_FIELD = re.compile(r"\bloss(?: value)?\s*[:=]", re.IGNORECASE)
_NONFINITE = {"nan": r"nan", "infinity": r"\binf", "-infinity": r"-\s*inf"}
_WORDS = re.compile(r"[\w./-]+")


def holds(data: bytes, value: float | str | None, *, binary: bool = False) -> bool:
    """Whether the value can be found again in the bytes. None, nothing to find, always can.

    NaN: the word, or an iteration line whose loss is left out (as Megatron does when it is NaN).
    """
    if value is None:
        return True
    text = _ANSI.sub("", data.decode("utf-8", "replace"))
    texts = dict.fromkeys((text, plain(text)[0]))
    return any(_says_value(said, data, value, binary) for said in texts)


def _says_value(text: str, data: bytes, value: float | str, binary: bool) -> bool:
    if isinstance(value, str):
        if value.lower() in _NONFINITE:
            return _nonfinite(text, value.lower()) or (binary and _in_binary(data, float(value)))
        return _says(text, value)
    return any(_equal(value, n) for n in _numbers(text)) or (binary and _in_binary(data, value))


def _nonfinite(text: str, name: str) -> bool:
    if re.search(_NONFINITE[name], text, re.IGNORECASE):
        return True
    return name == "nan" and "iteration" in text and not _LOSS_FIELD.search(_without_scale(text))


def _without_scale(text: str) -> str:
    return re.sub(r"loss scale\s*[:=]", "", text, flags=re.IGNORECASE)


def _numbers(text: str) -> Iterator[float]:
    """Every number in the text, and clock times (1:02:03) in seconds."""
    for pattern in (_NUMBER, _PLAIN):
        for match in pattern.finditer(text):
            yield float(match.group().replace(",", ""))
    for hours, minutes, seconds, rest in _CLOCK.findall(text):
        yield int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + float(rest or 0)


def _equal(value: float, printed: float) -> bool:
    if not math.isfinite(printed):
        return False
    if value == 0 or printed == 0:
        return value == printed
    ratio = abs(value / printed)
    per = abs(value * printed)  # it/s for s/it
    return any(_close(ratio, f) or _close(per, f) for f in FACTORS)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE * other


def _in_binary(data: bytes, value: float) -> bool:
    """Whether the value's IEEE bytes, of either precision and order, stand in the record."""
    if math.isnan(value):
        return any(math.isnan(number) for number in _floats(data))
    shapes = (order + size for order in "<>" for size in "fd")
    for shape in shapes:
        try:
            if struct.pack(shape, value) in data:
                return True
        except OverflowError:
            continue
    return False


def _floats(data: bytes) -> Iterator[float]:
    for size, shape in ((4, "<f"), (8, "<d")):
        for at in range(len(data) - size + 1):
            yield struct.unpack_from(shape, data, at)[0]


def _says(text: str, value: str) -> bool:
    """Whether the text holds the words: as they stand, or each name and number of a setting."""
    plain = " ".join(text.split())
    pieces = [" ".join(piece.split()) for piece in _MASK.split(value)]
    if all(piece[:120] in plain for piece in pieces):
        return True
    _, sign, setting = value.partition(" = ")
    return bool(sign) and _setting(text, setting.strip())


def _setting(text: str, setting: str) -> bool:
    try:
        wanted = float(setting)
    except ValueError:
        return setting.lower() in {word.lower() for word in _WORDS.findall(text)}
    return any(_equal(wanted, n) for n in _numbers(text))
