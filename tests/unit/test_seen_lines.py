"""Lines seen before are found again, and words and markers, as Python would find them."""

from __future__ import annotations

import io
import random

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loganalyze_parsers import blocks, kernel, markers, seen_lines, template_groups, text_log
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.kernel import texts_of
from loganalyze_parsers.seen_lines import SeenLines

_ANY_LINE = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"."))


@pytest.fixture(scope="module")
def compiled() -> kernel.Kernel:
    """The kernel of the installation."""
    found = kernel.kernel()
    if found is None:
        pytest.skip("no compiled kernel")
    return found


def block_of(lines: list[bytes]) -> Block:
    """Those lines as a block."""
    return Block(b"".join(line + b"\n" for line in lines), 0, 1)


@settings(max_examples=200, deadline=None)
@given(known=st.lists(_ANY_LINE, unique=True, max_size=30), others=st.lists(_ANY_LINE, max_size=30))
def test_known_lines_are_told_from_others(
    compiled: kernel.Kernel, known: list[bytes], others: list[bytes]
) -> None:
    """Each line is told as the known one that it is, or as none; of few none is missed."""
    lines = known + others
    random.Random(len(lines)).shuffle(lines)
    block = block_of(lines)
    places = compiled.seen(
        compiled.known(known), block.data, *block.bounds, np.arange(len(lines))
    )
    expected = [known.index(line) if line in known else -1 for line in lines]
    assert places.tolist() == expected


def test_of_many_known_lines_hardly_one_is_missed(compiled: kernel.Kernel) -> None:
    """50,000 lines that differ in a number; those that are missed are told as unknown."""
    lines = [b"rank %d: NCCL INFO Channel %d" % (n % 97, n) for n in range(50_000)]
    block = block_of(lines)
    places = compiled.seen(compiled.known(lines), block.data, *block.bounds, np.arange(len(lines)))
    assert ((places == np.arange(len(lines))) | (places == -1)).all()
    assert np.count_nonzero(places == -1) <= 5


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("few", [1, 10**9])
def test_looking_block_by_block_equals_a_dictionary(
    pure: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the memory grows: the rule of every line that is remembered, the others as bytes."""
    if pure:
        monkeypatch.setattr(seen_lines, "kernel", lambda: None)
    monkeypatch.setattr(seen_lines, "_FEW", few)
    monkeypatch.setattr(seen_lines, "_MOST_BYTES", 7)  # of `line 12`; longer ones are among them
    made = random.Random(3)
    rules = [None, "noise", "warning"]
    seen: dict[bytes, str | None] = {}
    finder = SeenLines()
    for _ in range(40):
        lines = [b"line %d" % made.randrange(400) for _ in range(made.randrange(120))]
        picked = np.array([n for n in range(len(lines)) if made.random() < 0.8], dtype=np.int64)
        kinds, unseen = finder.look(block_of(lines), picked, seen)
        mine = [lines[n] for n in picked.tolist()]
        assert unseen == {n: line for n, line in enumerate(mine) if line not in seen}
        told = [finder.rules[kind] if kind >= 0 else "-" for kind in kinds.tolist()]
        assert told == [seen.get(line, "-") for line in mine]
        counts = finder.counted(kinds[kinds >= 0])
        assert sum(counts.values()) == len(mine) - len(unseen)
        seen.update({line: made.choice(rules) for line in unseen.values()})


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=80), st.lists(st.text("ab", max_size=7), max_size=12))
def test_words_are_those_that_python_finds(
    compiled: kernel.Kernel, text: str, words: list[str]
) -> None:
    """Of many words at once, in their order; an empty one stands in every text."""
    packed = texts_of([word.encode() for word in words])
    assert compiled.words(text.encode(), packed) == [
        place for place, word in enumerate(words) if word in text
    ]


_NOISE = (
    "", "  > building indices of the blend", "NCCL INFO Channel 01/0 : 3 -> 4",
    "Traceback (most recent call last):", '  File "train.py", line 3, in <module>',
    "RuntimeError: CUDA error: device-side assert triggered", "some words of nobody",
    "saving checkpoint at iteration 5 to /c", "(min, max) time across ranks (ms):",
    "    forward-backward ...............................: (1320.1, 1330.0)", "loss is nan",
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, len(_NOISE) - 1), min_size=30, max_size=250))
def test_logs_full_of_noise_are_read_the_same(picks: list[int]) -> None:
    """Rows, events and accounts of noise that comes again and again, open blocks among it."""
    lines = [_NOISE[pick] for pick in picks]
    for at in range(0, len(lines), 9):
        lines[at] = f" iteration {at + 1:8d}/ 1000 | lm loss: {2 + at / 999:.6E} |"
    data = ("\n".join(lines) + "\n").encode()
    made = []
    for found in (kernel.kernel(), None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(seen_lines, "_FEW", 1)
            for module in (template_groups, blocks, seen_lines, markers):
                patch.setattr(module, "kernel", lambda found=found: found)
            batches = list(text_log(0).batches(blocks.read_blocks(io.BytesIO(data), 700)))
        frames = [batch.readings for batch in batches if batch.readings is not None]
        rows = pl.concat(frames, how="diagonal").to_dict(as_series=False) if frames else {}
        made.append(repr([rows, *((b.events, b.problems, b.account) for b in batches)]))
    assert made[0] == made[1]
    assert sum(batch.account.lines for batch in batches) == len(lines)
