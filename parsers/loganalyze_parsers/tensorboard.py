"""TensorBoard event files, read without TensorFlow: `events.out.tfevents.<time>.<host>...`.

TFRecord framing around protobuf messages `Event`, one scalar or more in each. Scalars of one step
become one row. A file has one writer, so a step that comes again is a second row, never dropped
(purge marks are told as events). Twins of a tag over samples or tokens are left out, and so are
texts, images and histograms. Values are float32, as stored.

>>> sniff(Head(path=Path("events.out.tfevents.1.node"), data=b"", size=0))  # nothing flushed
0.6
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.tensorboard_rows import Columns
from loganalyze_parsers.tfevents_crc import masked_of_lengths
from loganalyze_parsers.tfevents_records import HEAD, Gap, RecordBlock, record_blocks
from loganalyze_parsers.tfevents_scalars import odd, usual
from loganalyze_parsers.tracker_names import framework_of

_SAMPLES_PREFIX = "Train/Samples/"


def sniff(head: Head) -> float:
    """The first length with its checksum and a wall time behind it; or the name of the file."""
    data = head.data
    if len(data) > HEAD and data[HEAD] == 0x09 and data[5:8] == b"\x00\x00\x00":
        size = np.frombuffer(data[:8], dtype="<u8")
        if int(np.frombuffer(data[8:HEAD], dtype="<u4")[0]) == int(masked_of_lengths(size)[0]):
            return 1.0
    named = ".tfevents." in head.path.name
    return 0.6 if named and (not data or b"\x00" in data[:HEAD]) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch: rows in the order of their first scalar, events, the account of records."""
    reader = _Reader(path, source)
    try:
        with open_bytes(path) as stream:
            for found in record_blocks(stream):
                reader.take(found)
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror or error})"
        yield Batch(readings=None, problems=(Problem(rule="unreadable", message=message),))
        return
    yield reader.batch()


class _Reader:
    """The state of one event file."""

    def __init__(self, path: Path, source: int) -> None:
        self._path = path
        self._source = source
        self._columns = Columns(path)
        self._events: list[Event] = []
        self._ignored: Counter[str] = Counter()
        self._records = 0
        self._read = 0
        self._bad: list[int] = []
        self._gaps: list[Gap] = []

    def take(self, found: RecordBlock | Gap) -> None:
        """Records or a gap, in the order of the file."""
        if isinstance(found, Gap):
            self._gaps.append(found)
            return
        scalars, is_usual = usual(found)
        twins = self._columns.add(found, scalars, self._records)
        self._ignored["twin over samples or tokens"] += twins
        self._read += int(is_usual.sum()) - twins
        for record in np.flatnonzero(~is_usual):
            self._odd(found, int(record))
        self._records += len(found.start)

    def _odd(self, block: RecordBlock, record: int) -> None:
        offset = int(block.offset[record])
        if not block.good[record]:
            self._bad.append(offset)
            return
        one = odd(block, record)
        if one.rule == "damaged":
            self._bad.append(offset)
        elif one.rule:
            self._ignored[one.rule] += 1
            if one.rule == "session mark":
                self._session(block, record, one.step, one.wall_s)
        elif self._columns.add_odd(block, one, self._records):
            self._read += 1
        else:
            self._ignored["twin over samples or tokens"] += 1

    def _session(self, block: RecordBlock, record: int, step: int, wall_s: float) -> None:
        ref = LineRef(
            source=self._source,
            line=self._records + record + 1,
            offset=int(block.offset[record]),
            length=int(block.size[record]) + HEAD + 4,
        )
        words = f"the writer starts again at step {step}; what it wrote from there on is void"
        self._events.append(
            Event(kind="note", ref=ref, text=words, step=step, wall_s=wall_s or None)
        )

    def batch(self) -> Batch:
        """Everything that was taken in."""
        frame, problems = self._columns.frame(self._source)
        lost = len(self._bad) + len(self._gaps)
        return Batch(
            readings=frame,
            events=tuple(self._events),
            problems=(*self._problems(), *problems),
            account=Account(
                lines=self._records + len(self._gaps),
                read=self._read,
                ignored={rule: count for rule, count in sorted(self._ignored.items()) if count},
                unknown=lost,
                unknown_samples=tuple(f"byte {offset}" for offset in self._bad[:5]),
            ),
            framework=framework_of(self._columns.tags) or "tensorboard",
        )

    def _problems(self) -> list[Problem]:
        made = []
        if self._bad:
            made.append(
                self._problem(
                    "damaged_record",
                    f"byte {self._bad[0]}: the checksum does not match or the record cannot be "
                    f"decoded ({len(self._bad)} record(s)); the rest of the file is read",
                )
            )
        for gap in self._gaps[:3]:
            told = "breaks off inside a record or is filled with zeros"
            if gap.kind == "length":
                told = "holds no record; reading goes on behind it"
            made.append(
                self._problem("input_breaks_off" if gap.kind == "torn" else "damaged_record",
                              f"byte {gap.offset}: the file {told} ({gap.size} bytes)")
            )  # fmt: skip
        if any(tag.startswith(_SAMPLES_PREFIX) for tag in self._columns.tags):
            made.append(
                self._problem(
                    "steps_are_samples",
                    "the step axis of DeepSpeed's monitor counts samples; divide by "
                    "train_batch_size for steps",
                )
            )
        return made

    def _problem(self, rule: str, told: str) -> Problem:
        return Problem(rule=rule, message=f"{self._path}: {told}")


PARSER = Parser(name="tensorboard", sniff=sniff, parse=parse)
