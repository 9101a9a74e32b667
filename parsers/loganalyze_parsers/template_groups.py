"""Several templates that look at the same lines: each line is read by the first that fits it.

By the kernel all of them in one go, into the same columns; else by numpy, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from loganalyze_parsers.digits import Ints
from loganalyze_parsers.kernel import MOST_TEMPLATES, Programs, Seen, kernel, programs_of
from loganalyze_parsers.lessons import Found, Template, Text, numpy_found

#: Columns that a group may have for each that its lines have: the rest of a row is left empty.
_EMPTY = 2


class Group(Struct, frozen=True):
    """Templates, the names of the numbers that they read, and the form that the kernel reads by."""

    templates: tuple[Template, ...]
    names: tuple[str, ...]
    programs: Programs


def grouped(templates: Sequence[Template]) -> Iterator[Group]:
    """The templates in groups, their order kept; those of a group have many names in common."""
    taken: list[Template] = []
    for template in templates:
        names = {slot.name for one in (*taken, template) for slot in one.lesson.slots}
        most = _EMPTY * min(len(one.lesson.slots) for one in (*taken, template))
        if taken and (len(names) > most or len(taken) == MOST_TEMPLATES):
            yield group_of(taken)
            taken = []
        taken.append(template)
    if taken:
        yield group_of(taken)


def group_of(templates: Sequence[Template]) -> Group:
    """One group of at most MOST_TEMPLATES templates."""
    slots = [[slot.name for slot in one.lesson.slots] for one in templates]
    places = {name: n for n, name in enumerate(dict.fromkeys(x for one in slots for x in one))}
    columns = [[places[name] for name in one] for one in slots]
    programs = programs_of([one.program for one in templates], columns)
    return Group(tuple(templates), tuple(places), programs)


def apply(group: Group, text: Text, lines: Ints, *, probe: bool) -> tuple[list[Found], Ints]:
    """What the templates read of the lines, and the lines that none of them fits.

    probe: whether most lines may be of other templates.
    """
    found: list[Found] = []
    compiled, todo = kernel(), lines
    if compiled is not None:
        seen = compiled.read(group.programs, text.raw, text.starts, text.ends, lines)
        found.extend([_found(group, seen)] if len(seen.lines) else [])
        todo = seen.later
    for template in group.templates:
        if not len(todo):
            break
        one = numpy_found(template, text, todo, probe=probe)
        if one is not None and len(one.lines):
            found.append(one)
            todo = _without(text, todo, [one])
    return found, _without(text, lines, found)


def _found(group: Group, seen: Seen) -> Found:
    """What the kernel saw, told of the templates that read a line."""
    counts = np.bincount(seen.which, minlength=len(group.templates))
    used = np.flatnonzero(counts)
    lessons = tuple(group.templates[number].lesson for number in used.tolist())
    which, names, values = seen.which, group.names, seen.values
    if len(used) < len(counts):
        which = np.searchsorted(used, which).astype(np.int32)
        said = {slot.name for lesson in lessons for slot in lesson.slots}
        if len(said) < len(names):
            values = values[[place for place, name in enumerate(names) if name in said]]
            names = tuple(name for name in names if name in said)
    return Found(lessons, which, names, seen.lines, values)


def _without(text: Text, lines: Ints, found: Sequence[Found]) -> Ints:
    """The lines that were not found."""
    if sum(len(one.lines) for one in found) == len(lines):
        return lines[:0]
    left = np.ones(len(text.starts), dtype=bool)
    for one in found:
        left[one.lines] = False
    return lines[left[lines]]
