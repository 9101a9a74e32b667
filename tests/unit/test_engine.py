"""Shards run anywhere: every result once, whatever order, whoever dies."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


def test_submitit_runs_them_too(tmp_path: Path) -> None:
    """Its jobs are no futures: they are given as one array, and asked whether they are done."""
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")

    def squared(value: int) -> int:
        """Travels whole: its processes cannot import the tests."""
        return value * value

    executor = submitit.AutoExecutor(folder=tmp_path, cluster="local")
    executor.update_parameters(timeout_min=2)
    assert sorted(on_executor(executor)(squared, [2, 3, 5])) == [(0, 4), (1, 9), (2, 25)]


class SlowJob:
    """Like a job of a batch system: it has no more than done(), exception() and result()."""

    def __init__(self, work: object, shard: object) -> None:
        self._work, self._shard, self._asked = work, shard, 0

    def done(self) -> bool:
        """At the third question."""
        self._asked += 1
        return self._asked > 2

    def exception(self) -> BaseException | None:
        """What the work raises."""
        try:
            self.result()
        except OSError as error:
            return error
        return None

    def result(self) -> object:
        """What the work gives."""
        assert callable(self._work)
        return self._work(self._shard)


class Batches:
    """An executor of such jobs, which takes them in batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Counts what is submitted inside."""
        self.sizes.append(0)
        yield

    def submit(self, work: object, shard: object) -> SlowJob:
        """A job for a shard."""
        self.sizes[-1] += 1
        return SlowJob(work, shard)


def test_jobs_that_are_no_futures_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results, in batches as large as may wait; a shard that fails is tried three times."""
    monkeypatch.setattr("loganalyze.engine._POLL", 0.001)
    executor = Batches()
    found = on_executor(executor, ahead=4)(square, list(range(10)))
    assert sorted(found) == [(n, n * n) for n in range(10)]
    assert executor.sizes[0] == 4
    assert sum(executor.sizes) == 10
    with pytest.raises(ShardFailed, match=r"4: failed 3 times .*the file is gone"):
        list(on_executor(Batches())(always_fails, list(range(6))))


def test_a_cluster_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address, and what to do."""

    class Ray:
        """A Ray that cannot connect."""

        @staticmethod
        def is_initialized() -> bool:
            """Never."""
            return False

        @staticmethod
        def init(**options: object) -> None:
            """As Ray does where nobody listens."""
            raise ConnectionError("timed out")

    monkeypatch.setattr("loganalyze.engine.import_module", lambda name: Ray)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(UsageError, match="no cluster answers at 10") as caught:
        list(engine_for("ray")(square, [1]))
    assert "ray status" in caught.value.hint
