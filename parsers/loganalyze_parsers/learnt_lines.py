"""Templates of lines that nobody wrote a bulk way for, learnt by asking the readers.

Loops print lines that differ in nothing but their numbers. Such a line is read by the dialects as
always, and then again and again with other numbers in the same places. Where every value that
comes out is one of the numbers times a factor, each time and to the last bit, the line is a
template, and lines like it need not be read one by one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.bulk_lines import epoch_seconds
from loganalyze_parsers.lessons import Formula, Lesson
from loganalyze_parsers.numbers import BYTES, MAGNITUDE
from loganalyze_parsers.spans import Floats, free_number
from loganalyze_parsers.templates import Slot, simple_number

#: Numbers of a line; verl prints two hundred.
_MOST_NUMBERS = 400
#: What a template calls numbers that are no value, and the parts of a time.
OTHER, TIME = "other/", "time/"
#: Shares of what a value may be divided by: a number, or so many per cent.
_SHARES = (1.0, 0.01)
TIME_PARTS = ("year", "month", "day", "hour", "minute", "second")
#: Not in a word, not the tail of a number or of a version, and not its beginning.
_NUMBER = lazy.pattern(
    rb"\x1b\[[0-9;?]*[A-Za-z]"
    rb"|(?<![A-Za-z0-9_.,])(-?\d{1,14}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,2})?"
    rb"|\d{1,3}(?:,\d{3}){1,3})(?![\d]|[.,]\d)"
)
_TIMESTAMP = lazy.pattern(
    rb"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!\d)"
)
_FACTORS = tuple(
    dict.fromkeys((1.0, 1e-3, 0.01, 1e-6, 60.0, 3600.0, *MAGNITUDE.values(), *BYTES.values()))
)
#: Other forms that a number with a point or an exponent may take.
_FORMS = ("-{0}.{1}", "{0}.{1}e-0{2}", "{0}{1}", "0.{1}{0}{1}{0}", "{0}e-0{2}")
#: The same where a line is not read in all of these: for numbers of which a template fixes no form.
_NEGATIVE, _SMALL = ("-{0}.{1}", "{0}.{1}", "0.{1}"), ("{0}.{1}e-0{2}", "{0}e-0{2}", "0.000{1}")


class Said(Struct, frozen=True, kw_only=True):
    """All that the readers say of a line. owner: the index of the dialect that read it."""

    owner: int
    step: int | None
    rank: int | None
    wall_s: float | None
    values: Mapping[str, float]


#: What is said of a line by itself; None where that depends on other lines, or is more than that.
Ask = Callable[[bytes], Said | None]


class _Number(Struct, frozen=True):
    """A number of a line. digits: whether it is nothing but digits."""

    start: int
    text: str

    @property
    def digits(self) -> bool:
        return self.text.replace(",", "").isdigit()

    @property
    def groups(self) -> tuple[int, ...]:
        """Where the groups of three digits begin; none in a number without commas."""
        return tuple(m.end() for m in re.finditer(",", self.text))


def lesson_of(raw: bytes, begin: int, ask: Ask) -> Lesson | None:
    """The lesson of a line whose prefixes end at byte `begin`; None where it cannot be learnt.

    Constants: rank, owner, digits behind the second, and whether a line may have a zero in it.
    """
    said = ask(raw)
    times = _time_slots(raw[:begin], said) if said is not None else None
    if said is None or said.step is None or times is None:
        return None
    found = _NUMBER.finditer(raw, begin)
    numbers = [_Number(m.start(1), m[1].decode()) for m in found if m[1] is not None]
    if not 1 < len(numbers) <= _MOST_NUMBERS:
        return None
    for free in (True, False):
        *probes, nothing = _probes(raw, numbers, times, free=free)
        meant = _meant(probes, [ask(probe.raw) for probe in probes])
        if meant is not None:
            fraction = next((len(s.text) for s in times if s.name == TIME + "fraction"), 0)
            zeros = _meant([*probes, nothing], [ask(probe.raw) for probe in (*probes, nothing)])
            known = {
                "rank": said.rank, "owner": said.owner, "fraction": fraction,
                "zeros": int(zeros == meant),
            }  # fmt: skip
            slots = [slot for n, one in enumerate(numbers) for slot in _slots(one, n, meant, free)]
            return Lesson((*times, *slots), known, tuple(_formulas(numbers, meant)))
    return None


def _time_slots(prefix: bytes, said: Said) -> tuple[Slot, ...] | None:
    """The parts of the time in a line's prefix; None where that is not the time that was read."""
    found = list(_TIMESTAMP.finditer(prefix))
    if said.wall_s is None:
        return ()
    if len(found) != 1:
        return None
    names = (*TIME_PARTS, "fraction")
    return tuple(
        Slot(TIME + name, 1.0, found[0].start(group), found[0][group].decode(), fixed=True)
        for group, name in enumerate(names, 1)
        if found[0][group] is not None
    )


