"""What must not change what is found, tried on many logs; prints cases and failures of each law.

    python benchmarks/laws.py [--cases 200] [--seconds 60] [--only cut] [--seed 0]

A case is a generated log of one of the formats (noise between its records, a spike, a NaN, a crash)
and one change of it. Laws of whole processes start one each and take the share --slow of the cases.
Exits with 1 where a law is broken, and names the case, which --case repeats.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import fuzz_inputs  # noqa: E402
import laws_processes  # noqa: E402
from findings import found  # noqa: E402
from loganalyze_parsers import blocks  # noqa: E402

from loganalyze.ingest import ingest  # noqa: E402
from loganalyze.pipeline import Judging, report_on  # noqa: E402
from loganalyze.report import render  # noqa: E402
from loganalyze.store import write_run  # noqa: E402

#: Formats that are lines of text, one record after the other.
LINES = ("megatron", "deepspeed", "huggingface", "one_line_trainers", "nemo_fairseq", "reinforcement")
#: Formats in which a CR before the line feed means nothing.
TEXTS = (*LINES, "small_trainers", "records_and_tables", "wandb_csv", "lightning_csv",
         "history_jsonl", "nvidia_smi", "dmon", "deepspeed_csv", "runs_csv")  # fmt: skip
_NOISE = (b"loading extension fused_adam", b"", b"some words: 12 and more", b"\tindented",
          b"[rank0]:[W402 10:11:12.5 x.cpp:9] Warning: something")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Log:
    """A generated input: its name below a folder, and its bytes."""

    family: str
    name: str
    data: bytes
    beside: str

    def write(self, folder: Path, data: bytes | None = None) -> Path:
        """Put the log, or other bytes, under its name."""
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data if data is None else data)
        if self.beside:
            (folder / self.beside).write_bytes(b"status: 4\n")
        return path


def drawn(rng: Random, families: tuple[str, ...] = ()) -> Log:
    """A log of one of the formats, of 20 to 120 records; lines of noise in those of text."""
    family = rng.choice(families or tuple(fuzz_inputs.FORMATS))
    sample = fuzz_inputs.sample_of(family, rng.randint(20, 120))
    lines = sample.data.split(b"\n")
    if family in LINES:
        for _ in range(rng.randint(0, 12)):
            lines.insert(rng.randint(0, len(lines)), rng.choice(_NOISE))
    return Log(family, sample.name, b"\n".join(lines), sample.beside)


def cut_at_a_line(rng: Random, folder: Path) -> tuple[object, object]:
    """A rotated log of two parts tells what the whole one tells."""
    log = drawn(rng, LINES)
    lines = log.data.split(b"\n")
    at = rng.randint(1, len(lines) - 1)
    path = log.write(folder, b"\n".join(lines[at:]))
    before = path.with_name(f"{path.name}.1")
    before.write_bytes(b"\n".join(lines[:at]) + b"\n")
    parts = found(before, path)
    before.unlink()
    return parts, found(log.write(folder))


def line_ends(rng: Random, folder: Path) -> tuple[object, object]:
    """CRLF is LF, and the last line needs neither."""
    log = drawn(rng, TEXTS)
    plain = found(log.write(folder))
    changed = log.data.replace(b"\n", b"\r\n") if rng.random() < 0.7 else log.data.rstrip(b"\n")
    return found(log.write(folder, changed)), plain


def size_of_blocks(rng: Random, folder: Path) -> tuple[object, object]:
    """The report is the same for every size of the blocks read."""
    path = drawn(rng).write(folder)
    whole = _json(path)
    usual = blocks.read_blocks.__defaults__
    assert usual is not None
    blocks.read_blocks.__defaults__ = (rng.randint(30, 9000), *usual[1:])
    try:
        return _json(path), whole
    finally:
        blocks.read_blocks.__defaults__ = usual


def order_of_files(rng: Random, folder: Path) -> tuple[object, object]:
    """The order in which inputs are named changes no byte."""
    paths = []
    for number in range(rng.randint(2, 4)):
        inner = folder / f"job{number if rng.random() < 0.5 else 0}"
        paths.append(drawn(rng).write(inner))
    paths = list(dict.fromkeys(paths))
    once = _json(*paths)
    rng.shuffle(paths)
    return _json(*paths), once


def ingested_twice(rng: Random, folder: Path) -> tuple[object, object]:
    """A log stored again, and a stored run judged, change nothing."""
    path = drawn(rng).write(folder)
    store = folder / "runs"
    for run in ingest([str(path)]).runs:
        write_run(run, store)
    once, told = laws_processes.bytes_of(store), found(path)
    for run in ingest([str(path)]).runs:
        write_run(run, store)
    return (laws_processes.bytes_of(store), found(store)), (once, told)


def further_metric(rng: Random, folder: Path) -> tuple[object, object]:
    """A number that nobody knows on every record changes no finding."""
    family = rng.choice(sorted(_FURTHER))
    log = drawn(rng, (family,))
    lines = [_FURTHER[family](line, rng) for line in log.data.split(b"\n")]
    plain = found(log.write(folder))
    return found(log.write(folder, b"\n".join(lines))), plain


def _behind(marker: bytes, more: bytes) -> Callable[[bytes, Random], bytes]:
    def changed(line: bytes, rng: Random) -> bytes:
        number = str(rng.randint(0, 99)).encode()
        return line + more.replace(b"N", number) if marker in line else line

    return changed


def _cell(line: bytes, rng: Random) -> bytes:
    if not line.strip():
        return line
    return line + (b",zebra" if not line[:1].isdigit() else b",%d" % rng.randint(0, 99))


def _key(line: bytes, rng: Random) -> bytes:
    return line.replace(b"}", b', "zebra": %d}' % rng.randint(0, 99)) if line else line


_FURTHER: dict[str, Callable[[bytes, Random], bytes]] = {
    "megatron": _behind(b" iteration ", b" zebra count: N |"),
    "huggingface": lambda line, rng: line.replace(
        b"{'loss'", b"{'zebra': %d, 'loss'" % rng.randint(0, 99)
    ),
    "wandb_csv": _cell,
    "lightning_csv": _cell,
    "history_jsonl": _key,
}


def _json(*paths: Path) -> str:
    return render(report_on([str(path) for path in paths], Judging()), "json", "en")


FAST: tuple[Callable[[Random, Path], tuple[object, object]], ...] = (
    cut_at_a_line, line_ends, size_of_blocks, order_of_files, ingested_twice, further_metric,
)  # fmt: skip


def main() -> int:
    """Try every law for its cases or its time; 1 if one was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60, help="for each law")
    parser.add_argument("--only", default="", help="laws whose names hold this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0.2, help="share for laws of processes")
    parser.add_argument("--case", type=int, help="this case alone")
    options = parser.parse_args()
    broken = 0
    print(f"{'cases':>6} {'broken':>6}  law")
    for law in (*FAST, *laws_processes.LAWS):
        if options.only not in law.__name__:
            continue
        cases = options.cases if law in FAST else int(options.cases * options.slow)
        numbers = range(cases) if options.case is None else range(options.case, options.case + 1)
        tried, bad = _tried(law, numbers, options)
        broken += len(bad)
        first = (law.__doc__ or "").splitlines()[0]
        print(f"{tried:6d} {len(bad):6d}  {law.__name__}: {first}", *bad[:5], flush=True)
    return 1 if broken else 0


def _tried(
    law: Callable[[Random, Path], tuple[object, object]],
    numbers: range,
    options: argparse.Namespace,
) -> tuple[int, list[str]]:
    """How many cases there was time for, and those that broke the law."""
    end = time.monotonic() + options.seconds
    bad: list[str] = []
    tried = 0
    for number in _until(end, numbers):
        with tempfile.TemporaryDirectory(prefix="law-") as folder:
            one, other = law(Random(f"{options.seed}/{law.__name__}/{number}"), Path(folder))
        tried += 1
        if one != other:
            bad.append(f"\n    case {number}: {_difference(one, other)}")
    return tried, bad


def _until(end: float, numbers: range) -> Iterator[int]:
    for number in numbers:
        if time.monotonic() > end:
            return
        yield number


def _difference(one: object, other: object) -> str:
    """The first place at which two answers differ."""
    left, right = (value if isinstance(value, str) else repr(value) for value in (one, other))
    at = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
              min(len(left), len(right)))  # fmt: skip
    return f"...{left[max(0, at - 60) : at + 80]!r} against {right[max(0, at - 60) : at + 80]!r}"


if __name__ == "__main__":
    sys.exit(main())
