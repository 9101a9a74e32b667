"""Runs a function over shards and yields results as they finish; a shard is tried three times.

One operation, three places to run it: processes of this machine, any concurrent.futures executor
(Dask's `client.get_executor()`, submitit's `AutoExecutor`), or Ray's tasks. Data goes through
files that all places see; only small results come back through the engine.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from loganalyze.errors import LoganalyzeError, UsageError

S = TypeVar("S")
R = TypeVar("R")
#: Runs `work` over `shards`; yields (index of the shard, its result) in the order of completion.
Engine = Callable[[Callable[[S], R], Sequence[S]], Iterator[tuple[int, R]]]
TRIES = 3
#: Shards handed out ahead of the workers; more would only lie in a queue.
_AHEAD = 2


class ShardFailed(LoganalyzeError):
    """A shard that failed every time it was tried; the message names it and the last error."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def engine_for(name: str, jobs: int | None = None) -> Engine[Any, Any]:
    """The engine of that name: `processes` or `ray`. Raises UsageError for another name."""
    if name == "processes":
        return processes(jobs or cores())
    if name == "ray":
        return ray_tasks(jobs)
    raise UsageError(f"--engine {name}: unknown", hint="one of processes, ray")


def serial(work: Callable[[S], R], shards: Sequence[S]) -> Iterator[tuple[int, R]]:
    """One shard after the other in this process; an error is final, as it would come again."""
    for index, shard in enumerate(shards):
        yield index, work(shard)


def processes(jobs: int) -> Engine[Any, Any]:
    """Fresh processes of this machine; one that dies takes only its own shards along.

    They are spawned, not forked: the columns' threads do not survive a fork.
    """
    if jobs <= 1:
        return serial

    def run(work: Callable[[S], R], shards: Sequence[S]) -> Iterator[tuple[int, R]]:
        def pool() -> Executor:
            return ProcessPoolExecutor(min(jobs, len(shards) or 1), mp_context=get_context("spawn"))

        return _on_pools(pool, jobs, work, shards)

    return run


def on_executor(executor: Executor, ahead: int = 1000) -> Engine[Any, Any]:
    """Any executor; it stays open. ahead: shards that it may hold at once."""

    def run(work: Callable[[S], R], shards: Sequence[S]) -> Iterator[tuple[int, R]]:
        yield from _Queue(work, shards).on(executor, ahead)

    return run


class _Queue:
    """Shards to be done, and how often each was tried."""

    def __init__(self, work: Callable[[Any], Any], shards: Sequence[Any]) -> None:
        self._work, self._shards = work, shards
        self._todo = deque(range(len(shards)))
        self._tries = [0] * len(shards)
        self._running: dict[Future[Any], int] = {}

    @property
    def empty(self) -> bool:
        """Whether every shard was done."""
        return not self._todo and not self._running

    def on(self, executor: Executor, ahead: int) -> Iterator[tuple[int, Any]]:
        """Results until all is done; BrokenProcessPool where the executor cannot go on."""
        while not self.empty:
            while self._todo and len(self._running) < ahead:
                index = self._todo.popleft()
                self._tries[index] += 1
                try:
                    future = executor.submit(self._work, self._shards[index])
                except BrokenProcessPool as error:
                    self.again(index, error)
                    raise
                self._running[future] = index
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            yield from self._collected(done)

    def _collected(self, done: set[Future[Any]]) -> Iterator[tuple[int, Any]]:
        broken: BaseException | None = None
        for future in done:
            index = self._running.pop(future)
            error = future.exception()
            if error is None:
                yield index, future.result()
                continue
            self.again(index, error)
            broken = error if isinstance(error, BrokenProcessPool) else broken
        if broken is not None:
            raise broken

    def take_back(self, error: BaseException) -> None:
        """What ran when the executor broke is tried again."""
        for future, index in list(self._running.items()):
            del self._running[future]
            self.again(index, error)

    def again(self, index: int, error: BaseException) -> None:
        """Put a shard back. Raises ShardFailed after the last try."""
        if self._tries[index] >= TRIES:
            message = (
                f"{self._shards[index]}: failed {TRIES} times ({type(error).__name__}: {error})"
            )
            raise ShardFailed(message, hint="the rest is untouched; look at that input alone")
        self._todo.appendleft(index)


def _on_pools(
    pool: Callable[[], Executor], jobs: int, work: Callable[[S], R], shards: Sequence[S]
) -> Iterator[tuple[int, R]]:
    queue = _Queue(work, shards)
    while not queue.empty:
        with pool() as executor:
            try:
                yield from queue.on(executor, _AHEAD * jobs)
            except BrokenProcessPool as error:  # a worker was killed: a new pool takes over
                queue.take_back(error)


def ray_tasks(jobs: int | None = None) -> Engine[Any, Any]:
    """Tasks of Ray Core: on the cluster of RAY_ADDRESS, else on a local one of `jobs` cores.

    Raises UsageError where Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        hint = "pip install 'loganalyze[ray]', or leave --engine out"
        raise UsageError("--engine ray: Ray is not installed", hint=hint) from error

    def run(work: Callable[[S], R], shards: Sequence[S]) -> Iterator[tuple[int, R]]:
        if not ray.is_initialized():
            local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs or cores()}
            ray.init(log_to_driver=False, include_dashboard=False, **local)
        task = ray.remote(num_cpus=1, max_retries=TRIES - 1, retry_exceptions=True)(work)
        ahead = max(4, _AHEAD * int(ray.cluster_resources().get("CPU", 1)))
        todo, running = deque(range(len(shards))), dict[Any, int]()
        while todo or running:
            while todo and len(running) < ahead:
                index = todo.popleft()
                running[task.remote(shards[index])] = index
            done, _ = ray.wait(list(running))
            for ref in done:
                index = running.pop(ref)
                try:
                    yield index, ray.get(ref)
                except ray.exceptions.RayError as error:
                    raise ShardFailed(f"{shards[index]}: failed {TRIES} times ({error})") from error

    return run
