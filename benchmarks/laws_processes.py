"""Laws of whole processes: languages and threads, kill -9, full disks, several writers."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
_START = (
    "import sys; from loganalyze.cli import main; import loganalyze.ingest, loganalyze.report, "
    "loganalyze.pipeline, polars, scipy.stats, jinja2, plotly; print('ready', flush=True); "
    "sys.argv[0] = 'loganalyze'; main()"
)
_LANGUAGES = ("C", "C.UTF-8", "zh_CN.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8", "ar_EG.UTF-8")
_ZONES = ("UTC", "Asia/Shanghai", "America/St_Johns", "Pacific/Kiritimati", "Asia/Kathmandu")
LOGS = ("spike", "resume", "nan_death", "slow_rank", "memory_leak", "disk_full")


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_file()}  # fmt: skip


def _environment(**extra: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    roots = os.pathsep.join((str(ROOT), str(ROOT / "parsers")))
    return {**kept, "PYTHONPATH": roots, **extra}


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", _START, *(str(argument) for argument in arguments)]


def _done(*arguments: object, **extra: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        _command(*arguments), capture_output=True, env=_environment(**extra), timeout=300
    )


def _copy(rng: Random, folder: Path) -> Path:
    """A sample log under a name that is the same in every case."""
    return Path(shutil.copytree(ROOT / "sample_logs" / rng.choice(LOGS), folder / "job"))


def language_zone_and_threads(rng: Random, folder: Path) -> tuple[object, object]:
    """JSON and English text are the same bytes in every language, time zone, number of threads."""
    log = _copy(rng, folder)
    shape = rng.choice(("json", "text", "html"))
    call = ("diagnose", log, "-o", "-", "--format", shape, "--lang", "en")
    language, zone = rng.choice(_LANGUAGES), rng.choice(_ZONES)
    threads = str(rng.randint(1, 8))
    usual = _done(*call, LANG="C.UTF-8", TZ="UTC").stdout
    other = _done(*call, LANG=language, LC_ALL=language, TZ=zone, PYTHONHASHSEED=threads,
                  POLARS_MAX_THREADS=threads, OMP_NUM_THREADS=threads).stdout  # fmt: skip
    return other, usual


def killed_ingest(rng: Random, folder: Path) -> tuple[object, object]:
    """kill -9 of ingest: an older run, the new one or none, whole; then the same bytes as ever."""
    log, store = _copy(rng, folder), folder / "runs"
    call = ("ingest", log, "--store", store)
    took = _seconds(call)
    new = bytes_of(store)
    shutil.rmtree(store)
    if rng.random() < 0.5:  # an older run of the same name
        _done(*call, "--no-mask")
    before = _runs(store)
    _kill(call, rng.uniform(0, took))
    after = _runs(store)
    assert all(value in (before.get(name), _runs_of(new).get(name)) for name, value in after.items())
    assert set(before) <= set(after)
    _done(*call)
    return bytes_of(store), new


def killed_report(rng: Random, folder: Path) -> tuple[object, object]:
    """kill -9 of a report: every file is the old or the new one; then the same bytes as ever."""
    log, out = _copy(rng, folder), folder / "out"
    call = ("diagnose", log, "-o", out, "--lang", "en")
    took = _seconds(call)
    new = bytes_of(out)
    _done(*call[:-1], "zh")
    old = bytes_of(out)
    _kill(call, rng.uniform(0, took))
    seen = {name: data for name, data in bytes_of(out).items() if not _hidden(name)}
    assert set(seen) == set(new), sorted(seen)
    assert all(data in (old[name], new[name]) for name, data in seen.items())
    _done(*call)
    return bytes_of(out), new


def full_disk(rng: Random, folder: Path) -> tuple[object, object]:
    """No file grows beyond a few bytes: one clear error, and what was there is what it was."""
    log, store, out = _copy(rng, folder), folder / "runs", folder / "out"
    calls = (("ingest", log, "--store", store), ("diagnose", log, "-o", out))
    call, place = rng.choice(tuple(zip(calls, (store, out), strict=True)))
    _done(*call)
    before = bytes_of(place)
    largest = max(map(len, before.values()))
    size = rng.choice((0, rng.randint(0, 4096), rng.randint(0, largest - 1)))

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    more = ("--lang", "zh") if call[0] == "diagnose" else ("--no-mask",)
    result = subprocess.run(_command(*call, *more), capture_output=True, env=_environment(),
                            preexec_fn=limit, timeout=300)  # fmt: skip
    assert result.returncode != 0, size
    assert b"Traceback" not in result.stderr, result.stderr
    assert b"cannot be written" in result.stderr or b"File too large" in result.stderr, result.stderr
    return bytes_of(place), before


def several_writers(rng: Random, folder: Path) -> tuple[object, object]:
    """Two to four processes at one store, started at odd moments: whole runs, and no error."""
    log, store = _copy(rng, folder), folder / "runs"
    call = ("ingest", log, "--store", store)
    _done(*call)
    alone = bytes_of(store)
    if rng.random() < 0.5:
        shutil.rmtree(store)
    processes = []
    for _ in range(rng.randint(2, 4)):
        processes.append(subprocess.Popen(_command(*call), stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, env=_environment()))  # fmt: skip
        time.sleep(rng.uniform(0, 0.3))
    told = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), told
    return bytes_of(store), alone


def _runs(store: Path) -> dict[str, dict[str, bytes]]:
    return _runs_of(bytes_of(store)) if store.exists() else {}


def _runs_of(files: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Files of each run that is seen, without what a writer left behind."""
    runs: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        if not _hidden(name):
            run, _, rest = name.partition("/")
            runs.setdefault(run, {})[rest] = data
    return runs


def _hidden(name: str) -> bool:
    return name.startswith(".")


def _seconds(call: tuple[object, ...]) -> float:
    """How long the call works once everything is imported."""
    process = subprocess.Popen(
        _command(*call), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    assert process.stdout is not None
    process.stdout.readline()
    started = time.monotonic()
    process.communicate(timeout=300)
    return time.monotonic() - started


def _kill(call: tuple[object, ...], after: float) -> None:
    """kill -9 so many seconds after the imports."""
    process = subprocess.Popen(
        _command(*call), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.kill()
    process.communicate(timeout=60)


LAWS: tuple[Callable[[Random, Path], tuple[object, object]], ...] = (
    language_zone_and_threads, killed_ingest, killed_report, full_disk, several_writers,
)  # fmt: skip
