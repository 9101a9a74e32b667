"""Takes off what launchers and loggers put before a line, and keeps what it says.

Prefixes stack (`9: [default3]: ...`), so they are peeled again and again.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import datetime

from msgspec import Struct

from loganalyze import lazy
from loganalyze.model import LineRef
from loganalyze_parsers.api import Line
from loganalyze_parsers.kernel import holds

_ANSI = lazy.pattern(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: Control characters as system loggers (and SageMaker) write them: #015 is a carriage return.
_ESCAPED = lazy.pattern(r"#0(?:33\[[0-9;]{0,20}[A-Za-z]|1[0-7]|33)")
_INVISIBLE = lazy.pattern("[\u200b\u200c\u200d\ufe0f\ufeff\u2060]")
_LOCAL = lazy.pattern(rb"\[default(\d{1,3})\]:")
_TIMESTAMP = r"(?P<time>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = tuple(
    lazy.pattern(pattern)
    for pattern in (
        r"\[default(?P<rank>\d{1,9})\]:",
        r"\[rank(?P<rank>\d{1,9})\]:",
        r"\[\d{1,9},(?:mpirank:)?(?P<rank>\d{1,9})(?:,[\w-]{1,60})?\]<std(?:out|err)>: ?",
        r"\[(?P<host>[A-Za-z][\w.-]*):(?P<rank>\d{1,9})\]:?",
        r"\[(?:Rank|rank) (?P<rank>\d{1,9})\]:? ?(?=\S)(?!\()",
        r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}|localhost):(?: +|$|(?=[\[\t]))",
        r"(?P<task>\d{1,6}):(?= |$|\[|\t)",
        r"\((?P<actor>[A-Za-z_]\w{0,120}(?: rank=\d{1,9})?) pid=\d+(?:, ip=(?P<host>[\d.]+))?\)",
        r"rank ?(?P<rank>\d{1,9}):(?= |$|\[|\t)",
        r"(?!(?:step|iter|epoch|layer|loss|gpu|cuda|train|eval|val|batch|seed|lr|model|block|round)"
        r"[a-z_]{0,40}\d)(?P<host>[a-z][a-z0-9-]{0,60}\d[\w.-]{0,200}):(?: +(?=\S)|$)",
        r"\[rank-(?P<rank>\d{1,9})/\d+\]",
        r"\[(?P<compact>\d{8} \d\d:\d\d:\d\d)\](?=\[)",
        r"\[(?:DEBUG|INFO|WARNING|ERROR) *\] ?\[-*[\w.]+:\d+\] ?:",
        r"\[?" + _TIMESTAMP + r"\]?(?!\d)(?=\s*[|\[:-]?\s*\S)",
    )
)


class Peeled(Struct, frozen=True):
    """A line without its prefixes, and what they said.

    rank: as a torch launcher numbers it, which is the number on its node where `task` (srun's
    label) is given too.
    """

    text: str
    rank: int | None = None
    task: int | None = None
    host: str | None = None
    wall_s: float | None = None

    def global_rank(self, ranks_per_node: int) -> int | None:
        """One number for both: the task's number, or node * ranks_per_node + local rank."""
        if self.rank is None or self.task is None:
            return self.task if self.rank is None else self.rank
        return self.task * ranks_per_node + self.rank


def clean(text: str) -> str:
    """Without ANSI codes and invisible characters, whichever way they are written.

    >>> clean("#015 50%|5  | 1/2 [00:01<00:01, 1.0it/s]#033[A").strip()
    '50%|5  | 1/2 [00:01<00:01, 1.0it/s]'
    """
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "#0" in text:
        text = _ESCAPED.sub(" ", text)
    return _INVISIBLE.sub("", text) if not text.isascii() else text


def peel(text: str) -> Peeled:
    """Take off every launcher prefix and leading timestamp, at most eight of them.

    >>> peel(" 9: [default3]: iteration 1/ 5 |")
    Peeled(text='iteration 1/ 5 |', rank=3, task=9, host=None, wall_s=None)
    >>> peel("[2031-01-02 03:04:05] iteration 1/ 5").wall_s
    1925089445.0
    """
    rank: int | None = None
    task: int | None = None
    host: str | None = None
    wall_s: float | None = None
    text = text.strip()
    for _ in range(8):
        match = _first_prefix(text)
        if match is None:
            break
        found = match.groupdict()
        if found.get("rank") is not None and rank is None:
            rank = int(found["rank"])
        if found.get("task") is not None and task is None:
            task = int(found["task"])
        host = host or found.get("host")
        if wall_s is None and (found.get("time") or found.get("compact")):
            wall_s = wall_seconds(found.get("time") or _spread(found["compact"]))
        text = text[match.end() :].lstrip()
    return Peeled(text, rank, task, host, wall_s)


def clean_line(text: str, ref: LineRef, per_node: int, before: int | None = None) -> Line:
    """A line (or a piece of one) without what launchers and terminals put into it.

    per_node: ranks on a node. before: the rank of the piece before it on the same line.
    """
    peeled = peel(clean(text))
    rank = peeled.global_rank(per_node)
    rank = before if rank is None else rank
    return Line(text=peeled.text, ref=ref, rank=rank, host=peeled.host, wall_s=peeled.wall_s)


def ranks_per_node(text: bytes) -> int:
    """Ranks on a node, by the largest local rank that torchrun's prefixes name; 1 without any.

    >>> ranks_per_node(b"0: [default0]: a\\n1: [default3]: b")
    4
    """
    found = _LOCAL.findall(text) if holds(text, b"[default") else ()  # mostly there is none
    return 1 + max(map(int, set(found)), default=0)


def _first_prefix(text: str) -> re.Match[str] | None:
    if not text or text[0] not in "[(0123456789abcdefghijklmnopqrstuvwxyz":
        return None
    for pattern in _PREFIXES:
        match = pattern.match(text)
        if match is not None:
            return match
    return None


def _spread(compact: str) -> str:
    return f"{compact[:4]}-{compact[4:6]}-{compact[6:]}"


def wall_seconds(text: str) -> float | None:
    """Seconds since the epoch of a local time, read as if it were UTC (no zone is printed)."""
    text = text.replace("/", "-").replace(",", ".").replace("T", " ")
    whole, _, fraction = text.partition(".")
    try:
        moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return timegm(moment.timetuple()) + (float(f"0.{fraction}") if fraction else 0.0)
