"""Blocks looked at by two threads come in order, with what went wrong in its place."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from threading import get_ident

import pytest
from loganalyze_parsers.ahead import AHEAD, ahead
from loganalyze_parsers.blocks import Block


def blocks(count: int, taken: list[int] | None = None) -> Iterator[Block]:
    """Blocks numbered by their first line; taken: told of each when it is taken."""
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield Block(b"x\n", 2 * number, number)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 40])
def test_results_come_in_the_order_of_the_blocks(count: int) -> None:
    """However long each look takes, and whichever thread takes it."""
    made = random.Random(count)
    times = [made.choice((0.0, 0.002)) for _ in range(count)]

    def look(block: Block) -> int:
        time.sleep(times[block.first_line])
        return block.first_line * 10

    found = [(block.first_line, seen) for block, seen in ahead(look, blocks(count))]
    assert found == [(number, number * 10) for number in range(count)]


def test_one_block_needs_no_thread() -> None:
    """Most inputs are of one block."""
    ((_, thread),) = ahead(lambda block: get_ident(), blocks(1))
    assert thread == get_ident()


def test_both_threads_look_where_one_is_slow() -> None:
    """This thread looks too, instead of waiting; no block is looked at twice."""
    looked: list[tuple[int, int]] = []

    def look(block: Block) -> None:
        looked.append((block.first_line, get_ident()))
        time.sleep(0.01)

    assert len(list(ahead(look, blocks(12)))) == 12
    assert sorted(number for number, _ in looked) == list(range(12))
    assert len({thread for _, thread in looked[1:]}) == 2


def test_what_came_before_an_error_is_given_first() -> None:
    """A look that fails is told when its block's turn has come, and not before."""

    def look(block: Block) -> int:
        if block.first_line == 7:
            raise ValueError("block 7")
        return block.first_line

    found: list[int] = []
    with pytest.raises(ValueError, match="block 7"):
        found.extend(seen for _, seen in ahead(look, blocks(12)))
    assert found == list(range(7))


def test_few_blocks_are_held() -> None:
    """What is taken ahead of its turn fills the memory."""
    taken: list[int] = []
    for number, _ in enumerate(ahead(lambda block: None, blocks(30, taken))):
        assert len(taken) <= number + 1 + AHEAD
