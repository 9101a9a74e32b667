"""A run whose log is still growing: what was read so far, and whether the news cannot wait."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import polars as pl
from loganalyze_parsers import text_log
from loganalyze_parsers.textlog import TextLog
from msgspec import Struct, field

from loganalyze.assemble import assemble
from loganalyze.digest import Digest
from loganalyze.inputs import rank_of, stem
from loganalyze.masking import masked_source
from loganalyze.model import Account, Batch, Problem, RunLog, Source
from loganalyze.parts import Parts, safe_name
from loganalyze.reading import total_of
from loganalyze.watch.tail import Piece, Tail

#: Events that a user wants to hear of at once.
ALARMS = frozenset({
    "exception", "oom", "host_oom", "comm_timeout", "comm_error", "xid", "hardware_error", "hang",
    "disk_full", "killed", "signal", "time_limit", "checkpoint_failed", "data_exhausted",
})  # fmt: skip
#: Metrics whose odd values cannot wait for the next regular look.
_WATCHED = ("loss", "grad_norm", "step_time_s", "tokens_per_s", "loss_scale", "val_loss", "reward")
_MEMORY = 200  # values that say what is usual
_ODD = 6.0  # robust deviations; a look costs little, so this is far below any finding's threshold


class _Usual(Struct):
    """What is usual of a metric: its last values."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=_MEMORY))

    def odd(self, fresh: np.ndarray) -> bool:
        """Whether a new value is not finite or far from the last ones; remembers them."""
        odd = not np.isfinite(fresh).all()
        if len(self.values) >= 20 and not odd:
            past = np.array(self.values)
            middle = np.median(past)
            spread = 1.4826 * np.median(np.abs(past - middle)) + 1e-3 * abs(middle)
            odd = bool((np.abs(fresh - middle) > _ODD * spread).any())
        self.values.extend(fresh[np.isfinite(fresh)].tolist())
        return odd


class _Part(Struct):
    """One file of the log: its readers, its account, the hash of what was read of it."""

    log: TextLog
    accounts: list[Account] = field(default_factory=list)
    digest: Digest = field(default_factory=Digest)
    size: int = 0


class LiveRun:
    """Grows with its log. Not for compressed inputs: nothing is appended to those."""

    def __init__(self, path: Path) -> None:
        """path: a text log; it need not exist yet."""
        self._path = path
        self._tail = Tail(path)
        self._parts: list[_Part] = []
        self._run = Parts()
        self._usual = {name: _Usual() for name in _WATCHED}
        self.rows = 0

    def poll(self) -> tuple[bool, bool]:
        """Read what is new. Returns (anything new, it cannot wait)."""
        news = urgent = False
        while pieces := self._tail.read():
            for piece in pieces:
                fresh, alarming = self._take(piece)
                news, urgent = news or fresh, urgent or alarming
        return news, urgent

    def close(self) -> None:
        """The end of the watch: a last line without newline is read too."""
        self._take(self._tail.end())

    def _take(self, piece: Piece) -> tuple[bool, bool]:
        while len(self._parts) <= piece.part:
            self._parts.append(_Part(text_log(len(self._parts))))
        part = self._parts[piece.part]
        part.digest.update(piece.block.data)
        part.size += len(piece.block.data)
        batches = [part.log.feed(piece.block)] if piece.block.data else []
        if piece.last:
            batches.append(part.log.finish())
        for batch in batches:
            part.accounts.append(batch.account)
            self._run.add(batch, rank_of(self._path))
            self.rows += 0 if batch.readings is None else len(batch.readings)
        alarms = [self._alarming(batch) for batch in batches]  # each remembers what is usual
        return any(b.events or b.readings is not None for b in batches), any(alarms)

    def _alarming(self, batch: Batch) -> bool:
        frame = batch.readings
        alarm = any(event.kind in ALARMS for event in batch.events)
        for name, usual in self._usual.items():
            if frame is not None and name in frame.columns:
                alarm = usual.odd(frame[name].drop_nulls().to_numpy()) or alarm
        return alarm

    def runs(self, last_rows: int | None = None) -> tuple[RunLog, ...]:
        """The run as the only one; none before the first line that says something."""
        return (self.run(last_rows),) if self.rows or self._run.events else ()

    def run(self, last_rows: int | None = None) -> RunLog:
        """The run so far; with `last_rows` only its end (and the events of all of it)."""
        self._compact()
        frames = self._run.frames
        if last_rows is not None and frames:
            frames = [pl.concat(frames, how="diagonal").tail(last_rows)]
        frameworks = self._run.frameworks.most_common(1)
        return assemble(
            safe_name(stem(self._path)),
            frames,
            self._run.events,
            self._run.problems + self._rotations(),
            [self._source(part) for part in self._parts],
            framework=frameworks[0][0] if frameworks else "",
            grouping="one log, under watch",
        )

    def _compact(self) -> None:
        """Small frames into one; the big one first stays as it is."""
        frames = self._run.frames
        if len(frames) > 64:
            frames[1:] = [pl.concat(frames[1:], how="diagonal")]
        if len(frames) > 1 and len(frames[1]) > len(frames[0]):
            frames[:2] = [pl.concat(frames[:2], how="diagonal")]

    def _rotations(self) -> list[Problem]:
        count = len(self._parts) - 1
        message = f"{self._path}: the file was replaced {count} times under watch (rotated?)"
        return [Problem(rule="rotated", message=message)] if count > 0 else []

    def _source(self, part: _Part) -> Source:
        return masked_source(
            Source(
                path=self._path.as_posix(),
                sha256=part.digest.hexdigest(),
                bytes=part.size,
                parser="text",
                encoding="utf-8",
                account=total_of(part.accounts),
                pieces=part.digest.told(),
            )
        )
