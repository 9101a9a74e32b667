"""Puts the records of one `.wandb` log together: rows, events, problems, the account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.protobuf import fields, signed, text, timestamp
from loganalyze_parsers.wandb_chunks import Damage
from loganalyze_parsers.wandb_files import config_beside, flat_config, summary_beside
from loganalyze_parsers.wandb_frames import history_frame, system_frame
from loganalyze_parsers.wandb_history import History, item_of, numbers_of
from loganalyze_parsers.wandb_system import Sample

#: Kind of record -> why it holds nothing to read here.
_IGNORED: Mapping[int, str] = {
    0: "record of another kind", 4: "console text, read as text", 6: "list of files",
    8: "artifact", 9: "list of files", 13: "console text, read as text",
    20: "end of the log", 21: "header", 22: "end of the log", 25: "artifact",
    26: "environment (personal data)", 27: "console text, read as text",
}  # fmt: skip
_DAMAGE = {
    "checksum": "the checksum does not match; the rest of the 32 KiB block is lost",
    "lost_page": "a page of zeros where records should be",
    "orphan": "a record whose other parts are lost",
    "record": "a record that cannot be decoded",
}
_TEXT_LIMIT = 200
_LEVELS = {"ERROR": "warning", "WARN": "warning"}


class RunLogBuilder:
    """Takes records one by one; batch() is what they make."""

    def __init__(self, path: Path, source: int) -> None:
        self.records = 0
        self._path = path
        self._source = source
        self._history = History()
        self._samples: list[Sample] = []
        self._events: list[Event] = []
        self._damages: list[Damage] = []
        self._config: dict[str, str] = {}
        self._config_ref: LineRef | None = None
        self._summary: dict[str, float] = {}
        self._axes: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._read = 0
        self._ended = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all stood in the log."""
        return not self.records and not self._damages

    def damage(self, found: Damage) -> None:
        """A place that could not be read."""
        self._damages.append(found)

    def add(self, kind: int, body: bytes, line: int, offset: int, length: int) -> None:
        """One record. Raises WireError where it is damaged."""
        self.records += 1
        if kind == 2:
            self._history.add(body, line, offset, length)
        elif kind == 3 and len(self._history):
            self._ignored["summary of the rows before"] += 1
            return
        elif kind in _IGNORED:
            self._ignored[_IGNORED[kind]] += 1
            return
        else:
            ref = LineRef(source=self._source, line=line, offset=offset, length=length)
            self._rare(kind, body, ref)
        self._read += 1

    def _rare(self, kind: int, body: bytes, ref: LineRef) -> None:
        if kind == 7:
            self._stats(body, ref)
        elif kind == 3:
            self._update(self._summary, body)
        elif kind == 5:
            self._config_items(body, ref)
        elif kind == 10:
            self._alert(body, ref)
        elif kind == 11:
            self._telemetry(body, ref)
        elif kind == 12:
            axis = [text(value) for number, value in fields(body) if number == 4]
            self._axes.update(name for name in axis if name)
        elif kind == 17:
            self._run(body, ref)
        elif kind == 18:
            self._exit(body, ref)
        elif kind == 23:
            self._event("signal", ref, "the run was told that it will be preempted", {})

    def _event(
        self, kind: str, ref: LineRef, words: str, detail: Mapping[str, str | int | float | None],
        wall_s: float | None = None,
    ) -> None:  # fmt: skip
        self._events.append(Event(kind=kind, ref=ref, text=words, detail=detail, wall_s=wall_s))

    def _stats(self, body: bytes, ref: LineRef) -> None:
        wall: float | None = None
        values: dict[str, float] = {}
        for number, value in fields(body):
            if number == 2:
                wall = timestamp(value)
            elif number == 3 and isinstance(value, bytes):
                key, typed, words = item_of(value)
                pairs = [(key, typed)] if typed is not None else numbers_of(key, words or b"")
                values.update({k.decode("utf-8", "replace"): v for k, v in pairs})
        if wall is not None and values:
            self._samples.append(
                Sample(
                    wall_s=wall, line=ref.line, offset=ref.offset, length=ref.length, values=values
                )
            )

    def _update(self, into: dict[str, float], body: bytes) -> None:
        for number, value in fields(body):
            if number == 1 and isinstance(value, bytes):
                key, typed, words = item_of(value)
                pairs = [(key, typed)] if typed is not None else numbers_of(key, words or b"")
                into.update({k.decode("utf-8", "replace"): v for k, v in pairs})

    def _config_items(self, body: bytes, ref: LineRef) -> None:
        self._config_ref = self._config_ref or ref
        for number, value in fields(body):
            if number == 1 and isinstance(value, bytes):
                key, _, words = item_of(value)
                name = key.decode("utf-8", "replace")
                if not name.startswith("_wandb"):
                    self._config.update(flat_config(name, words or b""))

    def _run(self, body: bytes, ref: LineRef) -> None:
        self._config_ref = self._config_ref or ref
        found: dict[int, bytes | int] = {}
        for number, value in fields(body):
            found[number] = value
            if number == 4 and isinstance(value, bytes):
                self._config_items(value, ref)
        resumed, forked = bool(found.get(18)), bool(found.get(22))
        start = found.get(14, 0)
        if resumed or forked:
            detail: dict[str, str | int | float | None] = {
                "run": text(found.get(1, b"")),
                "starting_step": signed(start) if isinstance(start, int) else 0,
            }
            words = "resumed by the tracker" if resumed else "forked from another run"
            self._event("note", ref, words, detail)

    def _telemetry(self, body: bytes, ref: LineRef) -> None:
        for number, value in fields(body):
            name = {4: "python", 5: "wandb", 6: "transformers"}.get(number)
            if name and text(value):
                self._config_ref = self._config_ref or ref
                self._config[f"version.{name}"] = text(value)

    def _alert(self, body: bytes, ref: LineRef) -> None:
        found = {number: text(value) for number, value in fields(body)}
        words = ": ".join(part for part in (found.get(1), found.get(2)) if part)
        self._event(_LEVELS.get(found.get(3, ""), "note"), ref, words[:_TEXT_LIMIT], {})

    def _exit(self, body: bytes, ref: LineRef) -> None:
        found = {n: signed(v) for n, v in fields(body) if isinstance(v, int)}
        code = found.get(1, 0)
        self._ended = True
        words = {0: "finished", 1: "ended with an exception", 255: "interrupted"}.get(
            code, f"ended with exit code {code}"
        )
        self._event("exit", ref, words, {"exit_code": code, "runtime_s": found.get(2)})

    def batch(self) -> Batch:
        """Everything that was taken in."""
        where = str(self._path)
        self._history.columns()  # decodes what is pending
        self._damages.extend(Damage("record", offset) for offset in self._history.damaged)
        self._read -= len(self._history.damaged)
        history, axis, problems = history_frame(self._history, self._axes, self._source, where)
        system = system_frame(self._samples, history, self._source)
        frames = [part for part in (history, system) if part is not None and len(part)]
        rows = (
            pl.concat(frames, how="diagonal").sort("offset", maintain_order=True)
            if frames
            else None
        )
        return Batch(
            readings=rows,
            events=self._all_events(axis),
            problems=(*self._problems(), *problems),
            account=self._account(),
            framework="wandb",
        )

    def _account(self) -> Account:
        lost = len(self._damages)
        return Account(
            lines=self._read + sum(self._ignored.values()) + lost,
            read=self._read,
            ignored=dict(sorted(self._ignored.items())),
            unknown=lost,
            unknown_samples=tuple(f"byte {d.offset}: {d.kind}" for d in self._damages[:5]),
        )

    def _all_events(self, axis: str | None) -> tuple[Event, ...]:
        events = list(self._events)
        ref = self._config_ref
        if ref is not None and self._config:
            detail = dict(sorted(self._config.items()))
            if axis is not None:
                detail["step_axis"] = axis
            events.append(Event(kind="config", ref=ref, text="", detail=detail))
        if not len(self._history):
            place = LineRef(source=self._source, line=1, offset=0, length=7)
            summary = self._summary or summary_beside(self._path)
            if summary:
                events.append(Event(kind="note", ref=place, text="last values", detail=summary))
            if not self._config:
                beside = config_beside(self._path)
                if beside:
                    events.append(Event(kind="config", ref=place, text="", detail=beside))
        return tuple(sorted(events, key=lambda event: event.ref.offset))

    def _problems(self) -> list[Problem]:
        made = []
        torn = [found for found in self._damages if found.kind == "torn"]
        for kind, meaning in _DAMAGE.items():
            places = [found.offset for found in self._damages if found.kind == kind]
            if places:
                made.append(
                    Problem(
                        rule="damaged_log",
                        message=f"{self._path}: byte {places[0]}: {meaning} ({len(places)} "
                        f"place(s), the last at byte {places[-1]}); the rest of the log is read",
                    )
                )
        if torn:
            made.append(
                Problem(
                    rule="input_breaks_off",
                    message=f"{self._path}: the log breaks off inside a record at byte "
                    f"{torn[0].offset}; the last rows (up to 32 KiB) were never written",
                )
            )
        if not self._ended:
            made.append(
                Problem(
                    rule="no_exit_record",
                    message=f"{self._path}: the log has no exit record: the run was killed, is "
                    "still running, or the file was copied while it ran",
                )
            )
        return made
