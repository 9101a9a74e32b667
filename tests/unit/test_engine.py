"""Shards run anywhere: every result once, whatever order, whoever dies."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from paths import loopback_is_up

from loganalyze.engine import TRIES, ShardFailed, engine_for, on_executor, processes, serial
from loganalyze.errors import UsageError


def square(value: int) -> int:
    """A result that tells its shard; the pace varies."""
    time.sleep(random.Random(value).random() * 0.005)
    return value * value


def die_once(shard: tuple[str, int]) -> int:
    """Kills its own process the first time that it meets every seventh shard."""
    folder, value = shard
    mark = Path(folder) / str(value)
    if value % 7 == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def always_fails(value: int) -> int:
    """An error for one shard."""
    if value == 4:
        raise OSError("the file is gone")
    return value


def test_every_shard_once_in_any_engine() -> None:
    """The same set of results from one process, threads and processes; none twice."""
    shards = list(range(40))
    want = [(n, n * n) for n in shards]
    assert list(serial(square, shards)) == want
    with ThreadPoolExecutor(3) as threads:
        assert sorted(on_executor(threads, ahead=5)(square, shards)) == want
        assert threads.submit(square, 2).result() == 4  # it is the caller's, and stays open
    assert sorted(processes(2)(square, shards)) == want
    assert list(processes(2)(square, [])) == []


def test_killed_workers_cost_only_their_shards(tmp_path: Path) -> None:
    """Workers that are killed again and again change nothing in the results."""
    shards = [(str(tmp_path), n) for n in range(20)]
    assert sorted(processes(2)(die_once, shards)) == [(n, n) for n in range(20)]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_shard_that_always_fails_is_named() -> None:
    """After three tries the error names the shard and its last error; others were done."""
    tries: list[int] = []

    def counted(value: int) -> int:
        tries.append(value)
        return always_fails(value)

    done: list[tuple[int, int]] = []
    with ThreadPoolExecutor(1) as threads, pytest.raises(ShardFailed) as caught:
        done.extend(on_executor(threads, ahead=2)(counted, list(range(5))))
    assert tries.count(4) == TRIES
    assert sorted(done) == [(n, n) for n in range(4)]
    assert "4: failed 3 times (OSError: the file is gone)" in caught.value.message


def test_unknown_engines_are_wrong_use() -> None:
    """--engine spark is refused with the names that exist."""
    with pytest.raises(UsageError) as caught:
        engine_for("spark")
    assert "processes, ray" in caught.value.hint


def test_ray_runs_them_too() -> None:
    """A local Ray of two cores gives the same results."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    if not loopback_is_up():
        pytest.skip("Ray's processes speak to each other over the loopback, which is down here")

    def squared(value: int) -> int:
        """Travels whole: Ray's processes cannot import the tests."""
        return value * value

    try:
        assert sorted(engine_for("ray", 2)(squared, list(range(10)))) == [
            (n, n * n) for n in range(10)
        ]
    finally:
        ray.shutdown()
