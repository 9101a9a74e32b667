"""How the time of hostile inputs grows: each shape at one size and at four times that size.

    python benchmarks/fuzz_growth.py [--bytes 250000] [--whole] [--only long_line]

Prints processor seconds per megabyte at both sizes and how the time grew (4 is linear); exits with
1 where it grew more than eightfold, or more than 30-fold per megabyte against the plain log beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import fuzz_inputs  # noqa: E402
from loganalyze_parsers import head_of, parser_for  # noqa: E402

from loganalyze.errors import LoganalyzeError  # noqa: E402
from loganalyze.pipeline import Judging, report_on  # noqa: E402
from loganalyze.report import render  # noqa: E402

STEP, MOST_GROWTH = 4, 8.0
#: Below this the time is that of the start.
LEAST_S = 0.25
_LINE = (
    b"a", b" ", b"1", b"|", b":", b"loss: 1 ", b"{'a': ", b"[rank0]:", b"=,", b'"', b"{'loss': 1.5, ",
    b"step: 1 ", b"iteration 1/ 2 | ", b"0.5,", b"\xff", b"\x00", b"\x1b[31m", b"/a", b"a.", b"a-",
    b"a_", b"(", b"[", b"1.", b"1e", b"nan ", b"epoch ", b"Traceback ", b"File \"", b"time (ms) | a: 1 ",
    b"100%|#| 1/1 [00:01<00:00] ", b"<td>1</td>", b"- a:1 ", b"2031-04-02 10:11:12 ", b"\\", b"'",
    "\u0301".encode(), "。".encode(),
)  # fmt: skip


def _filled(filler: bytes, size: int) -> bytes:
    return filler * (size // len(filler))


def _shapes() -> Iterator[tuple[str, str, Callable[[int], bytes]]]:
    """Name of the shape, of the file, and the bytes of about a given size."""
    for family, (name, make, binary, _) in fuzz_inputs.FORMATS.items():
        if not binary:
            per_row = (len(make(200)) - len(make(100))) / 100
            yield f"plain {family}", name, lambda size, m=make, p=per_row: m(int(size / p))  # type: ignore[misc]
    for filler in _LINE:
        yield f"long_line {filler!r}", "train.log", lambda size, f=filler: b"loss: 1\n" + _filled(f, size)  # type: ignore[misc]
    for bar in (b"\r", b"\r  5%|#   | 5/99 [00:01<00:20, 1.2s/it]", b"\rloss 1.5 step 3"):
        yield f"carriage_returns {bar!r}", "train.log", lambda size, b=bar: _filled(b, size)  # type: ignore[misc]
    for name, (file, text) in _many().items():
        yield name, file, text


def _many() -> Mapping[str, tuple[str, Callable[[int], bytes]]]:
    def lines(text: str) -> Callable[[int], bytes]:
        return lambda size: b"".join(
            (text.replace("N", str(n)) + "\n").encode() for n in range(size // (len(text) + 5))
        )

    def wide(start: str, part: str, end: str) -> Callable[[int], bytes]:
        return lambda size: (
            start + "".join(part.replace("N", str(n)) for n in range(size // (len(part) + 4))) + end
        ).encode()

    def csv(size: int) -> bytes:
        count = size // 22
        head = "_step,train/loss," + ",".join(f"c{n}" for n in range(count))
        return "\n".join([head, *(f"{n},2.5" + ",1.25" * count for n in range(3))]).encode()

    return {
        "many_keys lines": ("train.log", lines("step: N - metric_N: 1.5 loss: 1.5")),
        "many_keys dicts": ("train.log", lines("{'loss': 1.5, 'metric_N': 2.5, 'epoch': 0.1}")),
        "many_keys megatron": ("train.log", lines(" iteration N/ 900 | lm loss: 1.5 | key N: 2.5 |")),
        "many_keys wide line": ("train.log", wide("step: 1 loss: 1.5", " - kN: 1.5", "")),
        "many_keys wide dict": ("train.log", wide("{'loss': 1.5", ", 'keyN': 1.5", "}")),
        "many_keys jsonl": ("h.jsonl", lines('{"_step": N, "loss": 1.5, "keyN": 2.5}')),
        "many_keys json": ("h.jsonl", wide('{"_step": 1, "loss": 1.5', ', "kN": 1.5', "}\n")),
        "many_keys dcgm": ("dcgm.prom", lines('DCGM_FI_DEV_XN{gpu="N"} 1')),
        "many_settings": ("train.log", lines("  setting_N ............... N")),
        "many_ranks": ("train.log", lines("[rankN]: step: 1 loss: 1.5")),
        "many_restarts": ("train.log", lines("loading checkpoint from /c at iteration N\n"
                                             " iteration 5/ 900 | lm loss: 1.5 |")),
        "many_exceptions": ("train.log", lines("[rankN]: ValueError: N")),
        "many_tracebacks": ("train.log", lines("[rankN]: Traceback (most recent call last):")),
        "many_frames": ("train.log", lines('  File "/a/b.py", line N, in f')),
        "unknown_lines": ("train.log", lines("some words that nobody knows N and more of them")),
        "wide_csv": ("metrics.csv", csv),
        "deep_json": ("train.log", lambda size: b'{"loss":' * (size // 16) + b"1" + b"}" * (size // 16)),
        "deep_json file": ("trainer_state.json", lambda size: b'{"log_history": ' + b"[" * size),
        "deep_list": ("history.json", lambda size: b"[" * size),
    }  # fmt: skip


def main() -> int:
    """Measure every shape; 1 if one grows too fast."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=250_000)
    parser.add_argument("--whole", action="store_true", help="judge, not only read")
    parser.add_argument("--only", default="", help="shapes whose names hold this")
    options = parser.parse_args()
    bad = 0
    for shape, name, text in _shapes():
        if options.only in shape:
            times = [_seconds(text(size), name, options.whole)
                     for size in (options.bytes, STEP * options.bytes)]  # fmt: skip
            small, large = (
                seconds / (size / 1e6)
                for seconds, size in zip(times, (options.bytes, STEP * options.bytes), strict=True)
            )
            growth = times[1] / times[0]
            worse = times[1] > LEAST_S and growth > MOST_GROWTH
            bad += worse
            print(f"{small:8.2f} {large:8.2f} s/MB {growth:6.1f}x  {'BAD ' if worse else ''}{shape}",
                  flush=True)  # fmt: skip
    return 1 if bad else 0


def _seconds(data: bytes, name: str, whole: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        started = time.process_time()
        try:
            if whole:
                report = report_on([str(path)], Judging())
                for one in ("json", "text", "html"):
                    render(report, one, "en")
            elif parser := parser_for(head_of(path)):
                for _ in parser.parse(path, 0):
                    pass
        except LoganalyzeError:
            pass
        return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
