"""All findings of all runs as one Parquet table, for users' own queries."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from loganalyze.model import Finding
from loganalyze.report.model import RunView, best_cause

#: One row a finding. statistics: a JSON object; cause, confidence: of its incident's best cause.
SCHEMA: Mapping[str, pl.DataType] = {
    "run": pl.String(), "framework": pl.String(), "id": pl.String(), "code": pl.String(),
    "kind": pl.String(), "severity": pl.String(), "metric": pl.String(), "rank": pl.Int64(),
    "segment": pl.Int64(), "step_first": pl.Int64(), "step_last": pl.Int64(),
    "step_peak": pl.Int64(), "incident": pl.String(), "first_mover": pl.Boolean(),
    "cause": pl.String(), "confidence": pl.Float64(), "path": pl.String(), "line": pl.Int64(),
    "statistics": pl.String(),
}  # fmt: skip


def findings_frame(runs: Sequence[RunView]) -> pl.DataFrame:
    """The table of SCHEMA: runs in their order, findings by severity and step."""
    rows = [_row(run, finding) for run in runs for finding in run.findings.values()]
    return pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")


def findings_parquet(runs: Sequence[RunView]) -> bytes:
    """The same as the bytes of a Parquet file."""
    file = io.BytesIO()
    frame = findings_frame(runs)
    frame.write_parquet(file, compression="zstd", metadata={"schema": "loganalyze.findings/1"})
    return file.getvalue()


def _row(run: RunView, finding: Finding) -> dict[str, Any]:
    incident = next((i for i in run.incidents if finding.id in i.findings), None)
    cause = best_cause(incident) if incident is not None else None
    ref = next((e.ref for e in finding.evidence if e.ref is not None), None)
    source = run.source(ref)
    statistics = json.dumps(dict(sorted(finding.statistics.items())), ensure_ascii=False)
    return {
        "run": run.id, "framework": run.diagnosis.run.meta.framework,
        **{name: getattr(finding, name) for name in (
            "id", "code", "kind", "severity", "metric", "rank", "segment", "step_first",
            "step_last", "step_peak",
        )},
        "incident": incident.id if incident else None,
        "first_mover": incident is not None and incident.first_mover == finding.id,
        "cause": cause.id if cause else None, "confidence": cause.confidence if cause else None,
        "path": source.path if source else None, "line": ref.line if ref else None,
        "statistics": statistics,
    }  # fmt: skip
