"""Blocks looked at before their turn, by a second thread and by this one; all comes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from loganalyze_parsers.blocks import Block

Seen = TypeVar("Seen")
#: Blocks held at the same time, beside the one whose lines are read.
AHEAD = 3


def ahead(work: Callable[[Block], Seen], blocks: Iterator[Block]) -> Iterator[tuple[Block, Seen]]:
    """Blocks and results in order. The first is looked at before all others: what it teaches serves
    them, and an input of one block, as most are, needs no thread.

    Two threads, as much of the work leaves the interpreter free: the second looks at blocks in
    turn, and this one, instead of waiting for it, looks at one that it has not come to yet. A
    thread for each kind of work takes a tenth more time, and a tenth more of the processors'.
    """
    block = next(blocks, None)
    if block is None:
        return
    waiting = deque([(block, _looked(work, block))])
    with ThreadPoolExecutor(1) as pool:
        while True:
            while len(waiting) < AHEAD and (block := next(blocks, None)) is not None:
                waiting.append((block, pool.submit(work, block)))
            if not waiting:
                return
            block, seen = waiting.popleft()
            if not seen.done():
                _help(work, waiting)
            yield block, seen.result()


def _help(work: Callable[[Block], Seen], waiting: deque[tuple[Block, Future[Seen]]]) -> None:
    """Look here at the last of the blocks, if the second thread has not begun with it."""
    if not waiting or not waiting[-1][1].cancel():
        return
    block, _ = waiting.pop()
    waiting.append((block, _looked(work, block)))


def _looked(work: Callable[[Block], Seen], block: Block) -> Future[Seen]:
    """What the work gives, or what went wrong with it, to be told in the block's turn."""
    future: Future[Seen] = Future()
    try:
        future.set_result(work(block))
    except Exception as error:
        future.set_exception(error)
    return future
