"""What is not a curve: settings that differ, and what each run took."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from loganalyze.compare.curves import curve
from loganalyze.compare.model import Cost, SettingDifference
from loganalyze.model import RunLog
from loganalyze.sequence_length import largest, plain_value, sequence_length


def setting_differences(
    base: Mapping[str, str], other: Mapping[str, str]
) -> tuple[SettingDifference, ...]:
    """Settings whose values differ, by name; `1e-4` and `0.0001`, `true` and `True` are the same.

    Empty where one of the logs has no configuration: then nothing can be said.
    """
    if not base or not other:
        return ()
    return tuple(
        SettingDifference(name=name, base=base.get(name), other=other.get(name))
        for name in sorted({*base, *other})
        if not _same(base.get(name), other.get(name))
    )


def _same(one: str | None, two: str | None) -> bool:
    if one is None or two is None:
        return one == two
    return one == two or plain_value(one) == plain_value(two)


def cost(run: RunLog) -> Cost:
    """Steps, steps run twice, wall-clock seconds and tokens of a run, as far as the log says."""
    rows = run.readings
    steps = rows["step"].max()
    walls = rows["wall_s"].drop_nulls()
    first, last = walls.min(), walls.max()
    known = isinstance(first, float) and isinstance(last, float) and last > first
    return Cost(
        steps=steps if isinstance(steps, int) else None,
        repeated=sum(segment.superseded_steps for segment in run.meta.segments),
        seconds=float(last) - float(first) if known else _summed(run),  # type: ignore[arg-type]
        tokens=_tokens(run),
    )


def _summed(run: RunLog) -> float | None:
    """Time per step times steps, where no line has a clock time."""
    times = curve(run, "step_time_s")
    if len(times.steps) < 2:
        return None
    span = float(times.steps[-1] - times.steps[0]) + 1
    middle = pl.Series(times.values).fill_nan(None).median()
    return span * middle if isinstance(middle, float) else None


def _tokens(run: RunLog) -> float | None:
    """Tokens seen as logged, else samples seen times the sequence length."""
    rows = run.readings
    if "tokens_seen" in rows.columns:
        return largest(rows["tokens_seen"])
    if "samples_seen" not in rows.columns:
        return None
    samples = largest(rows["samples_seen"])
    length = sequence_length(run)
    return samples * length if samples is not None and length else None
