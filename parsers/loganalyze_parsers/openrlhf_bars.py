"""Which of OpenRLHF's bars are rows: those of single updates, unless the trainer says its steps.

    Train epoch [1/1]:  50%|#####     | 4/8 [00:12<00:12,  3.00s/it, policy_loss=-0.1, reward=1.2]
    Episode [1/2]:  25%|##5       | 1/4 [00:40<02:00, 40.0s/it, policy_loss=-0.1, reward=1.2]
    Global step 1: {'policy_loss': -0.1, 'reward': 1.2}

The bar of the rollouts and the line with the trainer's step say the means of the updates before.
Where there are such lines, their steps are the run's, and updates are no rows beside them.
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze.model import Reading

#: What the trainer writes before its own step.
STEP_MARK = "Global step "
_UPDATES = lazy.pattern(r"Train epoch \[(\d{1,6})/")
_ROLLOUTS = "Episode ["
_BEFORE = 40  # characters that may hold a bar's description
_MOST_HELD = 10_000


class Updates:
    """The rows of the first update, held until it is known whether the trainer says its steps."""

    def __init__(self) -> None:
        """No bar yet."""
        self._held: list[Reading] = []
        self._seen = self._told = self._settled = False
        self._epoch, self._done = 0, 0

    def steps_are_told(self) -> None:
        """A line with the trainer's own step: what is held is summed up by it."""
        self._told = True
        self._held.clear()

    def is_summed_up(self, text: str, start: int) -> bool:
        """Whether the numbers of the bar at `start` stand elsewhere as well."""
        before = text[max(start - _BEFORE, 0) : start]
        if _UPDATES.search(before) is not None:
            self._seen = True
            return self._told
        return self._seen and _ROLLOUTS in before

    def push(self, text: str, start: int, done: int, row: Reading) -> list[Reading]:
        """The rows that are sure now; `row` is that of the bar at `start`."""
        found: re.Match[str] | None = None
        if not self._settled:
            found = _UPDATES.search(text, max(start - _BEFORE, 0), start)
        if found is None:
            return [row]
        epoch = int(found[1])
        again = epoch < self._epoch or (epoch == self._epoch and done < self._done)
        self._epoch, self._done = epoch, done
        self._held.append(row)
        if not again and len(self._held) < _MOST_HELD:
            return []
        self._settled = True
        return self.flush()

    def flush(self) -> list[Reading]:
        """All rows that are still held."""
        held, self._held = self._held, []
        return held
