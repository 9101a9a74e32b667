"""One exception base: whatever the command line may show as a single line to its user."""

from __future__ import annotations


class LoganalyzeError(Exception):
    """A failure the user can act on: what happened, where, what to do next."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message apart from the hint, so that callers may print either."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LoganalyzeError):
    """Wrong use: an unknown option value, a bad configuration file (exit code 2)."""

    exit_code = 2


class UnreadableInput(LoganalyzeError):
    """An input that cannot be read, or holds no metric at all (exit code 3)."""

    exit_code = 3


class StoreError(LoganalyzeError):
    """A run directory that is missing, damaged or written by a newer version (exit code 3)."""

    exit_code = 3


class OutputError(LoganalyzeError):
    """An output that cannot be written: a full disk, a read-only folder (exit code 4)."""


class Incomplete(LoganalyzeError):
    """A limit was reached: what was read is analysed, the rest is named (exit code 5)."""

    exit_code = 5
