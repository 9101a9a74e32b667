"""Feeds damaged logs of every format to the program, for a given time.

    python benchmarks/fuzz.py --seconds 120 --seed 1 [--family megatron] [--keep DIR]
    python benchmarks/fuzz.py --cases 200000 --whole 0.02 --heavy 0.005 --state fuzz.json

Most cases are small and only read; the share of --whole goes through ingest, detect, diagnose and
the text and JSON reports (HTML for some), and the share of --heavy is made large. Nothing but a
LoganalyzeError or OSError may be raised, nothing may take long for its size, the account must add
up, and the losses read must stand in the bytes that they cite. The same seed gives the same
inputs; a failure prints the number of its case, which `--case N` runs alone. With --state the
count goes on where an earlier call ended, and the table is that of all calls.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import fuzz_inputs  # noqa: E402
from fuzz_case import Inline, Tally, attempt, make  # noqa: E402
from loganalyze_parsers import textlog  # noqa: E402

#: Records of an input that is only read, and of one that is judged: a hang of native code.
SMALL_ROWS, WHOLE_ROWS = 7, 40
_STUCK_S = 1200
_SAVE_EVERY = 100


def main() -> int:
    """Run for the time, or the cases, asked for; 1 if anything failed."""
    options = _options()
    warnings.simplefilter("error")
    if options.whole < 1 and options.case is None:
        textlog.ThreadPoolExecutor = Inline  # type: ignore[assignment,misc]
    small, whole = (_chosen(rows, options.family) for rows in (SMALL_ROWS, WHOLE_ROWS))
    first, tally = _loaded(options)
    number = first if options.case is None else options.case
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=options.folder) as folder:
        while time.monotonic() < end and number < options.cases:
            case = make(whole, small, options.seed, number, (options.whole, options.heavy))
            tally.tried[f"family {case.sample.family}"] += 1
            tally.tried.update(f"change {name}" for name in set(case.changes))
            tally.tried["judged whole" if case.whole else "only read"] += 1
            faulthandler.dump_traceback_later(_STUCK_S, exit=True)  # native code hears no alarm
            before = sum(map(len, tally.failures.values()))
            if options.trace:
                print(case.told, file=options.trace, flush=True)
            attempt(case, Path(folder), tally)
            if options.keep and sum(map(len, tally.failures.values())) > before:
                options.keep.mkdir(parents=True, exist_ok=True)
                name = f"{options.seed}-{number}-{Path(case.sample.name).name}"
                (options.keep / name).write_bytes(case.data)
            number += 1
            if options.case is not None:
                break
            if number % _SAVE_EVERY == 0:
                _save(options, number, tally)
    _save(options, number, tally)
    _print(tally, options.seed)
    return 1 if tally.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=10**9, help="end before this case's number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=sorted(fuzz_inputs.FORMATS))
    parser.add_argument("--whole", type=float, default=0.2, help="share judged, not only read")
    parser.add_argument("--heavy", type=float, default=0.03, help="share that is made large")
    parser.add_argument("--case", type=int, help="run this case of the seed alone")
    parser.add_argument("--state", type=Path, help="JSON file in which the count goes on")
    parser.add_argument("--trace", type=argparse.FileType("w"), help="file that names each case")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    parser.add_argument("--folder", help="folder for the inputs; a memory disk is faster")
    return parser.parse_args()


def _chosen(rows: int, family: str | None) -> list[fuzz_inputs.Sample]:
    samples = fuzz_inputs.samples(rows)
    return [samples[name] for name in sorted(samples) if family in (None, name)]


def _loaded(options: argparse.Namespace) -> tuple[int, Tally]:
    if not options.state or not options.state.exists() or options.case is not None:
        return 0, Tally()
    saved = json.loads(options.state.read_text())
    worst = {name: (rate, case) for name, (rate, case) in saved["worst"].items()}
    return saved["next"], Tally(
        tried=Counter(saved["tried"]),
        failures=saved["failures"],
        worst=worst,
        slowest=tuple(saved["slowest"]),
        checked=saved["checked"],
    )


def _save(options: argparse.Namespace, number: int, tally: Tally) -> None:
    if not options.state or options.case is not None:
        return
    kept = {
        "next": number, "tried": tally.tried, "failures": tally.failures, "worst": tally.worst,
        "slowest": tally.slowest, "checked": tally.checked,
    }  # fmt: skip
    fresh = options.state.with_suffix(".new")
    fresh.write_text(json.dumps(kept))
    fresh.replace(options.state)


def _print(tally: Tally, seed: int) -> None:
    for name, count in sorted(tally.tried.items()):
        if not name.startswith(("change ", "failed with ")):
            print(f"{count:8d}  {name}")
    print(f"{'cases':>8}  {'failed':>6}  {'worst s/MB':>10}  change")
    for name in sorted(name for name in tally.tried if name.startswith("change ")):
        change = name.removeprefix("change ")
        failed, rate = tally.tried[f"failed with {change}"], tally.worst.get(change, (0.0, ""))[0]
        print(f"{tally.tried[name]:8d}  {failed:6d}  {rate:10.2f}  {change}")
    print(f"{tally.checked:8d}  numbers looked up in their bytes")
    worst = max(tally.worst.values(), default=(0.0, "none above 0.1 MB"))
    print(f"seed {seed}; worst {worst[0]:.2f} s/MB ({worst[1]})")
    print(f"slowest {tally.slowest[0]:.2f} s ({tally.slowest[1]})")
    for what, cases in sorted(tally.failures.items(), key=lambda item: -len(item[1])):
        print(f"FAILED {len(cases)} x {what[:700]}\n    {cases[0][:600]}")
    print(f"{sum(map(len, tally.failures.values()))} failures of {len(tally.failures)} sorts")


if __name__ == "__main__":
    sys.exit(main())
