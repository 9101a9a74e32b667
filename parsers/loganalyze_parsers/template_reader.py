"""Templates learnt while an input is read, and its blocks read with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

import numpy as np

from loganalyze_parsers.digits import Ints
from loganalyze_parsers.lessons import MAX_LENGTH, Found, Lesson, Template, Text, template_of
from loganalyze_parsers.template_groups import Group, apply, group_of, grouped

#: Templates learnt from one input; lines beyond that go the slow way.
MAX_TEMPLATES = 400
#: Lines in a row that teach nothing before a block is given up.
_MAX_FAILURES = 20
#: Lines that are learnt from before what they taught is tried on all.
_WINDOW = 2048
#: Orders of the templates of which the groups are kept.
_MAX_ORDERS = 64

Teacher = Callable[[bytes], Lesson | None]


class TemplateReader:
    """Keeps the templates learnt so far and reads blocks with them; safe in threads."""

    def __init__(
        self,
        may_teach: Callable[[bytes], bool],
        teacher: Teacher,
        most: int = MAX_TEMPLATES,
        sample: int = 0,
    ) -> None:
        """may_teach: a quick look at a line; teacher: its lesson, None if it must go slowly.

        most: templates that are learnt. sample: of the lines of a block only so many are looked
        at for something to learn (0: all).
        """
        self._may_teach = may_teach
        self._most = most
        self._teacher = teacher
        self._sample = sample
        self._templates: list[Template] = []
        self._hits: dict[int, int] = {}  # lines of the last block, by the lesson's id
        self._orders: dict[tuple[int, ...], tuple[Group, ...]] = {}
        self._learning = Lock()  # what one block's thread learns serves the others

    def read(self, text: Text, lines: Ints) -> list[Found]:
        """Read those lines of a block that fit a template; `lines`: those worth a look."""
        lengths = text.ends[lines] - text.starts[lines]
        lines = lines[(lengths > 0) & (lengths < MAX_LENGTH)]
        found: list[Found] = []
        known = len(self._templates)
        lines = self._applied(self._groups(known), text, lines, found)
        if len(lines) and self._may_learn():
            with self._learning:
                later = grouped(self._templates[known:])
                self._learn(text, self._applied(later, text, lines, found), found)
        return found

    def _groups(self, known: int) -> tuple[Group, ...]:
        """The first `known` templates, those that read most lines before the others."""
        hits = [self._hits.get(id(one.lesson), 0) for one in self._templates[:known]]
        order = tuple(sorted(range(known), key=lambda index: -hits[index]))
        groups = self._orders.get(order)
        if groups is None:
            groups = tuple(grouped([self._templates[index] for index in order]))
            if len(self._orders) >= _MAX_ORDERS:
                self._orders.clear()
            self._orders[order] = groups
        return groups

    def _applied(
        self, groups: Iterable[Group], text: Text, lines: Ints, found: list[Found]
    ) -> Ints:
        """The lines that no template of these groups read."""
        for group in groups:
            if not len(lines):
                break
            probe = len(self._templates) > 1
            new, lines = apply(group, text, lines, probe=probe)
            self._count(group, new)
            found.extend(new)
        return lines

    def _count(self, group: Group, found: Sequence[Found]) -> None:
        hits = {id(one.lesson): 0 for one in group.templates}
        for one in found:
            for lesson, count in zip(one.lessons, np.bincount(one.which).tolist(), strict=True):
                hits[id(lesson)] += count
        self._hits.update(hits)

    def _learn(self, text: Text, lines: Ints, found: list[Found]) -> None:
        """Read what is left with templates learnt from it: from some lines first, then all."""
        tried: set[int] = set()
        failures = first = 0
        count = len(lines) if self._sample else _WINDOW
        while first < len(lines) and failures < _MAX_FAILURES and self._may_learn():
            known = len(self._templates)
            failures = self._learn_from(text, lines[first : first + count], tried, failures)
            first += count
            if len(self._templates) > known:
                lines = self._applied(grouped(self._templates[known:]), text, lines, found)
                first = len(lines) if self._sample else 0

    def _learn_from(self, text: Text, lines: Ints, tried: set[int], failures: int) -> int:
        """Learn all that some lines teach; `failures` in a row at their end.

        tried: lines that were looked at before, and need not be again.
        """
        stride, at = max(1, len(lines) // self._sample) if self._sample else 1, 0
        while at < len(lines) and failures < _MAX_FAILURES and self._may_learn():
            number, at = int(lines[at]), at + stride
            line = text.raw[int(text.starts[number]) : int(text.ends[number])]
            if number in tried or not self._may_teach(line):
                continue
            tried.add(number)
            failures += 1
            lesson = self._teacher(line)
            if lesson is None:
                continue
            template = template_of(line, lesson)
            new, left = apply(group_of([template]), text, lines, probe=bool(self._templates))
            if any((one.lines == number).any() for one in new):  # it reads its own teacher
                self._templates.append(template)
                lines, at, failures = left, 0, 0
        return failures

    def _may_learn(self) -> bool:
        return len(self._templates) < self._most
