"""Blocks looked at before their turn, in threads; their results come in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from loganalyze_parsers.blocks import Block

Seen = TypeVar("Seen")
#: Blocks looked at at the same time, beside the one whose lines are read.
THREADS = min(2, os.cpu_count() or 1)


def ahead(work: Callable[[Block], Seen], blocks: Iterator[Block]) -> Iterator[tuple[Block, Seen]]:
    """Blocks and results in order; the next ones under way in threads, as numpy and polars leave
    the interpreter free. The first is looked at here before all others: what it teaches serves
    them, and an input of one block, as most are, needs no thread."""
    waiting: deque[tuple[Block, Future[Seen]]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:  # without work it starts none
        for number, block in enumerate(blocks):
            waiting.append((block, pool.submit(work, block) if number else _done(work(block))))
            if len(waiting) > THREADS:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()


def _done(seen: Seen) -> Future[Seen]:
    future: Future[Seen] = Future()
    future.set_result(seen)
    return future
