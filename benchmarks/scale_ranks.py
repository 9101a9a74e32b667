"""Slow ranks among ten thousand, from the store: `python benchmarks/scale_ranks.py [what ...]`.

    verdict       10,000 ranks x 1,000 steps, 2 % jitter, one rank +1 %: seconds and memory of the
                  verdict from the rows of the store, from its states, and of the naive way
                  (all rows in one table, median over the ranks at each step)
    clean A B     jobs with seeds A to B - 1 in which nothing is wrong: ranks named in each
    slow A B      the same with one rank +1 %: in how many it, and it alone, is named
                  (both tell after every job how it stands)

Every job's rows lie in parts of Parquet, as `ingest` writes them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from msgspec.structs import force_setattr  # noqa: E402

RANKS, STEPS, PARTS = 10_000, 1_000, 40
SLOW = 4711


def make(folder: Path, seed: int, slow: float) -> None:
    """The parts of one job."""
    from loganalyze.store_parts import write_part

    rng = np.random.default_rng(seed)
    common = rng.uniform(0.9, 1.1, STEPS) + 5.0 * (rng.random(STEPS) < 0.01)
    each = RANKS // PARTS
    for part in range(PARTS):
        ranks = np.arange(part * each, (part + 1) * each)
        noise = rng.standard_normal((each, STEPS), dtype=np.float32)
        times = common * np.exp(0.02 * noise)
        times[ranks == SLOW] *= slow
        frame = pl.DataFrame({
            "step": np.tile(np.arange(1, STEPS + 1), each),
            "segment": pl.Series(np.zeros(each * STEPS), dtype=pl.Int32),
            "rank": pl.Series(np.repeat(ranks, STEPS), dtype=pl.Int32),
            "wall_s": pl.Series([None] * each * STEPS, dtype=pl.Float64),
            "source": pl.Series(np.repeat(ranks, STEPS), dtype=pl.Int32),
            "line": np.tile(np.arange(1, STEPS + 1), each),
            "offset": np.tile(np.arange(STEPS) * 100, each),
            "length": pl.Series(np.full(each * STEPS, 99), dtype=pl.Int64),
            "step_time_s": times.ravel(),
        })  # fmt: skip
        write_part(frame, part, folder)


def verdict(folder: Path, stored: bool = False) -> list[tuple[int | None, float]]:
    """Slow ranks and their excess, from the parts below a folder, or from its states."""
    from synth_system import context, make_run

    from loganalyze.detectors.ranks import detect_stragglers
    from loganalyze.leads import choose_leads
    from loganalyze.model import Ranks
    from loganalyze.shards import here
    from loganalyze.wide import reduced, rows_of

    parts = sorted(folder.glob("0*.parquet"))
    if stored:
        states = pl.read_parquet(folder / "ranks.parquet")
    else:
        workers = here()
        states = reduced(parts, dict.fromkeys(range(RANKS), STEPS), workers, workers.place())
        states.write_parquet(folder / "ranks.parquet")
    events = pl.DataFrame(schema={"kind": pl.String, "rank": pl.Int32})
    leads = choose_leads(states, events, (), 0)
    rows = rows_of(parts, leads)
    run = make_run({"step_time_s": rows["step_time_s"].to_numpy()},
                   steps=rows["step"].to_numpy(), rank=rows["rank"].to_numpy())  # fmt: skip
    force_setattr(run, "ranks", Ranks(states=states, leads=leads, parts=tuple(parts)))
    found = detect_stragglers(context(run))
    return [(one.rank, float(one.statistics["excess_share"] or 0)) for one in found]


def naive(folder: Path) -> list[tuple[int | None, float]]:
    """All rows in one table; a rank is slow if its median ratio stands out by six deviations."""
    rows = pl.read_parquet(sorted(folder.glob("0*.parquet")))
    ratio = pl.col("step_time_s") / pl.col("step_time_s").median().over("step")
    ranks = rows.with_columns(ratio=ratio).group_by("rank").agg(pl.col("ratio").median())
    apart = ranks["ratio"] - ranks["ratio"].median()
    limit = 6 * 1.4826 * float(apart.abs().median())  # type: ignore[arg-type]
    out = ranks.filter(apart > limit)
    return [(int(rank), float(value) - 1) for rank, value in out.iter_rows()]


def measured(what: str, folder: Path) -> str:
    """One way in a process of its own: what it found, seconds (imports apart), memory."""
    command = [sys.executable, __file__, "--way", what, str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def one_way(what: str, folder: Path) -> None:
    """In the process of its own."""
    ways = {"rows": verdict, "states": lambda place: verdict(place, True), "naive": naive}
    import synth_system  # noqa: F401

    import loganalyze.wide  # noqa: F401

    begin, used = time.perf_counter(), time.process_time()
    found = ways[what](folder)
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{what:7} {seconds:6.2f} s ({used:5.2f} s of processor)  {peak:5} MB  {[(r, round(x, 4)) for r, x in found[:5]]}")


def many(first: int, end: int, slow: float) -> None:
    """Ranks named in jobs of these seeds."""
    named, right, seconds = 0, 0, []
    for seed in range(first, end):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            make(Path(folder), seed, slow)
            begin = time.perf_counter()
            found = [rank for rank, _ in verdict(Path(folder))]
            seconds.append(time.perf_counter() - begin)
        right += found == [SLOW]
        named += len([rank for rank in found if rank != SLOW or slow == 1.0])
        print(f"seeds {first}-{seed}, rank {SLOW} x {slow}: named rightly and alone in {right} of "
              f"{seed + 1 - first}, healthy ranks named {named}; median {np.median(seconds):.2f} s",
              flush=True)  # fmt: skip


def main() -> None:
    """As the first argument says."""
    what = sys.argv[1] if len(sys.argv) > 1 else "verdict"
    if what == "--way":
        one_way(sys.argv[2], Path(sys.argv[3]))
    elif what == "verdict":
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            make(Path(folder), 1, 1.01)
            for way in ("rows", "states", "naive"):
                print(measured(way, Path(folder)), flush=True)
    else:
        many(int(sys.argv[2]), int(sys.argv[3]), 1.01 if what == "slow" else 1.0)


if __name__ == "__main__":
    main()
