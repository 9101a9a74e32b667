"""RL trainers that print a step as a list or a table under a heading: NeMo RL, AReaL.

    ========================= Step 3/100 =========================
      • Loss: 0.0123
      • Avg Reward: 0.4123
      • Total step time: 45.12s
    Epoch 1/10 Step 3/100 Train step 3/1000 done.
    │ ppo_actor/task_reward/avg │ 4.1200e-01 │ ppo_actor/update/grad_norm │ 2.1000e-01 │

Other lines (engines, other actors) stand between the rows, so each row is a reading of the step of
the heading above it. Rows under a heading of validation are kept as raw numbers.

>>> from loganalyze_parsers.samples import rows_of
>>> head = "========================= Step 3/100 ========================="
>>> rows_of(DIALECT, head, "  • Avg Reward: 0.5", "  • Total step time: 45.25s")
[(3, {'reward': 0.5}), (3, {'step_time_s': 45.25})]
"""

from __future__ import annotations

from collections.abc import Iterable

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import scaled

_N = r"[-+]?(?:nan|inf|NaN|[\d.,]+(?:[eE][-+]?\d+)?)"
_HEADING = lazy.pattern(
    r"^={20,40} Step (\d+)(?:/\d+)? ={20,40}$|\bTrain step (\d+)(?:/\d+)? done\b"
)
_BULLET = lazy.pattern(rf"^[•-] (?P<key>[A-Za-z][\w /().-]{{0,80}}?): (?P<value>{_N})")
_CELLS = lazy.pattern(
    rf"[│|] {{0,40}}([A-Za-z][\w/.@-]{{1,120}}) {{0,80}}[│|] {{0,40}}({_N})(?= {{0,40}}[│|])"
)
_PER_RANK = lazy.pattern(rf"\(({_N}) TFLOPS per rank\)")
_SECTION = lazy.pattern(r"\b(?P<name>Training|Validation) Results:$")
_NAMES = {
    "Loss": ("loss", 1.0),
    "Avg Reward": ("reward", 1.0),
    "Avg Total Reward": ("reward", 1.0),
    "Grad Norm": ("grad_norm", 1.0),
    "Mean Generation Length": ("response_length", 1.0),
    "Total step time": ("step_time_s", 1.0),
    "Training Model Floating Point Utilization": ("mfu", 0.01),
    "E2E (Tokens/sec/gpu)": ("tokens_per_s_per_gpu", 1.0),
}
#: AReaL's rows, without the part of the program that they are of.
_CELL_NAMES = {
    "task_reward/avg": ("reward", 1.0),
    "final_reward/avg": ("reward", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "lr": ("lr", 1.0),
    "actor_loss/avg": ("loss", 1.0),
    "loss/avg": ("loss", 1.0),
    "entropy/avg": ("entropy", 1.0),
    "clip_ratio/avg": ("clip_fraction", 1.0),
}
_PARTS = ("ppo_actor/", "grpo_actor/", "actor/", "sft/", "update/")


class BlocksReader:
    """Remembers the step of the last heading, and whether validation is told."""

    open = False

    def __init__(self) -> None:
        """No heading yet."""
        self._step: int | None = None
        self._validation = False

    def feed(self, line: Line) -> Taken | None:
        """A heading, a section, or a row of the step at hand."""
        heading = _HEADING.search(line.text)
        if heading is not None:
            self._step, self._validation = int(heading[1] or heading[2]), False
            return Taken(ignored="heading of a record")
        section = _SECTION.search(line.text)
        if section is not None and self._step is not None:
            self._validation = section["name"] == "Validation"
            return Taken(ignored="heading of a record")
        if self._step is None:
            return None
        values = dict(self._values(line.text))
        if not values:
            return None
        reading = Reading(
            step=self._step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def _values(self, text: str) -> Iterable[tuple[str, float]]:
        """What a bullet or the cells of a table's row say."""
        bullet = _BULLET.match(text)
        if bullet is not None:
            yield from self._bullet(text, bullet["key"], bullet["value"])
            return
        for key, said in _CELLS.findall(text):
            value = scaled(said)
            if value is not None:
                name, factor = _CELL_NAMES.get(_bare(key), (f"raw/{key}", 1.0))
                yield name, value * factor

    def _bullet(self, text: str, key: str, said: str) -> Iterable[tuple[str, float]]:
        per_rank = _PER_RANK.search(text) if key == "Training FLOPS" else None
        value = scaled(said if per_rank is None else per_rank[1])
        if value is None:
            return
        raw = (f"raw/{key}", 1.0)
        if per_rank is not None:
            raw = ("tflops_per_gpu", 1.0)
        name, factor = raw if self._validation else _NAMES.get(key, raw)
        yield name, value * factor

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """No bulk way."""


def _bare(key: str) -> str:
    for part in _PARTS:
        key = key.removeprefix(part)
    return key


DIALECT = Dialect(
    name="rl_blocks",
    markers=("= Step ", "Train step ", " Results:", "• ", "│ ", "E2E (Tokens/sec/gpu)"),
    reader=BlocksReader,
    about="RL trainers in lists and tables: NeMo RL, AReaL",
)
