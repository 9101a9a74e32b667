"""Feeds damaged logs of every format to the whole program, for a given time.

    python benchmarks/fuzz.py --seconds 120 --seed 1 [--family megatron] [--keep DIR]

Each input goes through ingest, detect, diagnose and the text and JSON reports (HTML for some).
Nothing but a LoganalyzeError may be raised, nothing may take long for its size, the account must
add up, and the losses read must stand in the bytes that they cite. The same seed gives the same
inputs; a failure prints the seed of its case, which `--case N` runs alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import io
import math
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import fuzz_inputs  # noqa: E402
import fuzz_mutations  # noqa: E402
import pyarrow as pa  # noqa: E402
from loganalyze_parsers.prefixes import clean  # noqa: E402

from loganalyze.errors import LoganalyzeError  # noqa: E402
from loganalyze.model import Report, RunLog  # noqa: E402
from loganalyze.pipeline import Judging, report_on  # noqa: E402
from loganalyze.report import render  # noqa: E402

#: Seconds that an input may take before it is held for a hang: a start, and more per megabyte.
START_S, PER_MB_S = 10.0, 5.0
HTML_SHARE, HEAVY_SHARE = 0.05, 0.03
_CHECKED = ("loss", "lr", "grad_norm", "val_loss")
_TOKEN = re.compile(r"[-+]?(?:\d[\d,_]*)?\.?\d+(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)", re.I)


class Hang(Exception):
    """An input took longer than its size allows."""


@dataclass(slots=True)
class Tally:
    """What was tried and what came of it."""

    tried: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)
    worst: tuple[float, str] = (0.0, "")  # processor seconds per megabyte, of inputs above 100 kB
    slowest: tuple[float, str] = (0.0, "")
    checked: int = 0  # numbers found in their bytes

    def fail(self, what: str, case: str) -> None:
        self.failures.setdefault(what, []).append(case)


def main() -> int:
    """Run for the time asked for; 1 if anything failed."""
    options = _options()
    warnings.simplefilter("error")
    samples = fuzz_inputs.samples()
    tally = Tally()
    end = time.monotonic() + options.seconds
    number = options.case or 0
    while time.monotonic() < end:
        _one(samples, options, number, tally)
        number += 1
        if options.case is not None:
            break
    _print(tally, options.seed)
    return 1 if tally.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=sorted(fuzz_inputs.FORMATS))
    parser.add_argument("--case", type=int, help="run this case of the seed alone")
    parser.add_argument("--trace", type=argparse.FileType("w"), help="file that names each case")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    return parser.parse_args()


def _one(
    samples: dict[str, fuzz_inputs.Sample], options: argparse.Namespace, number: int, tally: Tally
) -> None:
    rng = Random(f"{options.seed}/{number}")
    sample = samples[options.family or rng.choice(sorted(samples))]
    other = samples[rng.choice(sorted(samples))]
    menu = fuzz_mutations.BINARY if sample.binary else fuzz_mutations.TEXT
    chosen = [rng.choice(menu) for _ in range(rng.choice((1, 1, 2, 3)))]
    if not sample.binary and rng.random() < HEAVY_SHARE:
        chosen = [rng.choice(fuzz_mutations.HEAVY), *chosen[1:]]
    data = sample.data
    for change in chosen:
        data = change(data, other.data, rng)
    names = "+".join(change.__name__ for change in chosen)
    tally.tried[f"family {sample.family}"] += 1
    tally.tried.update(f"change {change.__name__}" for change in chosen)
    case = f"case {number}: {sample.family} {names} ({len(data)} bytes)"
    before = len(tally.failures)
    faulthandler.dump_traceback_later(120, exit=True)  # native code does not hear the alarm
    if options.trace:
        print(case, file=options.trace, flush=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / sample.name
        path.write_bytes(data)
        _try(path, data, sample.plain, rng.random() < HTML_SHARE, case, tally)
    if options.keep and len(tally.failures) > before:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{options.seed}-{number}-{sample.name}").write_bytes(data)


def _try(path: Path, data: bytes, plain: bool, html: bool, case: str, tally: Tally) -> None:
    started = time.process_time()
    size = max(len(data), _unpacked(data)) / 1e6
    try:
        with _limit(START_S + PER_MB_S * size):
            report = report_on([str(path)], Judging())
            for one in ("json", "text", *(("html",) if html else ())):
                render(report, one, "en").encode("utf-8", "surrogatepass")
        _check(report, data, plain, case, tally)
    except LoganalyzeError:
        tally.tried["told by a LoganalyzeError"] += 1
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # polars' panics are no Exceptions
        tally.fail(_signature(error), case)
    took = time.process_time() - started
    tally.slowest = max(tally.slowest, (took, case))
    if size > 0.1:
        tally.worst = max(tally.worst, (took / size, case))


def _unpacked(data: bytes) -> int:
    """Bytes behind a packed file (of the fuzzer's own making); 0 for others or damaged ones."""
    try:
        if data.startswith(b"\x28\xb5\x2f\xfd"):
            return len(pa.input_stream(io.BytesIO(data), compression="zstd").read())
        return len(gzip.decompress(data)) if data.startswith(b"\x1f\x8b") else 0
    except (OSError, EOFError, ValueError, zlib.error):
        return 0


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raises Hang in the main thread after so long."""

    def rise(number: int, frame: object) -> None:
        raise Hang(f"more than {seconds:.0f} s")

    signal.signal(signal.SIGALRM, rise)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _signature(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "loganalyze" in f.filename]
    return f"{type(error).__name__}: {str(error)[:160]!r} at {' < '.join(reversed(ours[-4:]))}"


def _check(report: Report, data: bytes, plain: bool, case: str, tally: Tally) -> None:
    sources = {s.path: s for d in report.diagnoses for s in d.run.sources}
    for source in (*sources.values(), *report.unread):
        account = source.account
        if account.lines != account.read + account.ignored_total + account.unknown:
            tally.fail("account does not add up", case)
        if source.parser == "text" and not data.startswith((b"\x1f\x8b", b"\x28\xb5")):
            lines = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
            if account.lines != lines:
                tally.fail("lines of the account are not those of the file", case)
    for diagnosis in report.diagnoses:
        for problem in diagnosis.run.problems:
            if problem.rule == "reader_stopped":
                tally.fail(problem.message.partition(": ")[2], case)
    if plain:
        for diagnosis in report.diagnoses:
            _numbers_in_bytes(diagnosis.run, data, case, tally)


def _numbers_in_bytes(run: RunLog, data: bytes, case: str, tally: Tally) -> None:
    """Losses, rates and gradient norms of text logs must stand in the bytes that they cite."""
    if run.sources[0].parser != "text" or data.startswith((b"\x1f\x8b", b"\x28\xb5")):
        return
    named = [name for name in _CHECKED if name in run.readings.columns]
    for row in run.readings.select("offset", "length", *named).head(60).iter_rows(named=True):
        span = data[row["offset"] : row["offset"] + row["length"]]
        tokens = _TOKEN.findall(clean(span.decode("utf-8", "replace")))
        numbers = {_value(part) for token in tokens for part in (token, token.split("_")[0])}
        for name in named:
            value = row[name]
            if value is None:
                continue
            tally.checked += 1
            if ("nan" if math.isnan(value) else value) not in numbers:
                tally.fail(f"{name} is not in its bytes", f"{case} {value!r} in {span[:200]!r}")


def _value(token: str) -> float | str:
    try:
        number = float(token.replace(",", "").replace("_", ""))
    except ValueError:
        return "?"
    return "nan" if math.isnan(number) else number


def _print(tally: Tally, seed: int) -> None:
    for name, count in sorted(tally.tried.items()):
        print(f"{count:8d}  {name}")
    print(f"{tally.checked:8d}  numbers looked up in their bytes")
    print(f"seed {seed}; worst {tally.worst[0]:.2f} s/MB ({tally.worst[1]})")
    print(f"slowest {tally.slowest[0]:.2f} s ({tally.slowest[1]})")
    for what, cases in sorted(tally.failures.items(), key=lambda item: -len(item[1])):
        print(f"FAILED {len(cases)} x {what}\n    {cases[0][:600]}")
    print(f"{sum(map(len, tally.failures.values()))} failures of {len(tally.failures)} sorts")


if __name__ == "__main__":
    sys.exit(main())
