"""Templates learnt while an input is read, and its blocks read with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from loganalyze_parsers.digits import Ints
from loganalyze_parsers.lessons import (
    MAX_LENGTH,
    Found,
    Lesson,
    Template,
    Text,
    apply,
    template_of,
)

#: Templates learnt from one input; lines beyond that go the slow way.
MAX_TEMPLATES = 400
#: Lines in a row that teach nothing before a block is given up.
_MAX_FAILURES = 20

Teacher = Callable[[bytes], Lesson | None]


class TemplateReader:
    """Keeps the templates learnt so far and reads blocks with them; safe in threads."""

    def __init__(
        self, may_teach: Callable[[bytes], bool], teacher: Teacher, most: int = MAX_TEMPLATES
    ) -> None:
        """may_teach: a quick look at a line; teacher: its lesson, None if it must go slowly.

        most: templates that are learnt.
        """
        self._may_teach = may_teach
        self._most = most
        self._teacher = teacher
        self._templates: list[Template] = []
        self._hits: dict[int, int] = {}
        self._learning = Lock()  # what one block's thread learns serves the others

    def read(self, text: Text, lines: Ints) -> list[Found]:
        """Read those lines of a block that fit a template; `lines`: those worth a look."""
        lengths = text.ends[lines] - text.starts[lines]
        lines = lines[(lengths > 0) & (lengths < MAX_LENGTH)]
        found: list[Found] = []
        known = len(self._templates)
        order = sorted(range(known), key=lambda index: -self._hits.get(index, 0))
        lines = self._applied(order, text, lines, found)
        if len(lines) and known < self._most:
            with self._learning:
                later = range(known, len(self._templates))
                self._learn(text, self._applied(later, text, lines, found), found)
        return found

    def _applied(self, indices: Sequence[int], text: Text, lines: Ints, found: list[Found]) -> Ints:
        """The lines that none of these templates read."""
        for index in indices:
            if not len(lines):
                break
            probe = len(self._templates) > 1
            one, lines = apply(self._templates[index], text, lines, probe=probe)
            self._hits[index] = len(one.lines) if one else 0
            found.extend([one] if one else [])
        return lines

    def _learn(self, text: Text, lines: Ints, found: list[Found]) -> None:
        """Read what is left with templates learnt from it."""
        failures = at = 0
        while at < len(lines) and failures < _MAX_FAILURES and len(self._templates) < self._most:
            line = text.raw[int(text.starts[lines[at]]) : int(text.ends[lines[at]])]
            at += 1
            if not self._may_teach(line):
                continue
            failures += 1
            lesson = self._teacher(line)
            if lesson is None:
                continue
            template = template_of(line, lesson)
            one, left = apply(template, text, lines[at - 1 :], probe=bool(self._templates))
            if one is None or not len(one.lines) or one.lines[0] != lines[at - 1]:
                continue  # it does not read its own teacher
            self._templates.append(template)
            found.append(one)
            lines, at, failures = left, 0, 0
