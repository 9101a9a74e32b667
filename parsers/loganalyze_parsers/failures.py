"""Failures in text logs: crash words, tracebacks, and how processes end.

Every known text is an entry of loganalyze/signatures/; the event's detail names it
(`signature`), with its `role` and `severity`, and holds the numbers of the line:

    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total ...
    -> kind oom, detail {"signature": "cuda_oom", "requested_bytes": 2147483648.0, "gpu": 3, ...}

A traceback becomes one event, on the line of its exception.

>>> from loganalyze_parsers.samples import events_of
>>> line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
>>> events_of(DIALECT, line)
[('oom', None)]
"""

from __future__ import annotations

from collections import Counter

from loganalyze import config
from loganalyze.config import Signature
from loganalyze.model import Event, LineRef
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.failures_text import Finder, Found, literals
from loganalyze_parsers.failures_traceback import Raised, Tracebacks
from loganalyze_parsers.kernel_log import kernel_seconds
from loganalyze_parsers.noise_program import ProgramText
from loganalyze_parsers.prefixes import wall_seconds

#: Lines of one signature that become events; a full disk or a flapping link prints millions.
MAX_EVENTS = 1000
#: The same for notes: noise at an exit comes from every rank.
MAX_NOTES = 50
_TEXT_CHARS = 400
#: Shells report a death by signal N as exit code 128 + N.
_SHELL_SIGNALS = range(129, 160)
#: Linux numbers, the same on every machine that reads the log.
SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 15: "SIGTERM",
}  # fmt: skip
_WORDS = {"Killed": 9, "Terminated": 15, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7}
_SIGKILL = 9
_ASKED_TO_STOP = frozenset({1, 2, 15})


class FailureReader:
    """One input's state: open tracebacks, and how often each text came."""

    def __init__(self) -> None:
        """Nothing seen."""
        self._finder = Finder()
        self._tracebacks = Tracebacks()
        self._program = ProgramText()
        self._count: Counter[str] = Counter()
        self._last: Line | None = None

    @property
    def open(self) -> bool:
        """Whether a traceback waits for its exception, or program text for its end."""
        return self._tracebacks.open or self._program.open

    def feed(self, line: Line) -> Taken | None:
        """An event, a line of a traceback, or None."""
        if not (self.open or self._finder.may_matter(line.text)):
            return None
        labelled = line.rank is not None or line.wall_s is not None
        if not self._tracebacks.open and self._program.feed(line.text, labelled=labelled):
            return Taken(ignored="program text")
        self._last = line
        part = self._tracebacks.feed(line)
        if isinstance(part, Raised):
            return self._taken(self._raised(line, part))
        if part:
            return Taken(ignored="traceback")
        found = self._finder.find(line.text)
        return None if found is None else self._taken(failure_event(line, found))

    def finish(self) -> Taken:
        """An exception for every traceback that the end of the input cut."""
        taken = Taken()
        for first_line in self._tracebacks.unfinished():
            if self._last is not None:
                detail = {"traceback_line": first_line}
                signature = config.signatures()["python_traceback_cut"]
                taken.events.append(failure_event(self._last, Found(signature, dict(detail))))
        return taken

    def passed(self, step: int) -> None:
        """There is no bulk way here."""

    def _raised(self, line: Line, raised: Raised) -> Event:
        found = self._finder.find(line.text)
        known = config.signatures()
        if raised.ignored:
            found = Found(known["python_exception_ignored"], {})
        elif found is None:
            name = "python_exit" if raised.exception == "SystemExit" else "python_exception"
            found = Found(known[name], {})
        return failure_event(line, Found(found.signature, {**raised.detail(), **found.detail}))

    def _taken(self, event: Event) -> Taken:
        name = str(event.detail["signature"])
        self._count[name] += 1
        if self._count[name] > (MAX_NOTES if event.kind == "note" else MAX_EVENTS):
            return Taken(ignored="repeated failure text")
        return Taken(events=[event])


def failure_event(line: Line, found: Found, ref: LineRef | None = None) -> Event:
    """The event of a failure text; rank, step and time of the text win over the prefix's."""
    signature, detail = found.signature, dict(found.detail)
    rank, step, at = detail.pop("rank", None), detail.pop("step", None), detail.get("at")
    kind, role = _kind_and_role(signature, detail)
    return Event(
        kind=kind,
        ref=ref or line.ref,
        text=line.text[:_TEXT_CHARS],
        step=step if isinstance(step, int) else None,
        rank=rank if isinstance(rank, int) else line.rank,
        wall_s=_moment(line, at),
        detail={
            "signature": signature.name, "role": role, "severity": signature.severity, **detail,
        },
    )  # fmt: skip


def _moment(line: Line, at: str | int | float | None) -> float | None:
    """What the text says, what the prefix said, or what the kernel stamped; seconds (epoch)."""
    if isinstance(at, str):
        return wall_seconds(at)
    return kernel_seconds(line.text) if line.wall_s is None else line.wall_s


def _kind_and_role(signature: Signature, detail: dict[str, str | int | float]) -> tuple[str, str]:
    """How a process ended tells more than the text: killed, asked to stop, or a crash."""
    number = _signal_number(detail)
    if number is None or signature.kind != "exception":
        return signature.kind, signature.role
    detail["signal"] = SIGNALS.get(number, str(number))
    if number == _SIGKILL:
        return "killed", "root"
    return ("signal" if number in _ASKED_TO_STOP else "exception"), signature.role


def _signal_number(detail: dict[str, str | int | float]) -> int | None:
    code, word = detail.get("exit_code"), detail.get("word")
    if isinstance(code, int):
        number = -code if code < 0 else code - 128 if code in _SHELL_SIGNALS else 0
        return number or None
    return _WORDS.get(word) if isinstance(word, str) else None


DIALECT = Dialect(name="failures", markers=literals(), reader=FailureReader, commas="words")
