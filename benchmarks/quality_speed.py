"""What the detectors cost: beside the parsing of the same text, with length, on awkward series.

CPU seconds of this process, all threads counted, so that a busy machine changes little.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from quality_curves import Floats, noise, power_law
from speed_logs import megatron
from synth import make_run

from loganalyze.config import load_thresholds
from loganalyze.detectors import detect
from loganalyze.ingest import ingest
from loganalyze.model import READING_COLUMNS, RunLog
from loganalyze.store import write_run

_COLUMNS = (
    "step", "loss", "grad_norm", "learning_rate", "step_time", "tokens_per_second",
    "memory_allocated", "memory_reserved", "eval_loss", "gpu_util", "update_ratio",
)  # fmt: skip


def _columns(n: int) -> list[Floats]:
    rng = np.random.default_rng(1)
    seconds = np.exp(noise(rng, n, 0.02))
    flat = [level * np.exp(noise(rng, n, 0.01)) for level in (60e9, 70e9, 2.5, 0.9, 0.01)]
    return [
        np.arange(1, n + 1, dtype=np.float64), power_law(rng, n, 0.012),
        np.exp(noise(rng, n, 0.15)), np.full(n, 3e-4), seconds, 1e6 / seconds, *flat,
    ]  # fmt: skip


def _cpu(work: object) -> float:
    begin = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - begin


def _judge(run: RunLog) -> None:
    detect(run, load_thresholds())


def _table(path: Path, n: int) -> None:
    table = np.column_stack(_columns(n))
    np.savetxt(path, table, delimiter=",", fmt="%.7g", header=",".join(_COLUMNS), comments="")


def beside_parsing(n: int) -> None:
    """All detectors on n steps x 10 metrics, over the parsing of their text, to Parquet."""
    for name, write in (("console.log", megatron), ("table.csv", _table)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write(path, n)
            size = path.stat().st_size / 1e6
            made: list[RunLog] = []
            parse = _cpu(lambda path=path, made=made: made.extend(ingest([str(path)]).runs))
            store = _cpu(lambda made=made, folder=folder: write_run(made[0], Path(folder) / "runs"))
        judged = _cpu(lambda made=made: _judge(made[0]))
        metrics = len(made[0].readings.columns) - len(READING_COLUMNS)
        print(f"{name}, {n} steps x {metrics} metrics, {size:.0f} MB: parsing {parse:.2f} s and to "
              f"Parquet {store:.2f} s, detectors {judged:.2f} s, ratio {judged / parse:.2f}, "
              f"with Parquet {judged / (parse + store):.2f}")  # fmt: skip


def growth(sizes: tuple[int, ...]) -> None:
    """CPU time over n log n, as a multiple of that of the first size."""
    first = None
    for n in sizes:
        run = make_run({"loss": power_law(np.random.default_rng(2), n, 0.012)})
        seconds = _cpu(lambda run=run: _judge(run))
        unit = seconds / (n * np.log(n))
        first = first or unit
        print(f"{n:>9} points of loss: {seconds:6.2f} s, per n log n {unit / first:.2f}x")


def awkward(n: int) -> None:
    """Constant, ramp, rounded and all-NaN series: time and warnings."""
    rng = np.random.default_rng(3)
    ramp = np.linspace(6.0, 2.0, n)
    series = {
        "constant": np.full(n, 2.5), "ramp": ramp, "rounded to 0.1": np.round(ramp, 1),
        "rounded noise": np.round(power_law(rng, n, 0.012), 2), "all NaN": np.full(n, np.nan),
        "usual": power_law(rng, n, 0.012),
    }  # fmt: skip
    for metric in ("loss", "grad_norm", "step_time_s", "mem_allocated_bytes"):
        for name, values in series.items():
            run = make_run({metric: values})
            seconds = _cpu(lambda run=run: _judge(run))
            findings, _ = detect(run, load_thresholds())
            told = sorted({f"{f.kind} {f.severity}" for f in findings if f.severity != "info"})
            print(f"{metric:20s} {name:15s} {n} points: {seconds:5.2f} s  {', '.join(told) or '-'}")


def main(quick: bool) -> None:
    """The three tables."""
    beside_parsing(100_000 if quick else 1_000_000)
    growth((30_000, 100_000, 300_000) if quick else (100_000, 1_000_000, 10_000_000))
    awkward(20_000 if quick else 200_000)
