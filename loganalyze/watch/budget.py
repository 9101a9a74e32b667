"""When a look at the run is due: soon after an alarm, else as often as little CPU allows."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, process_time

from msgspec import Struct, field

#: Share of a core for regular looks, and as much again for looks after an alarm.
SHARE = 0.015
#: CPU seconds that alarms may use at once; earned again at SHARE.
ALARM_SECONDS = 5.0
#: No look sooner after the last one than this, in seconds.
_LEAST = 0.7


class Budget(Struct):
    """CPU time spent on looking. clock and cpu: seconds, replaced by tests."""

    clock: Callable[[], float] = monotonic
    cpu: Callable[[], float] = process_time
    _ended: float = field(default=float("-inf"))
    _cost: float = 0.0
    _purse: float = ALARM_SECONDS

    def due(self, urgent: bool) -> bool:
        """Whether to look now."""
        since = self.clock() - self._ended
        if since < _LEAST:
            return False
        if urgent and self._purse > 0:
            return True
        return since >= self._cost / SHARE

    def look(self, work: Callable[[], None], urgent: bool) -> None:
        """Do the work and remember what it cost."""
        waited = self.clock() - self._ended
        before = self.cpu()
        work()
        self._cost = self.cpu() - before
        self._ended = self.clock()
        earned = SHARE * waited if waited != float("inf") else 0.0
        self._purse = min(self._purse + earned, ALARM_SECONDS) - (self._cost if urgent else 0.0)