class _Probe(Struct, frozen=True):
    """A line, its numbers, and the time that its prefix tells (None without one)."""

    raw: bytes
    numbers: list[float]
    wall_s: float | None


def _probes(
    raw: bytes, numbers: Sequence[_Number], times: Sequence[Slot], *, free: bool
) -> Iterator[_Probe]:
    """The line, and the same with other numbers, with zeros last.

    free: in forms that it does not have.
    """
    made = random.Random(len(raw))
    yield _probe(raw, numbers, [one.text for one in numbers], times, [one.text for one in times])
    for number in range(4 + len(_FORMS)):
        texts = [_other(made, one, number, free=free) for one in numbers]
        yield _probe(raw, numbers, texts, times, [_other_time(made, one) for one in times])


def _other(made: random.Random, one: _Number, number: int, *, free: bool) -> str:
    """Another number in the place of one, for a probe of that number."""
    if one.groups:
        size = len(one.text.replace(",", "")) + made.randint(0, 2 - len(one.text.split(",")[0]) % 3)
        return f"{made.randint(10 ** (size - 1), 10**size - 1):,}"
    if number == 3 + len(_FORMS):  # the last
        return re.sub(r"\d", "0", one.text)
    forms = _FORMS if free and not one.digits else _forms_of(one.text)
    if number < 3 or not forms:
        longer = one.digits and one.text[0] != "0" and len(one.text) < 4 and made.random() < 0.4
        text = one.text * 2 if longer else one.text
        head, mark, exponent = re.sub("[eE]", " \\g<0>", text).partition(" ")
        return re.sub(r"\d", lambda digit: str(made.randint(1, 9)), head) + exponent + mark.strip()
    parts = (made.randint(1, 9), made.randint(10**5, 10**6 - 1), made.randint(1, 8))
    return forms[(number - 3) % len(forms)].format(*parts)


def _forms_of(text: str) -> tuple[str, ...]:
    """Forms in which a template would read a number of a line, whether it was asked for or not."""
    if text.startswith("-"):
        return _NEGATIVE
    return () if _has_a_form(text) else _SMALL


def _has_a_form(text: str) -> bool:
    """Whether a template reads numbers of just this form, to the last bit."""
    plain = re.fullmatch(r"\d\.\d+[eE][+-]\d\d", text) or free_number(text, 0).decimals >= 0
    return simple_number(text) and bool(plain)


def _other_time(made: random.Random, one: Slot) -> str:
    """Another part of a time in the place of one."""
    limits = {"year": (1990, 2037), "month": (1, 12), "day": (1, 28), "hour": (0, 23)}
    name = one.name.removeprefix(TIME)
    if name == "fraction":
        return "".join(str(made.randint(0, 9)) for _ in one.text)
    low, high = limits.get(name, (0, 59))
    return str(made.randint(low, high)).zfill(len(one.text))


def _probe(
    raw: bytes, numbers: Sequence[_Number], texts: Sequence[str],
    times: Sequence[Slot], parts: Sequence[str],
) -> _Probe:  # fmt: skip
    pieces, at = [], 0
    places = [(one.start, len(one.text)) for one in times]
    places += [(one.start, len(one.text)) for one in numbers]
    for (start, size), text in zip(places, (*parts, *texts), strict=True):
        pieces += [raw[at:start], text.encode()]
        at = start + size
    told = {one.name.removeprefix(TIME): text for one, text in zip(times, parts, strict=True)}
    wall = None
    if told:
        columns = {name: np.array([float(told[name])]) for name in TIME_PARTS}
        fraction = np.array([float(told.get("fraction", "0"))])
        wall = float(wall_seconds(columns, fraction, len(told.get("fraction", "")))[0])
    return _Probe(
        b"".join([*pieces, raw[at:]]), [float(text.replace(",", "")) for text in texts], wall
    )


