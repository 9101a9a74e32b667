"""10,000 rank files by every engine: `python benchmarks/scale_engines.py WAY [RANKS] [STEPS]`.

WAY is serial, processes, random, killed, ray, dask, or make (the files, first). Each way ingests
the files into a store of its own and diagnoses it; printed are seconds, the driver's peak memory,
and one hash over all files of the store and the findings, which must be the same for every way.

    random   shards finish in random order
    killed   20 workers are killed at random moments (SIGKILL) while two processes read,
             at most one for each shard that was finished
    ray      a cluster of two nodes of one core, started by Ray's own test cluster
    dask     two worker processes of dask.distributed, through its concurrent.futures executor
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "parsers")])

import numpy as np  # noqa: E402

WHERE = Path("/var/tmp/loganalyze-scale")
SLOW, SILENT = 171, 23


def make(ranks: int, steps: int) -> None:
    """A file a rank: training lines, one rank slower by 3 %, one that stops early."""
    folder = WHERE / f"logs-{ranks}-{steps}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for rank in range(ranks):
        rng = np.random.default_rng(rank)
        times = 1000 * np.exp(0.02 * rng.standard_normal(steps)) * (1.03 if rank == SLOW else 1)
        last = steps // 2 if rank == SILENT else steps
        (folder / f"train_rank_{rank}.log").write_text("".join(
            f" iteration {n + 1:8d}/ {steps:8d} | consumed samples: {512 * n:12d} | "
            f"elapsed time per iteration (ms): {times[n]:.1f} | learning rate: 3.0E-04 | "
            f"lm loss: {2 + 5 / (n + 1):.6E} | grad norm: {0.5 + 0.3 / (n + 1):.3f} |\n"
            for n in range(last)
        ))  # fmt: skip


def shuffled(work: Callable[[Any], Any], shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Shards in random order."""
    order = random.Random(time.time_ns()).sample(range(len(shards)), len(shards))
    for index in order:
        yield index, work(shards[index])


@contextmanager
def engine_of(way: str) -> Iterator[Any]:
    """The engine of a way, ready; what starting it cost is not measured with the work."""
    from loganalyze.engine import on_executor, processes, ray_tasks, serial

    if way == "dask":
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:  # noqa: SIM117
            with Client(cluster) as client:
                yield on_executor(client.get_executor())
    elif way == "ray":
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        yield ray_tasks()
        ray.shutdown()
        cluster.shutdown()
    else:
        yield {"serial": serial, "random": shuffled}.get(way) or processes(2)


def kill_workers(count: int, store: Path, stop: threading.Event, killed: list[int]) -> None:
    """End one of this process's workers at random moments, at most one for each finished shard."""
    rng = random.Random(7)
    own = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    done = 0
    while len(killed) < count and not stop.wait(rng.uniform(0.2, 2.0)):
        finished = sum(1 for _ in store.glob(".loganalyze-*/*.read"))
        if finished <= done:
            continue
        done = finished
        for child in Path(own).read_text().split():
            line = Path(f"/proc/{child}/cmdline")
            if line.exists() and b"spawn_main" in line.read_bytes():
                os.kill(int(child), signal.SIGKILL)
                killed.append(int(child))
                break


def ingest_all(engine: Any, logs: Path, store: Path) -> str:
    """Ingest, store, judge; one hash over the store's files and the findings."""
    from loganalyze.ingest import ingest
    from loganalyze.pipeline import Judging, report_on
    from loganalyze.report import render
    from loganalyze.shards import Workers
    from loganalyze.store import write_run

    (run,) = ingest([str(logs)], workers=Workers(engine=engine, folder=store)).runs
    place = write_run(run, store)
    report = report_on([str(place)], Judging())
    digest = hashlib.sha256(render(report, "json", "en").encode().replace(str(store).encode(), b""))
    for path in sorted(place.rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    found = [(f.kind, f.rank) for f in report.diagnoses[0].findings]
    return f"{digest.hexdigest()[:16]}  {found[:4]}"


def main() -> None:
    """One way."""
    way = sys.argv[1]
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    if way == "make":
        make(ranks, steps)
        return
    from loganalyze import shards

    shards.SHARD_FILES = 16  # small ones: a shard that is killed three times is given up
    store = WHERE / f"store-{way}"
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    stop, killed = threading.Event(), list[int]()
    with engine_of(way) as engine:
        if way == "killed":
            work = (20, store, stop, killed)
            threading.Thread(target=kill_workers, args=work, daemon=True).start()
        begin = time.perf_counter()
        told = ingest_all(engine, WHERE / f"logs-{ranks}-{steps}", store)
        seconds = time.perf_counter() - begin
        stop.set()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    more = f"  {len(killed)} workers killed" if way == "killed" else ""
    print(f"{way:9} {ranks} files  {seconds:7.1f} s  driver {peak} MB  {told}{more}", flush=True)
    shutil.rmtree(store, ignore_errors=True)


if __name__ == "__main__":
    main()
