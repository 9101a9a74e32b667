"""How many tokens a sample has: what turns samples into tokens."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from loganalyze.model import RunLog


def sequence_length(run: RunLog) -> float | None:
    """Tokens of a sample: as logged, else by the configuration; None where neither says."""
    if "seq_len" in run.readings.columns:
        return largest(run.readings["seq_len"])
    return _length(run.meta.config)


def _length(config: Mapping[str, str]) -> float | None:
    for name in ("seq_length", "max_seq_length", "seq_len", "sequence_length"):
        value = plain_value(config.get(name, ""))
        if isinstance(value, float):
            return value
    return None


def largest(column: pl.Series) -> float | None:
    """The largest number of a column; None without any."""
    value = column.fill_nan(None).max()
    return float(value) if isinstance(value, int | float) else None


def plain_value(text: str) -> str | float:
    """A setting's value as a number where it is one, else in small letters without quotes.

    >>> plain_value("1e3"), plain_value("'True' ")
    (1000.0, 'true')
    """
    bare = text.strip().strip("'\"").lower()
    try:
        return float(bare)
    except ValueError:
        return bare
