"""Blocks looked at before their turn, and finished after it, in threads; all comes in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from loganalyze_parsers.blocks import Block

Seen = TypeVar("Seen")
Made = TypeVar("Made")
#: Blocks looked at at the same time, beside the one whose lines are read.
THREADS = min(2, os.cpu_count() or 1)


def ahead(work: Callable[[Block], Seen], blocks: Iterator[Block]) -> Iterator[tuple[Block, Seen]]:
    """Blocks and results in order; the next ones under way in threads, as files, numpy and polars
    leave the interpreter free. The first is looked at here before all others: what it teaches
    serves them, and an input of one block, as most are, needs no thread."""
    block = next(blocks, None)
    if block is None:
        return
    waiting = deque([(block, _done(work(block)))])
    block = next(blocks, None)
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(THREADS) as pool:
        while block is not None:
            coming = reader.submit(next, blocks, None)
            waiting.append((block, pool.submit(work, block)))
            if len(waiting) > THREADS:
                yield _waited(waiting)
            block = coming.result()
        while waiting:
            yield _waited(waiting)


def _waited(waiting: deque[tuple[Block, Future[Seen]]]) -> tuple[Block, Seen]:
    block, seen = waiting.popleft()
    return block, seen.result()


def _done(seen: Seen) -> Future[Seen]:
    future: Future[Seen] = Future()
    future.set_result(seen)
    return future


class Behind(Generic[Made]):
    """Does one piece of work in a thread while the next is prepared; what they make, in order."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        """pool: of one thread."""
        self._pool = pool
        self._last: Future[Made] | None = None

    def then(self, work: Callable[[], Made]) -> Iterator[Made]:
        """Begin the work; what that before it made."""
        now = self._pool.submit(work)
        yield from self.rest()
        self._last = now

    def rest(self) -> Iterator[Made]:
        """What the last work made, if that is still to come."""
        last, self._last = self._last, None
        if last is not None:
            yield last.result()
