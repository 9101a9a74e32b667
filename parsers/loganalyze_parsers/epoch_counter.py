"""Steps that begin anew with every epoch, counted through.

    Epoch [1/5], Step [464/464], Loss: 0.31
    Epoch [2/5], Step [10/464], Loss: 0.28

Whether a loop's counter does so is seen where the epoch moves on and the counter goes back. An
epoch that comes again (a run that was begun anew) has the steps it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class EpochCounter:
    """The step before each epoch, as far as they were seen.

    >>> counter = EpochCounter()
    >>> [counter.step(1, 100, 464), counter.step(1, 460, 464), counter.step(2, 100, 464)]
    [100, 460, 564]
    >>> counter = EpochCounter()  # a counter of the whole run
    >>> [counter.step(1, 460, 900), counter.step(2, 470, 900)]
    [460, 470]
    """

    _bases: dict[int, int] = field(default_factory=dict)
    _epoch: int | None = None
    _count: int = 0

    def step(self, epoch: int | None, count: int, total: int | None) -> int:
        """The step of the whole run. total: the length of an epoch, where the line says it."""
        if epoch is None:
            return count
        if epoch not in self._bases:
            self._bases[epoch] = self._base_of(epoch, count, total)
        self._epoch, self._count = epoch, count
        return self._bases[epoch] + count

    def _base_of(self, epoch: int, count: int, total: int | None) -> int:
        before = self._epoch
        if before is None:
            return 0
        base = self._bases[before]
        if epoch < before:
            return max(base - (before - epoch) * (total or 0), 0)
        if count > self._count:
            return base
        return base + (epoch - before) * (total or self._count + (count == 0))
