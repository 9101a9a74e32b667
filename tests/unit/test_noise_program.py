"""Source code that a trainer prints into its log gives no failure, and hides none behind it."""

from __future__ import annotations

from loganalyze_parsers import failures
from loganalyze_parsers.api import Line
from loganalyze_parsers.noise_program import ProgramText
from loganalyze_parsers.prefixes import peel

from loganalyze.model import Event, LineRef

PROGRAM = '''\
import os
import sys
from torch import nn, optim
"""
This trainer ends with
RuntimeError: NCCL error in: the ring
when the link goes down.
"""

@torch.compile
def step(model: nn.Module, batch):
    x = model(batch)  # Segmentation fault (core dumped)
    try:
        loss = x.mean()
    except torch.OutOfMemoryError as error:
        print("CUDA out of memory. Tried to allocate 2.00 GiB")
        raise RuntimeError("CUDA error: device-side assert triggered") from error
    return (
        loss
    )

for index, name in enumerate(names):
    training_config[name] = index
"Killed"
'''
RUN = "step:1/10 train_loss:4.5\nstep:2/10 train_loss:4.25\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def events_of(text: str) -> list[Event]:
    """Events of the failure reader."""
    reader = failures.DIALECT.reader()
    found, offset = [], 0
    for number, raw in enumerate(text.split("\n"), 1):
        ref = LineRef(source=0, line=number, offset=offset, length=len(raw))
        peeled = peel(raw)
        taken = reader.feed(Line(text=peeled.text, ref=ref, rank=peeled.rank, wall_s=peeled.wall_s))
        found.extend(taken.events if taken else [])
        offset += len(raw) + 1
    return found + reader.finish().events


def test_program_text_is_no_failure() -> None:
    """Whatever the program quotes, nothing has happened."""
    assert events_of(PROGRAM + "=" * 80 + "\n" + RUN) == []


def test_a_failure_behind_it_counts() -> None:
    """After the rule, or after a line of the running trainer, failures count again."""
    for end in ("=" * 80 + "\n", RUN, "[2031-01-02 03:04:05] start\n"):
        events = events_of(PROGRAM + end + OOM)
        assert [event.kind for event in events] == ["oom"]


def test_prose_ends_it() -> None:
    """Without any mark the text ends where lines stop to look like a program."""
    prose = "\n".join(["Starting up now", "Looking for devices", "All is well"] * 4)
    assert [event.kind for event in events_of(PROGRAM + prose + "\n" + OOM)] == ["oom"]


def test_one_import_is_not_a_program() -> None:
    """A single line that says import opens nothing."""
    program = ProgramText()
    program.feed("import os")
    assert not program.feed("step 3 loss 2.5")
    assert not program.open
