"""A comparison as one JSON document, schema loganalyze.compare/1."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from loganalyze import __version__
from loganalyze.compare.model import Comparison
from loganalyze.plain_data import as_dict
from loganalyze.report.numbers import nonfinite_name

SCHEMA = "loganalyze.compare/1"


def comparison_json(comparison: Comparison) -> str:
    """The document; NaN and infinities are strings. The same runs give the same bytes."""
    told = as_dict(comparison)
    runs = [{"id": name, "cost": cost} for name, cost in told.pop("costs")]
    document = {"schema": SCHEMA, "version": __version__, "runs": runs, **told}
    return json.dumps(_finite(document), ensure_ascii=False, allow_nan=False, indent=1)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else nonfinite_name(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
