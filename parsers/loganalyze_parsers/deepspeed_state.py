"""What the DeepSpeed readers remember between lines, and the small helpers they share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from loganalyze import lazy
from loganalyze.model import Event, Reading
from loganalyze_parsers.api import Line
from loganalyze_parsers.prefixes import wall_seconds

GIB = 1024.0**3  # DeepSpeed prints "GB" and divides by 1024 three times (runtime/utils.py)

_STAMP = lazy.pattern(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
_RANK = lazy.pattern(r"\[Rank (-?\d{1,6})\]|\brank[=:](\d{1,6})\b|OVERFLOW! Rank (\d{1,6})")


class Engine(Struct):
    """The last progress line of one engine of one rank."""

    step: int
    skipped: int
    wall_s: float | None


class Overflow(Struct, frozen=True):
    """A skipped step as the fused optimizer tells it: (old, new) loss scale."""

    step: int | None
    scales: tuple[float, float]
    wall_s: float | None


class State(Struct):
    """Progress of one input.

    step: the last step printed. beside_megatron: a Megatron trainer prints the same steps
    itself. chat: DeepSpeed-Chat's PPO loop, where the engine's clock sees only the training part.
    timed_elsewhere: another line already gives the time per step.
    """

    step: int | None = None
    beside_megatron: bool = False
    chat: bool = False
    timed_elsewhere: bool = False
    chat_step: int | None = None
    engines: dict[int, list[Engine]] = field(default_factory=dict)
    lines_since_step: int = 0
    memory_label: str = ""
    main_memory_label: str | None = None
    scalers: list[tuple[float, int | None]] = field(default_factory=list)  # scale, step it spoke
    overflow_iteration: int | None = None
    overflow_told: Overflow | None = None
    overflow_rank: int | None = None
    growth_seen: tuple[int | None, float, float] | None = None
    checkpoint_seen: str = ""


def parsed(text: str) -> float:
    """What float() makes of a NUMBER, whose thousands commas float() does not know."""
    return float(text.replace(",", ""))


def rank_of(line: Line, text: str) -> int | None:
    """The rank that printed it. Rank 0 without a launcher's prefix is the job's voice: None."""
    if line.rank is not None:
        return line.rank
    match = _RANK.search(text)
    if match is None:
        return None
    rank = int(next(group for group in match.groups() if group is not None))
    return rank if rank > 0 else None


def wall_of(line: Line, position: int) -> float | None:
    """Time of the last bracketed stamp before `position`, else the time of the prefix."""
    stamps = _STAMP.findall(line.text, 0, position)
    return wall_seconds(stamps[-1]) if stamps else line.wall_s


def reading(
    line: Line, step: int | None, values: Mapping[str, float], position: int = 0
) -> Reading:
    """A reading of this line."""
    return Reading(
        step=step,
        ref=line.ref,
        values=values,
        rank=rank_of(line, line.text),
        wall_s=wall_of(line, position or len(line.text)),
    )


def event(line: Line, kind: str, step: int | None, **detail: str | int | float | None) -> Event:
    """An event of this line."""
    return Event(
        kind=kind,
        ref=line.ref,
        text=line.text[:400],
        step=step,
        rank=rank_of(line, line.text),
        wall_s=wall_of(line, len(line.text)),
        detail=detail,
    )
