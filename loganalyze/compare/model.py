"""What a comparison is made of."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Judgement = Literal["better", "worse", "same", "different", "unclear"]


class Parting(Struct, frozen=True, kw_only=True):
    """Where the curves of a metric part for good, if they do.

    A change of the difference that is seen at `step` began within (after, step]; after: None where
    they differ from the start. first_unequal:
    the first common step with different numbers, None if all are equal. band: half width of the
    noise band of the smoothed difference, in the metric's unit. higher: whether the other run
    lies above from there on; a NaN counts as above any number.
    """

    first_unequal: int | None
    step: int | None
    after: int | None
    higher: bool | None
    band: float
    sigmas: float
    window: int  # points of the running median
    points: int  # common steps


class MetricDifference(Struct, frozen=True, kw_only=True):
    """One metric over the common steps: medians, and the median of (other - base).

    low, high: 95 % interval of that median. late: the same over the last fifth of the steps.
    """

    metric: str
    unit: str
    points: int
    base: float
    other: float
    difference: float
    low: float
    high: float
    late: float
    base_nonfinite: int
    other_nonfinite: int
    equal: bool  # the same number at every common step
    judgement: Judgement


class SettingDifference(Struct, frozen=True, kw_only=True):
    """A setting with two values; None where a run does not say it."""

    name: str
    base: str | None
    other: str | None


class Cost(Struct, frozen=True, kw_only=True):
    """What a run took. seconds: wall clock from its first to its last line; None if unknown."""

    steps: int | None  # last step reached
    repeated: int  # steps that were run again after restarts
    seconds: float | None
    tokens: float | None


class Pair(Struct, frozen=True, kw_only=True):
    """One run against the base."""

    other: str
    common_first: int | None
    common_last: int | None
    common: int
    parting: Parting | None  # None: too few common steps of the loss
    metrics: tuple[MetricDifference, ...]
    settings: tuple[SettingDifference, ...]
    settings_known: tuple[int, int]  # settings in the logs of base and other
    verdict: Judgement  # by validation loss, else loss, else reward


class Comparison(Struct, frozen=True, kw_only=True):
    """All runs against the first."""

    base: str
    costs: tuple[tuple[str, Cost], ...]
    pairs: tuple[Pair, ...]
