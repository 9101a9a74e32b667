"""Small or single files that could hold a program up: time and memory of `diagnose` on each.

    python benchmarks/bombs.py [--only gz] [--share 0.1] [--limit 300]

Every input is made, then judged in a process of its own with the HTML report written. Printed are
processor seconds, seconds per megabyte on disk and per megabyte unpacked, the memory, the exit code
(0 judged, 3 nothing to judge, 5 a limit was reached and told) and the last words on standard error.
--share makes the inputs smaller. Exits with 1 where one crashed or went beyond the limit.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
MB = 1_000_000
_PIECE = 8 * MB
_RECORD = b"step: 1 loss: 2.5\n"


def _filled(filler: bytes, size: int) -> Iterator[bytes]:
    """About `size` bytes of a filler, piece by piece."""
    piece = filler * max(1, _PIECE // len(filler))
    for _ in range(max(1, size // len(piece))):
        yield piece


def _numbered(text: str, count: int) -> Iterator[bytes]:
    for first in range(0, count, 10_000):
        rows = range(first, min(count, first + 10_000))
        yield "".join(text.replace("N", str(n)) for n in rows).encode()


def _csv(columns: int) -> Iterator[bytes]:
    yield ("_step,loss," + ",".join(f"c{n}" for n in range(columns)) + "\n").encode()
    for step in range(20):
        yield (f"{step},2.5" + ",1.25" * columns + "\n").encode()


#: Name -> file, packing, and the pieces of the input for a share of its full size.
BOMBS: dict[str, tuple[str, str, Callable[[float], Iterator[bytes]]]] = {
    "gz of zeros, 4 GB": ("a.log.gz", "gz", lambda s: _filled(b"\0", int(4000 * MB * s))),
    "gz of line ends, 4 GB": ("a.log.gz", "gz", lambda s: _filled(b"\n", int(4000 * MB * s))),
    "gz of records, 4 GB": ("a.log.gz", "gz", lambda s: _filled(_RECORD, int(4000 * MB * s))),
    "zst of zeros, 4 GB": ("a.log.zst", "zst", lambda s: _filled(b"\0", int(4000 * MB * s))),
    "zst of unknown lines, 4 GB": (
        "a.log.zst", "zst", lambda s: _filled(b"some words nobody knows\n", int(4000 * MB * s))),
    "one line of 1 GB": ("a.log", "", lambda s: _filled(b"loss: 1.5 ", int(1000 * MB * s))),
    "one line of 1 GB, dicts": ("a.log", "", lambda s: _filled(b"{'loss': 1.5}, ", int(1000 * MB * s))),
    "a million carriage returns": ("a.log", "", lambda s: _filled(b"\r", int(MB * s))),
    "a million states of a bar": (
        "a.log", "", lambda s: _numbered("\rstep N: loss 1.5 5%|#  | N/99 [00:01<00:20, 1.2s/it]",
                                         int(MB * s))),
    "a million keys, dicts": (
        "a.log", "", lambda s: _numbered("{'loss': 1.5, 'metric_N': 2.5, 'epoch': 0.1}\n", int(MB * s))),
    "a million keys, megatron": (
        "a.log", "", lambda s: _numbered(" iteration N/ 900 | lm loss: 1.5 | key N: 2.5 |\n", int(MB * s))),
    "a million keys, JSON lines": (
        "a.jsonl", "", lambda s: _numbered('{"_step": N, "loss": 1.5, "keyN": 2.5}\n', int(MB * s))),
    "a million keys, one line": (
        "a.log", "", lambda s: iter([b"{'loss': 1.5", *_numbered(", 'kN': 1.5", int(MB * s)), b"}\n"])),
    "a million keys, one object": (
        "a.jsonl", "", lambda s: iter([b'{"_step": 1, "loss": 1.5', *_numbered(', "kN": 1.5', int(MB * s)), b"}\n"])),
    "JSON 10,000 deep": (
        "a.jsonl", "", lambda s: iter([b'{"loss":' * int(1e4 * s) + b"1" + b"}" * int(1e4 * s)])),
    "JSON a million deep": ("history.json", "", lambda s: iter([b"[" * int(MB * s)])),
    "trainer_state a million deep": (
        "trainer_state.json", "", lambda s: iter([b'{"log_history": ' + b"[" * int(MB * s)])),
    "CSV of 100,000 columns": ("a.csv", "", lambda s: _csv(int(1e5 * s))),
    "a million ranks": ("a.log", "", lambda s: _numbered("[rankN]: step: 1 loss: 1.5\n", int(MB * s))),
    "a million restarts": (
        "a.log", "", lambda s: _numbered(
            "loading checkpoint from /c at iteration N\n iteration 5/ 900 | lm loss: 1.5 |\n", int(MB * s))),
    "a million exceptions": ("a.log", "", lambda s: _numbered("[rank1]: ValueError: N\n", int(MB * s))),
    "a million settings": ("a.log", "", lambda s: _numbered("  setting_N ............... N\n", int(MB * s))),
}  # fmt: skip


def main() -> int:
    """Judge every bomb; 1 where one crashed or took too long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="bombs whose names hold this")
    parser.add_argument("--share", type=float, default=1.0, help="share of the full size")
    parser.add_argument("--limit", type=int, default=1200, help="processor seconds for one")
    options = parser.parse_args()
    bad = 0
    print("      s  s/MB disk  s/MB unpacked     MB   MiB  exit  input")
    for name, (file, packing, pieces) in BOMBS.items():
        if options.only in name:
            with tempfile.TemporaryDirectory(prefix="bomb-") as folder:
                path = Path(folder) / file
                unpacked = _write(path, packing, pieces(options.share))
                bad += _judged(name, path, unpacked / MB, options.limit)
    return 1 if bad else 0


def _write(path: Path, packing: str, pieces: Iterator[bytes]) -> int:
    """Bytes before packing."""
    size = 0
    if packing == "zst":
        out = pa.CompressedOutputStream(str(path), "zstd")
    else:
        out = gzip.GzipFile(path, "wb", 6) if packing else path.open("wb")
    with out:
        for piece in pieces:
            out.write(piece)
            size += len(piece)
    return size


def _judged(name: str, path: Path, unpacked: float, limit: int) -> bool:
    """Print a bomb's line; whether it crashed or took too long."""
    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    roots = os.pathsep.join((str(ROOT), str(ROOT / "parsers")))
    process = subprocess.Popen(
        [sys.executable, "-m", "loganalyze", "diagnose", str(path), "-o", str(path.parent / "out"),
         "--lang", "en"],
        env={**os.environ, "PYTHONPATH": roots}, preexec_fn=bounded, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    told = process.stderr.read().decode("utf-8", "replace")
    _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    seconds, disk = used.ru_utime + used.ru_stime, path.stat().st_size / MB
    last = told.strip().rpartition("\n")[2][-150:]
    print(f"{seconds:7.1f} {seconds / disk:10.2f} {seconds / unpacked:14.2f} {unpacked:6.0f} "
          f"{used.ru_maxrss / 1024:5.0f} {code:5d}  {name}: {last}", flush=True)  # fmt: skip
    return code not in (0, 3, 5)


if __name__ == "__main__":
    sys.exit(main())
