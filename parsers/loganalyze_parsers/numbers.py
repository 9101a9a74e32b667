"""Numbers as trainers print them, and their units in SI."""

from __future__ import annotations

import math
import re

from loganalyze import lazy

#: A number in running text: sign, thousands commas, exponent, or one of the non-finite words.
NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|"
    r"\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"
)
_NUMBER = lazy.pattern(NUMBER)
_GOES_ON = lazy.pattern(r"[,.]{1,9}\d")  # what was found is not the whole: 4,03 or 1.2.3 or 8,.01
_MISSING = frozenset({"", "-", "none", "null", "n/a", "[n/a]", "no log", "[not supported]"})

_MOST_DIGITS = 1000  # Python refuses some thousands

BYTES = {
    "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3, "tib": 1024.0**4,
}  # fmt: skip
MAGNITUDE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}


def number(text: str) -> float | None:
    """The number that is the whole of `text` (quotes and commas allowed); None if there is none.

    >>> number("1,234.5"), number("'1.425e+04'"), number("N/A")
    (1234.5, 14250.0, None)
    >>> number("-nan")
    nan
    """
    text = text.strip().strip("'\"")
    if text.lower() in _MISSING:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    if "," in text and _NUMBER.fullmatch(text):
        return float(text.replace(",", ""))
    return math.nan if text.lower() in ("-nan", "+nan", "nan") else None


def goes_on(text: str, match: re.Match[str]) -> bool:
    """Whether what matched is only the beginning of a number, as 4 of `4,03` or 1.2 of `1.2.3`."""
    return _GOES_ON.match(text, match.end()) is not None


def is_digits(text: str) -> bool:
    """Whether a text is digits 0 to 9 that int() reads (str.isdigit() takes more: ² and others).

    >>> is_digits("0042"), is_digits("²"), is_digits("٤"), is_digits(""), is_digits("9" * 5000)
    (True, False, False, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS


def whole(value: float | None) -> int | None:
    """The integer that a number is; None for a fraction, NaN, or more than a double holds.

    >>> whole(12.0), whole(1.5), whole(float("nan")), whole(1e30)
    (12, None, None, None)
    """
    if value is None or not abs(value) < 2.0**53 or value != int(value):
        return None
    return int(value)


def leading_number(text: str) -> tuple[float, str] | None:
    """The number at the start of `text` and what follows it, e.g. a unit; None without one.

    >>> leading_number(" 9.46GiB"), leading_number("4,03")
    ((9.46, 'GiB'), None)
    """
    text = text.strip().strip("'\"")
    match = _NUMBER.match(text)
    if match is None or goes_on(text, match):
        return None
    value = float(match.group().replace(",", ""))
    return value, text[match.end() :].strip()
