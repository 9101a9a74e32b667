"""A replay's result as JSON, schema loganalyze.replay/1."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from loganalyze import __version__
from loganalyze.plain_data import as_dict
from loganalyze.replay.measured import gradient_norms, groups, sample_spread
from loganalyze.replay.result import Result

SCHEMA = "loganalyze.replay/1"


def render(result: Result) -> str:
    """Every field of the result, with what is derived from it; NaN and infinities as strings."""
    losses = result.measured.samples.losses if result.measured.samples else ()
    document = {
        "schema": SCHEMA, "version": __version__, **as_dict(result),
        "gradient_groups": groups(result.measured.parameters),
        "gradient_norms": gradient_norms(result.measured.parameters),
        "sample_spread": sample_spread(losses),
    }  # fmt: skip
    return json.dumps(_strict(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
