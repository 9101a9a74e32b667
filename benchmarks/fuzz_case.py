"""One case of the fuzzer: a damaged input is made, read (or judged whole), and its answer checked."""

from __future__ import annotations

import gzip
import io
import math
import re
import signal
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import fuzz_inputs
import fuzz_mutations
import polars as pl
import pyarrow as pa
from loganalyze_parsers import head_of, parser_for
from loganalyze_parsers.prefixes import clean

from loganalyze.errors import LoganalyzeError
from loganalyze.model import Account, Report
from loganalyze.pipeline import Judging, report_on
from loganalyze.report import render

#: Processor seconds that an input may take before it is held for a hang: a start, and per megabyte.
START_S, PER_MB_S = 10.0, 5.0
HTML_SHARE = 0.05
#: Rates below this size are those of the start, not of the input.
LEAST_MB = 0.1
_CHECKED = ("loss", "lr", "grad_norm", "val_loss")
_TOKEN = re.compile(
    r"[-+]?\.?\d(?:[\d,._]*\d)?(?:\.?[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE
)
_BREAK = re.compile(r"[\r\n]+")
_PACKED = (b"\x1f\x8b", b"\x28\xb5")


class Hang(Exception):
    """An input took longer than its size allows."""


@dataclass(slots=True)
class Tally:
    """What was tried and what came of it; `merged` over several runs by their sum."""

    tried: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)  # change -> s per MB, case
    slowest: tuple[float, str] = (0.0, "")
    checked: int = 0  # numbers found in their bytes

    def fail(self, what: str, case: Case) -> None:
        """Note a failure, and that each of the case's changes was in it."""
        self.failures.setdefault(what, []).append(case.told)
        self.tried.update(f"failed with {name}" for name in case.changes)

    def timed(self, case: Case, seconds: float, megabytes: float) -> None:
        """Note how long a case took."""
        self.slowest = max(self.slowest, (seconds, case.told))
        if megabytes >= LEAST_MB:
            for name in case.changes:
                rate = (seconds / megabytes, case.told)
                self.worst[name] = max(self.worst.get(name, (0.0, "")), rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A damaged input: what it came from, what was done to it, and how it is tried."""

    number: int
    sample: fuzz_inputs.Sample
    changes: tuple[str, ...]
    data: bytes
    plain: bool  # its numbers stand in the cited bytes as they are
    whole: bool  # through the whole program, not only read
    html: bool

    @property
    def told(self) -> str:
        """How the case is named where something is said of it."""
        how = "+".join(self.changes)
        kind = "whole " if self.whole else ""
        return f"case {self.number}: {kind}{self.sample.family} {how} ({len(self.data)} bytes)"


def make(
    samples: Sequence[fuzz_inputs.Sample],
    small: Sequence[fuzz_inputs.Sample],
    seed: int,
    number: int,
    shares: tuple[float, float],
) -> Case:
    """The case of this number: the same for the same seed. shares: whole ones, and heavy ones."""
    rng = Random(f"{seed}/{number}")
    whole = rng.random() < shares[0]
    sample, other = rng.choice(samples if whole else small), rng.choice(small)
    menu = fuzz_mutations.BINARY if sample.binary else fuzz_mutations.TEXT
    chosen = [rng.choice(menu) for _ in range(rng.choice((1, 1, 2, 3)))]
    if not sample.binary and rng.random() < shares[1]:
        chosen = [rng.choice(fuzz_mutations.HEAVY), *chosen[1:]]
    data = sample.data
    for change in chosen:
        data = change(data, other.data, rng)
    names = tuple(change.__name__ for change in chosen)
    return Case(
        number=number,
        sample=sample,
        changes=names,
        data=data,
        plain=sample.plain and (other.plain or not {"splice", "interleave"} & set(names)),
        whole=whole,
        html=rng.random() < HTML_SHARE,
    )


def attempt(case: Case, folder: Path, tally: Tally) -> None:
    """Write the case's input below the folder, try it, check it, take it away again."""
    path = folder / case.sample.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case.data)
    if case.sample.beside:
        (folder / case.sample.beside).write_bytes(b"status: 4\n")
    size = max(len(case.data), _unpacked(case.data)) / 1e6
    started = time.process_time()
    try:
        with limit(START_S + PER_MB_S * size):
            (_judged if case.whole else _read)(case, path, tally)
    except (LoganalyzeError, OSError):
        tally.tried["told as an error of the input"] += 1
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # polars' panics are no Exceptions
        tally.fail(_signature(error), case)
    tally.timed(case, time.process_time() - started, size)
    path.unlink()


