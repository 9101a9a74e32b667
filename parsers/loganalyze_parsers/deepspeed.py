"""DeepSpeed v0.2 to today: one dialect over engine, timers, scaler, memory, chat and reports.

The envelope `[time] [LEVEL] [file.py:line:function] [Rank N]` is shared with other libraries, so
lines are known by what they say, never by line numbers of DeepSpeed's source.

>>> from loganalyze.model import LineRef
>>> reader = DeepSpeedReader()
>>> text = "[INFO] [x.py:1:log_dist] [Rank 0] step=40, skipped=3, lr=[1.5e-05], mom=[(0.9, 0.95)]"
>>> line = Line(text=text, ref=LineRef(source=0, line=1, offset=0, length=len(text)))
>>> row = reader.feed(line).readings[0]
>>> row.step, row.values["lr"], row.values["skipped_steps"]
(40, 1.5e-05, 3.0)

Since v0.17.6 the logger is silent below WARNING and steps_per_print is off by default since
v0.15.2: a run may use DeepSpeed and print none of this.
"""

from __future__ import annotations

from collections.abc import Callable

from loganalyze import lazy
from loganalyze_parsers import tqdm_bar
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.deepspeed_bulk import DeepSpeedBulk
from loganalyze_parsers.deepspeed_chat import take_chat
from loganalyze_parsers.deepspeed_life import take_life
from loganalyze_parsers.deepspeed_memory import take_memory
from loganalyze_parsers.deepspeed_progress import (
    take_pipeline,
    take_progress,
    take_throughput,
    take_timers,
)
from loganalyze_parsers.deepspeed_reports import Reports
from loganalyze_parsers.deepspeed_scale import take_scale
from loganalyze_parsers.deepspeed_state import State
from loganalyze_parsers.markers import holds
from loganalyze_parsers.wrapped import Wrapped, merged

_Take = Callable[[Line, State], Taken | None]

#: Words of a line -> who reads it. Tried in this order; a line may have several of the words.
_ROUTES: tuple[tuple[tuple[str, ...], _Take], ...] = (
    (("skipped=",), take_progress),
    (("SamplesPerSec=", "vm %:"), take_throughput),
    (("samples/sec: ",), take_pipeline),
    (("time (ms) | ",), take_timers),
    (
        ("OVERFLOW!", "loss scale", "Grad overflow", "grad overflow", "Overflow detected",
         "hysteresis"),
        take_scale,
    ),
    (
        ("Max_MA", "CPU Virtual Memory:", "see_memory_usage", "MEMSTATS"),
        take_memory,
    ),
    (
        ("ppo_ep:", "average reward score", "E2E latency", "ppl: ", "chosen_last_scores",
         "Beginning of Epoch", "***** Evaluating", " with loss ", "Model Parameters: "),
        take_chat,
    ),
    (("[INFO] [", "[WARNING] [", "[ERROR] [", "[DEBUG] [", "[Torch] "), take_life),
)  # fmt: skip
_REPORT_MARKERS = ("comm op: ", "Comm. Op", "Flops Profiler", "Profile Summary")
_MEGATRON_MARKERS = ("Megatron", "megatron")


#: What a line of the engine must have if it has the first word; else it was cut.
_WHOLE = (
    (lazy.pattern(r"\] step=\d+,"), lazy.pattern(r"^(?:(?!mom=\[).)*+mom=\[.*\]")),
    (
        lazy.pattern(r"/micro_step=\d+/"),
        lazy.pattern(r"CurrSamplesPerSec=\d|vm %.{0,200}swap %: \d"),
    ),
    (lazy.pattern(r"Attempted loss scale"), lazy.pattern(r"reducing to \d|hysteresis to \d")),
    (lazy.pattern(r"time \(ms\) \| [a-z_]+"), lazy.pattern(r"[\d)]$")),
)


def is_cut(text: str) -> bool:
    """Whether a line of the engine goes on behind its end."""
    if not holds(text, ("step=", "loss scale", "time (ms) |")):
        return False
    ends_open = text.endswith((",", "|"))
    return any(head.search(text) and (ends_open or not rest.search(text)) for head, rest in _WHOLE)


def _continues(line: Line) -> bool:
    return line.wall_s is None and not line.text.startswith(("[INFO", "[WARN", "[ERROR", "Traceb"))


class DeepSpeedReader:
    """One input's state."""

    def __init__(self) -> None:
        """Nothing seen."""
        self._state = State()
        self._reports = Reports()
        self._wrapped = Wrapped(is_cut, _continues, most=5)

    @property
    def open(self) -> bool:
        """Whether a report is open whose rows have no mark of their own, or a line goes on."""
        return bool(self._reports.kind) or self._wrapped.open

    def feed(self, line: Line) -> Taken | None:
        """Readings, events, or None for a line of another make."""
        lines = self._wrapped.push(line)
        if not lines:
            return Taken(ignored="row of a wrapped record")
        taken = [found for one in lines if (found := self._whole(one)) is not None]
        return merged(taken) if taken else None

    def _whole(self, line: Line) -> Taken | None:
        text = line.text
        if not self._state.beside_megatron and holds(text, _MEGATRON_MARKERS):
            self._state.beside_megatron = True
        if self._note_bar(text) and not self._reports.kind:
            return None
        if self._reports.kind or holds(text, _REPORT_MARKERS):
            taken = self._reports.feed(line, self._state)
            if taken is not None:
                return taken
        for words, take in _ROUTES:
            if holds(text, words):
                taken = take(line, self._state)
                if taken is not None:
                    return taken
        return None

    def finish(self) -> Taken:
        """A line that the end of the input cut."""
        taken = [found for one in self._wrapped.flush() if (found := self._whole(one)) is not None]
        return merged(taken)

    def passed(self, step: int) -> None:
        """A record of that step was read by the column."""
        if step != self._state.step:
            self._state.step, self._state.lines_since_step = step, 0

    def _note_bar(self, text: str) -> bool:
        """A Trainer's own bar tells the step where the engine prints none; whether there is
        nothing else on the line."""
        found = tqdm_bar.find_bars(text)
        bars = [bar for bar in found if not bar.described]
        if bars and not self._state.engines:
            self._state.step = bars[-1].done
            self._state.lines_since_step = 1
            self._state.timed_elsewhere = True
        return tqdm_bar.is_bare(text, found)


DIALECT = Dialect(
    name="deepspeed",
    markers=(
        *(word for words, _ in _ROUTES for word in words),
        *_REPORT_MARKERS,
        *_MEGATRON_MARKERS,
        *tqdm_bar.MARKERS,
    ),
    reader=DeepSpeedReader,
    bulk=DeepSpeedBulk,
    once=frozenset(_MEGATRON_MARKERS),
)
