"""The runs behind the paths of a comparison, each with a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from loganalyze.errors import UnreadableInput, UsageError
from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.reading import Progress


def load_runs(paths: Sequence[str], progress: Progress | None = None) -> tuple[RunLog, ...]:
    """Every run with numbers, in the order of the paths; ids are made unique.

    Each path is read by itself, so that files of one name in two folders stay two runs. Raises
    UnreadableInput for a path without any number, UsageError for fewer than two runs.
    """
    found: list[tuple[str, RunLog]] = []
    for path in paths:
        runs = [run for run in ingest([path], progress=progress).runs if len(run.readings)]
        if not runs:
            raise UnreadableInput(
                f"{path}: no metric was found in it", hint="`loganalyze diagnose` says why"
            )
        found.extend((path, run) for run in runs)
    if len(found) < 2:
        raise UsageError("one run alone cannot be compared", hint="name a second log or run")
    return _named(found)


def _named(found: Sequence[tuple[str, RunLog]]) -> tuple[RunLog, ...]:
    """Runs whose ids agree get their folder's name in front, else a number behind."""
    ids = [run.meta.id for _, run in found]
    longer = [
        run.meta.id if ids.count(run.meta.id) == 1 else f"{Path(path).parent.name}/{run.meta.id}"
        for path, run in found
    ]
    seen: dict[str, int] = {}
    named = []
    for name, (_, run) in zip(longer, found, strict=True):
        seen[name] = seen.get(name, 0) + 1
        unique = name.lstrip("/") if seen[name] == 1 else f"{name.lstrip('/')}-{seen[name]}"
        named.append(replace(run, meta=replace(run.meta, id=unique)))
    return tuple(named)
