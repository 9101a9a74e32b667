"""Which levels of the observability pyramid a log reaches, what is missing and how to log it.

The pyramid is seed C §2 (L1 scalars to L7 system), the black box seed A §5.3. What each level
answers, how often it is worth logging and a snippet for every trainer are in coverage.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from loganalyze.config import load_data, metrics
from loganalyze.model import READING_COLUMNS, RunLog


class Level(Struct, frozen=True, kw_only=True):
    """One level: what it answers, the metrics of this log, those that are not there.

    every: how often to log it. key: the metrics that matter most at this level.
    """

    name: str
    title: Mapping[str, str]
    answers: Mapping[str, str]
    every: Mapping[str, str]
    present: tuple[str, ...]
    missing: tuple[str, ...]


class Item(Struct, frozen=True, kw_only=True):
    """An entry of the black box and whether this log holds it."""

    name: str
    title: Mapping[str, str]
    held: bool


class Coverage(Struct, frozen=True, kw_only=True):
    """The levels from L1 to L7, the black box, and what to paste into the trainer in use."""

    levels: tuple[Level, ...]
    black_box: tuple[Item, ...]
    trainer: str
    snippet: str


@cache
def _data() -> Mapping[str, Any]:
    return load_data("coverage.toml")


def coverage_of(run: RunLog) -> Coverage:
    """What a run's log covers."""
    columns = _columns(run)
    trainer = trainer_of(run)
    return Coverage(
        levels=tuple(_level(name, entry, columns) for name, entry in _data()["level"].items()),
        black_box=tuple(_item(name, entry, run, columns)
                        for name, entry in _data()["black_box"].items()),
        trainer=trainer,
        snippet=str(_data()["snippet"][trainer]).strip(),
    )  # fmt: skip


def trainer_of(run: RunLog) -> str:
    """The trainer whose snippet fits, by who wrote the lines; `plain` for any other."""
    told = run.meta.framework.lower()
    return next((name for word, name in _data()["trainer"].items() if word in told), "plain")


def _columns(run: RunLog) -> frozenset[str]:
    frame = run.readings
    return frozenset(
        name for name in frame.columns
        if name not in READING_COLUMNS and frame[name].null_count() < len(frame)
    )  # fmt: skip


def _level(name: str, entry: Mapping[str, Any], columns: frozenset[str]) -> Level:
    known = metrics()
    own = tuple(sorted(c for c in columns if c in known and known[c].level == name))
    return Level(
        name=name, title=entry["title"], answers=entry["answers"], every=entry["every"],
        present=own, missing=tuple(m for m in entry["key"] if m not in columns),
    )  # fmt: skip


def _item(name: str, entry: Mapping[str, Any], run: RunLog, columns: frozenset[str]) -> Item:
    held = any(metric in columns for metric in entry.get("metrics", ()))
    settings = {key.rsplit(".", 1)[-1].lower() for key in run.meta.config}
    held = held or any(key in settings for key in entry.get("settings", ()))
    held = held or (name == "step" and run.readings["step"].null_count() < len(run.readings))
    return Item(name=name, title=entry["title"], held=held)