def wall_seconds(times: Mapping[str, Floats], fraction: Floats, digits: int) -> Floats:
    """Seconds since the epoch of local times as if they were UTC; fraction: digits behind them."""
    whole: Floats = epoch_seconds(times) + times["second"]
    return whole + fraction / 10.0**digits


class _Meant(Struct, frozen=True):
    """What the numbers of a line are: their names and factors by their places, and formulas."""

    names: dict[int, tuple[str, float]]
    formulas: list[Formula]


def _meant(probes: Sequence[_Probe], heard: Sequence[Said | None]) -> _Meant | None:
    """What makes every value of all probes; None where one cannot be told."""
    first = heard[0]
    told = [
        one for probe, one in zip(probes, heard, strict=True)
        if one is not None and first is not None and one.wall_s == probe.wall_s
        and (one.owner, one.rank) == (first.owner, first.rank) and one.step is not None
        and one.values.keys() == first.values.keys()
    ]  # fmt: skip
    if first is None or len(told) < len(probes) or "step" in first.values:
        return None
    given = np.array([probe.numbers for probe in probes])
    made = _Meant({}, [])
    wanted = {"step": np.array([float(one.step or 0) for one in told])}
    wanted |= {name: np.array([one.values[name] for one in told]) for name in first.values}
    for name, values in wanted.items():
        found = _source(given, values, (1.0,) if name == "step" else _FACTORS)
        if found is not None and found[0] not in made.names:
            made.names[found[0]] = name, found[1]
            continue
        formula = _again(made, name, found) if found else _quotient(made, given, wanted, name)
        if formula is None or name == "step":
            return None
        made.formulas.append(formula)
    return made


def _source(given: Floats, values: Floats, factors: Sequence[float]) -> tuple[int, float] | None:
    """Which of the numbers (probes, numbers) the values (probes,) are, and times what."""
    for factor in factors:
        same = np.flatnonzero((given * factor == values[:, None]).all(axis=0))
        if len(same):
            return int(same[0]), factor
    return None


def _again(made: _Meant, name: str, found: tuple[int, float]) -> Formula | None:
    """A second name for a number."""
    known, factor = made.names[found[0]]
    if factor == found[1]:
        return Formula(name, (known,))
    return Formula(name, (known,), found[1]) if factor == 1.0 else None


def _quotient(
    made: _Meant, given: Floats, wanted: Mapping[str, Floats], name: str
) -> Formula | None:
    """A value that is another one divided by a number, or by so many per cent."""
    for share in _SHARES:
        by = given * share
        for place, (known, _) in made.names.items():
            with np.errstate(all="ignore"):
                same = (wanted[known][:, None] / by == wanted[name][:, None]).all(axis=0)
            others = np.flatnonzero(same)
            if known != "step" and len(others) and (at := int(others[0])) != place:
                made.names.setdefault(at, (f"{OTHER}{at}", 1.0))
                return Formula(name, (known,), 1.0, made.names[at][0], share)
    return None


def _slots(one: _Number, place: int, meant: _Meant, free: bool) -> list[Slot]:
    """The slot of a number, named by what it is; of one with commas a slot for each group."""
    name, factor = meant.names.get(place, (f"{OTHER}{place}", 1.0))
    if not one.groups:
        varies = not one.digits and (free or not _has_a_form(one.text))
        return [Slot(name, factor, one.start, one.text, varies=varies)]
    texts = one.text.split(",")
    starts = [one.start + at for at in (0, *one.groups)]
    return [
        Slot(f"{OTHER}{place}/{k}", 1.0, start, text, fixed=k > 0)
        for k, (start, text) in enumerate(zip(starts, texts, strict=True))
    ]


def _formulas(numbers: Sequence[_Number], meant: _Meant) -> Iterator[Formula]:
    for place, one in enumerate(numbers):
        if one.groups and place in meant.names:
            name, factor = meant.names[place]
            parts = (f"{OTHER}{place}/{k}" for k in range(len(one.groups) + 1))
            yield Formula(name, tuple(parts), factor)
    yield from meant.formulas
