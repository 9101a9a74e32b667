"""`--baseline RUN`: healthy runs, what was learnt of them, and where that is kept.

What a run directory of `ingest` taught is stored in it (normal.json) and read from there the next
time; a raw log is learnt from anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.config import Thresholds
from loganalyze.detectors import Context, detect
from loganalyze.detectors.normal import Normal, dump, learn, load
from loganalyze.errors import UnreadableInput
from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.store import is_run

SCHEMA = "loganalyze.normal/1"
FILE = "normal.json"


class Baseline(Struct, frozen=True, kw_only=True):
    """Healthy runs and what they taught. The first run is the one that reports lay beside."""

    runs: tuple[RunLog, ...]
    normals: tuple[Normal, ...]


def load_baseline(paths: Sequence[str], thresholds: Thresholds) -> Baseline | None:
    """The runs behind the paths, learnt or read back; None without a path.

    Raises UnreadableInput for a path that holds no metric.
    """
    runs: list[RunLog] = []
    normals: list[Normal] = []
    for path in paths:
        made = [run for run in ingest([path]).runs if len(run.readings)]
        if not made:
            raise UnreadableInput(
                f"--baseline {path}: no metric was found in it",
                hint="`loganalyze diagnose` says why",
            )
        for run in made:
            runs.append(run)
            normals.append(_normal(run, path, thresholds))
    return Baseline(runs=tuple(runs), normals=tuple(normals)) if runs else None


def _normal(run: RunLog, path: str, thresholds: Thresholds) -> Normal:
    place = Path(path) / FILE
    stored = is_run(Path(path))
    if stored and (known := _stored(place)) is not None:
        return replace(known, name=run.meta.id)
    with np.errstate(all="ignore"):
        findings, _ = detect(run, thresholds)
        context = Context(run=run, thresholds=thresholds, profile=thresholds.profile)
        normal = learn(context, run.meta.id, findings)
    if stored:
        with suppress(OSError):  # a folder that may only be read keeps nothing; it is learnt again
            text = json.dumps({"schema": SCHEMA, **dump(normal)}, indent=1, sort_keys=True)
            place.write_text(text + "\n", encoding="utf-8")
    return normal


def _stored(place: Path) -> Normal | None:
    """What a run directory keeps; None where it keeps nothing, or something of another version."""
    try:
        entry = json.loads(place.read_text(encoding="utf-8"))
        if entry.pop("schema") != SCHEMA:
            return None
        return load(entry)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