def _read(case: Case, path: Path, tally: Tally) -> None:
    """Through its parser alone."""
    parser = parser_for(head_of(path))
    if parser is None:
        tally.tried["no reader wants it"] += 1
        return
    batches = list(parser.parse(path, 0))
    accounts = [batch.account for batch in batches]
    whole = Account(
        lines=sum(account.lines for account in accounts),
        read=sum(account.read for account in accounts),
        ignored={"all": sum(account.ignored_total for account in accounts)},
        unknown=sum(account.unknown for account in accounts),
    )
    _check_account(case, parser.name, whole, tally)
    if parser.name == "text":
        for batch in batches:
            _check_numbers(case, batch.readings, tally)


def _judged(case: Case, path: Path, tally: Tally) -> None:
    """Through ingest, detection, diagnosis and the reports."""
    report = report_on([str(path)], Judging())
    for one in ("json", "text", *(("html",) if case.html else ())):
        render(report, one, "en").encode("utf-8", "surrogatepass")
    _check(case, report, tally)


def _check(case: Case, report: Report, tally: Tally) -> None:
    sources = {s.path: s for d in report.diagnoses for s in d.run.sources}
    for source in (*sources.values(), *report.unread):
        _check_account(case, source.parser, source.account, tally)
    for diagnosis in report.diagnoses:
        run = diagnosis.run
        for problem in run.problems:
            if problem.rule == "reader_stopped":
                tally.fail(problem.message.partition(": ")[2], case)
        if run.sources and run.sources[0].parser == "text":
            _check_numbers(case, run.readings, tally)


def _check_account(case: Case, parser: str, account: Account, tally: Tally) -> None:
    """Lines are read, ignored or unknown, and those of text are those of the file."""
    if account.lines != account.read + account.ignored_total + account.unknown:
        tally.fail("account does not add up", case)
    if parser == "text" and not case.data.startswith(_PACKED):
        lines = case.data.count(b"\n") + bool(case.data and not case.data.endswith(b"\n"))
        if account.lines != lines:
            tally.fail("lines of the account are not those of the file", case)


def _check_numbers(case: Case, frame: pl.DataFrame | None, tally: Tally) -> None:
    """Losses, rates and gradient norms of text logs must stand in the bytes that they cite."""
    if frame is None or not case.plain or case.data.startswith(_PACKED):
        return
    named = [name for name in _CHECKED if name in frame.columns]
    for row in frame.select("offset", "length", *named).head(60).iter_rows(named=True):
        span = case.data[row["offset"] : row["offset"] + row["length"]]
        text = clean(span.decode("utf-8", "replace"))
        numbers = _meant(text) | _meant(_BREAK.sub("", text))  # rows that a terminal wrapped
        for name in named:
            value = row[name]
            if value is None:
                continue
            tally.checked += 1
            if ("nan" if math.isnan(value) else value) not in numbers:
                tally.fail(f"{name} is not in its bytes: {value!r} in {span[:200]!r}", case)


def _meant(text: str) -> set[float | str]:
    """Every number that a text may mean: with thousands or decimal commas, or a list in brackets."""
    numbers: set[float | str] = set()
    for match in _TOKEN.finditer(text):
        token = match[0]
        swapped = token.replace(".", "").replace(",", ".")
        parts = [token, token.split("_")[0], *([swapped] if token.count(",") == 1 else ())]
        if "," in token and text[max(0, match.start() - 40) : match.start()].rstrip()[-1:] in "[(,":
            parts += token.split(",")
        numbers.update(_value(part) for part in parts)
    return numbers


def _value(token: str) -> float | str:
    try:
        number = float(token.replace(",", "").replace("_", ""))
    except ValueError:
        return "?"
    return "nan" if math.isnan(number) else number


def _unpacked(data: bytes) -> int:
    """Bytes behind a packed file (of the fuzzer's own making); 0 for others or damaged ones."""
    try:
        if data.startswith(b"\x28\xb5\x2f\xfd"):
            return len(pa.input_stream(io.BytesIO(data), compression="zstd").read())
        return len(gzip.decompress(data)) if data.startswith(b"\x1f\x8b") else 0
    except (OSError, EOFError, ValueError, zlib.error):
        return 0


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises Hang in the main thread after so many processor seconds: others may be at work."""

    def rise(number: int, frame: object) -> None:
        raise Hang(f"more than {seconds:.0f} s")

    signal.signal(signal.SIGPROF, rise)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _signature(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "loganalyze" in f.filename]
    return f"{type(error).__name__}: {str(error)[:160]!r} at {' < '.join(reversed(ours[-4:]))}"


class Inline:
    """Stands in for ThreadPoolExecutor: what is submitted is done at once, in this thread."""

    def __init__(self, workers: int) -> None:
        """Nothing to start."""

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., object], *arguments: object) -> Done:
        """The result, or the error, of the work."""
        return Done(work, arguments)


class Done:
    """A Future that has its answer."""

    def __init__(self, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
        """Do the work."""
        self._value = work(*arguments)

    def result(self) -> object:
        """What came of it."""
        return self._value
