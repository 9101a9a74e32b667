"""Looks at a growing run, again and again, and tells what is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from loganalyze.model import Diagnosis, Finding, RunLog, severity_rank
from loganalyze.watch.budget import Budget

#: Up to so many rows a look is at the whole run; beyond, at its end first.
WHOLE_ROWS = 100_000
#: Rows of the end that is looked at: enough for every detector's memory.
END_ROWS = 50_000
#: So many looks at the end, then one at the whole.
_END_LOOKS = 20
#: How often the files are asked for news, in seconds.
POLL_SECONDS = 0.5


class Growing(Protocol):
    """What can be under watch: see live.LiveRun and reread.Reread."""

    rows: int

    def poll(self) -> tuple[bool, bool]:
        """(anything new, it cannot wait)."""

    def close(self) -> None:
        """Read what is left."""

    def runs(self, last_rows: int | None = None) -> tuple[RunLog, ...]:
        """The runs so far, or their end."""


class News(Struct, frozen=True, kw_only=True):
    """A finding that was not there before, or is worse than it was. at_start: of the first look."""

    diagnosis: Diagnosis
    finding: Finding
    at_start: bool


Tell = Callable[[tuple[Diagnosis, ...], tuple[News, ...]], None]
_Key = tuple[str, str, str | None, int | None]


class _Told(Struct, frozen=True, kw_only=True):
    """What was told of one thing: where, and how severe at its worst."""

    segment: int | None
    first: int | None
    last: int | None
    rank: int  # of the severity


class Known(Struct):
    """Findings that were told: a later one of the same kind at the same steps is the same."""

    told: dict[_Key, list[_Told]] = field(default_factory=dict)

    def is_new(self, run: str, finding: Finding, *, any_segment: bool = False) -> bool:
        """Whether it was not told yet, or only as less severe."""
        same = self._same(run, finding, any_segment)
        return all(one.rank < severity_rank(finding.severity) for one in same)

    def add(self, run: str, finding: Finding) -> None:
        """Remember a finding as it is now: its steps may have grown since it was told."""
        same = self._same(run, finding, False)
        kept = [one for one in self.told.get(_key(run, finding), ()) if one not in same]
        kept.append(
            _Told(
                segment=finding.segment,
                first=min((one.first for one in same if one.first is not None),
                          default=finding.step_first),
                last=finding.step_last,
                rank=max([severity_rank(finding.severity), *(one.rank for one in same)]),
            )
        )  # fmt: skip
        self.told[_key(run, finding)] = kept

    def _same(self, run: str, finding: Finding, any_segment: bool) -> list[_Told]:
        return [
            one
            for one in self.told.get(_key(run, finding), ())
            if (any_segment or one.segment == finding.segment) and _meet(one, finding)
        ]


def _key(run: str, finding: Finding) -> _Key:
    return (run, finding.kind, finding.metric, finding.rank)


def _meet(one: _Told, other: Finding) -> bool:
    """Whether two findings share a step, or come within a tenth of their length of it."""
    if one.first is None or other.step_first is None:
        return True
    last, other_last = one.last or one.first, other.step_last or other.step_first
    slack = max(2, (max(last, other_last) - min(one.first, other.step_first)) // 10)
    return one.first <= other_last + slack and other.step_first <= last + slack


class Watch:
    """One run (or several) under watch."""

    def __init__(
        self, growing: Growing, judge: Callable[[RunLog], Diagnosis], tell: Tell,
        budget: Budget | None = None,
    ) -> None:  # fmt: skip
        """tell: called after every look that found something new, and at the end."""
        self._growing, self._judge, self._tell = growing, judge, tell
        self._budget = budget or Budget()
        self._known = Known()
        self._waiting = self._urgent = False
        self._looks = 0

    def turn(self) -> None:
        """Ask for news and, where it is due, look."""
        news, urgent = self._growing.poll()
        self._waiting, self._urgent = self._waiting or news, self._urgent or urgent
        if self._waiting and self._budget.due(self._urgent):
            urgent, self._waiting, self._urgent = self._urgent, False, False
            self._budget.look(self._look, urgent)

    def end(self) -> tuple[Diagnosis, ...]:
        """The last look, at the whole."""
        self._growing.poll()
        self._growing.close()
        made = self._judged(None)
        self._tell(made, self._news(made))
        return made

    def _look(self) -> None:
        end_only = self._growing.rows > WHOLE_ROWS and self._looks % _END_LOOKS != 0
        self._looks += 1
        if end_only and not self._something(self._judged(END_ROWS)):
            return
        made = self._judged(None)
        news = self._news(made)
        if news:
            self._tell(made, news)

    def _something(self, made: tuple[Diagnosis, ...]) -> bool:
        """Whether the end of a run shows what was not told (its segments count anew)."""
        found = [(d.run.meta.id, f) for d in made for f in d.findings]
        return any(self._known.is_new(run, f, any_segment=True) for run, f in found)

    def _judged(self, last_rows: int | None) -> tuple[Diagnosis, ...]:
        return tuple(self._judge(run) for run in self._growing.runs(last_rows))

    def _news(self, made: tuple[Diagnosis, ...]) -> tuple[News, ...]:
        news = []
        for diagnosis in made:
            run = diagnosis.run.meta.id
            for finding in diagnosis.findings:
                if self._known.is_new(run, finding):
                    news.append(
                        News(diagnosis=diagnosis, finding=finding, at_start=self._looks <= 1)
                    )
                self._known.add(run, finding)
        return tuple(news)
