"""What a report says of the finding to replay: its step, and what was logged there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from loganalyze.errors import UnreadableInput, UsageError

_SCHEMA = "loganalyze.report/"
#: Labels of evidence whose value is the metric itself at that step.
_OBSERVED = ("loss_peak", "norm_peak", "loss_onset", "first_nonfinite", "loss_zero")


class Case(Struct, frozen=True, kw_only=True):
    """The finding to replay. step: where it was worst, else where it began."""

    run: str
    finding: str
    step: int | None
    logged: Mapping[str, float]


def read_case(path: Path, finding: str | None) -> Case:
    """A finding of a JSON report (or of the JSON beside an HTML report).

    Without an id, the first mover of the first incident. Raises UsageError naming what there is.
    """
    document = _document(path.with_suffix(".json") if path.suffix == ".html" else path)
    pairs = [(run, item) for run in document["runs"] for item in run["findings"]]
    if not pairs:
        raise UsageError(f"{path}: holds no finding to replay")
    wanted = finding or _first_mover(document["runs"]) or pairs[0][1]["id"]
    found = next((pair for pair in pairs if pair[1]["id"] == wanted), None)
    if found is None:
        ids = ", ".join(item["id"] for _, item in pairs[:8])
        raise UsageError(f"{path}: has no finding '{wanted}'", hint=f"there are: {ids}")
    run, item = found
    steps = [item.get(key) for key in ("step_peak", "step_first", "step_last")]
    step = next((s for s in steps if s is not None), None)
    return Case(run=run["id"], finding=wanted, step=step, logged=_logged(item, step))


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "loganalyze diagnose writes reports/<run>.json"
        raise UnreadableInput(f"{path}: cannot be read ({error.strerror})", hint=hint) from error
    except ValueError as error:
        raise UnreadableInput(f"{path}: not valid JSON: {error}") from error
    if not isinstance(document, Mapping) or not str(document.get("schema")).startswith(_SCHEMA):
        raise UnreadableInput(f"{path}: is no report of loganalyze",
                              hint="loganalyze diagnose LOG writes reports/<run>.json")  # fmt: skip
    return document


def _first_mover(runs: Sequence[Mapping[str, Any]]) -> str | None:
    incidents = [incident for run in runs for incident in run["incidents"]]
    return incidents[0]["first_mover"] if incidents else None


def _logged(item: Mapping[str, Any], step: int | None) -> dict[str, float]:
    """The metric's own value at the step, where the evidence cites it."""
    if item.get("metric") not in ("loss", "grad_norm"):
        return {}
    for evidence in item["evidence"]:
        value = evidence.get("value")
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            value = float(value)
        cited = evidence.get("step") == step and evidence.get("label") in _OBSERVED
        if cited and isinstance(value, int | float):
            return {item["metric"]: float(value)}
    return {}
