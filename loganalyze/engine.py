"""Runs a function over shards and yields results as they finish; a shard is tried three times.

One operation, three places to run it: processes of this machine, any concurrent.futures executor
(Dask's `client.get_executor()`) or submitit's, whose jobs only look like futures, or Ray's tasks.
Data goes through files that all places see; only small results come back through the engine.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, TypeVar

from loganalyze.errors import LoganalyzeError, UsageError

S = TypeVar("S")
R = TypeVar("R")
#: Runs `work` over `shards`; yields (index of the shard, its result) in the order of completion.
Engine = Callable[[Callable[[S], R], Sequence[S]], Iterator[tuple[int, R]]]
Done = tuple[int, Any]
TRIES = 3
#: Shards handed out ahead of the workers; more would only lie in a queue.
_AHEAD = 2
#: Seconds between two looks at jobs that do not tell by themselves that they are done.
_POLL = 0.5


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
        from concurrent.futures import ProcessPoolExecutor  # loaded where they are needed
        from multiprocessing import get_context

        def pool() -> Executor:
            return ProcessPoolExecutor(min(jobs, len(shards) or 1), mp_context=get_context("spawn"))

        with _one_thread_each():
            yield from _on_pools(pool, jobs, work, shards)

    return run


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers inherit the environment: a process a core needs no threads of the columns' beside."""
    name = "POLARS_MAX_THREADS"
    before = os.environ.get(name)
    os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)


def on_executor(executor: Any, ahead: int = 1000) -> Engine[Any, Any]:
    """Any concurrent.futures executor, or submitit's; it stays open.

    ahead: shards that it may hold at once.
    """

    def run(work: Callable[[S], R], shards: Sequence[S]) -> Iterator[tuple[int, R]]:
        yield from _Queue(work, shards).on(executor, ahead)

    return run


class _Queue:
    """Shards to be done, and how often each was tried."""

    def __init__(self, work: Callable[[Any], Any], shards: Sequence[Any]) -> None:
        self._work, self._shards = work, shards
        self._todo = deque(range(len(shards)))
        self._tries = [0] * len(shards)
        self._running: dict[Any, int] = {}  # futures, or submitit's jobs

    @property
    def empty(self) -> bool:
        """Whether every shard was done."""
        return not self._todo and not self._running

    def on(self, executor: Any, ahead: int, most: int | None = None) -> Iterator[Done]:
        """Results until all is done (or `most` are); raises what breaks the executor itself."""
        given = 0
        while not self.empty and (most is None or given < most):
            if self._todo and len(self._running) < ahead:
                with _together(executor):
                    self._submit(executor, ahead)
            for one in self._collected(_finished(self._running)):
                given += 1
                yield one

    def _submit(self, executor: Any, ahead: int) -> None:
        while self._todo and len(self._running) < ahead:
            future = executor.submit(self._work, self._shards[self._todo[0]])
            self._running[future] = self._todo.popleft()

    def _collected(self, done: Collection[Any]) -> Iterator[Done]:
        for future in done:
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                raise error  # all that ran is taken back by whoever knows what to do
            index = self._running.pop(future)
            if error is None:
                yield index, future.result()
            else:
                self._again(index, error)

    def take_back(self, error: BaseException) -> int:
        """What ran when a pool broke is put back; returns how many that were.

        A shard is to blame only if it ran alone.
        """
        running = sorted(self._running.values(), reverse=True)
        self._running.clear()
        if len(running) == 1:
            self._again(running[0], error)
        else:
            self._todo.extendleft(running)
        return len(running)

    def _again(self, index: int, error: BaseException) -> None:
        """Put a shard back. Raises ShardFailed after the last try."""
        self._tries[index] += 1
        if self._tries[index] >= TRIES:
            told = f"{type(error).__name__}: {error}"
            message = f"{self._shards[index]}: failed {TRIES} times ({told})"
            raise ShardFailed(message, hint="the rest is untouched; look at that input alone")
        self._todo.appendleft(index)


def _together(executor: Any) -> AbstractContextManager[Any]:
    """What is submitted inside becomes one array of jobs, where the executor (submitit's) can."""
    batch: Callable[[], AbstractContextManager[Any]] = getattr(executor, "batch", nullcontext)
    return batch()


def _finished(running: Collection[Any]) -> Collection[Any]:
    """Those that are done, once one is; jobs that are no futures are asked now and again."""
    if all(isinstance(one, Future) for one in running):
        return wait(running, return_when=FIRST_COMPLETED).done
    while not (done := [one for one in running if one.done()]):
        time.sleep(_POLL)
    return done


def _on_pools(
    pool: Callable[[], Executor], jobs: int, work: Callable[[S], R], shards: Sequence[S]
) -> Iterator[tuple[int, R]]:
    """On pools that may break: a new one takes over, and runs the suspects one by one first."""
    queue = _Queue(work, shards)
    suspects = 0
    while not queue.empty:
        with pool() as executor:
            try:
                if suspects:
                    yield from queue.on(executor, 1, suspects)
                    suspects = 0
                yield from queue.on(executor, _AHEAD * jobs)
            except BrokenExecutor as error:
                suspects = queue.take_back(error)


def ray_tasks(jobs: int | None = None) -> Engine[Any, Any]:
    """Tasks of Ray Core: on the cluster of RAY_ADDRESS, else on a local one of `jobs` cores.

    Raises UsageError where Ray is not installed.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        hint = "pip install 'loganalyze[ray]', or leave --engine out"
        raise UsageError("--engine ray: Ray is not installed", hint=hint) from error

    def run(work: Callable[[S], R], shards: Sequence[S]) -> Iterator[tuple[int, R]]:
        if not ray.is_initialized():
            told = bool(os.environ.get("RAY_ADDRESS"))
            local = {} if told else {"address": "local", "num_cpus": jobs or cores()}
            _connect(ray, log_to_driver=False, include_dashboard=False, **local)
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


def _connect(ray: Any, **options: Any) -> None:
    """Raises UsageError where the cluster does not answer."""
    try:
        ray.init(**options)
    except ConnectionError as error:
        place = os.environ.get("RAY_ADDRESS", "local")
        raise UsageError(
            f"--engine ray: no cluster answers at {place} ({error})",
            hint="`ray status` tells why; without RAY_ADDRESS a local one is started",
        ) from error
