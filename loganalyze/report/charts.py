"""What the page's scripts draw from: plotly's own bundle (only here) and the packed curves."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from loganalyze.columns import given
from loganalyze.columns import numbers as numbers_of
from loganalyze.config import load_data
from loganalyze.kept import kept
from loganalyze.model import Finding, Segment
from loganalyze.report.curves import Chart, Curve
from loganalyze.report.model import PANELS, RunView
from loganalyze.report.pack import Packer, squeezed
from loganalyze.report.wording import both, kind_title, metric_label
from loganalyze.segments import distinct, integers, where
from loganalyze.sequence_length import sequence_length
from loganalyze.tracks import FloatArray, IntArray

KNOTS = 400  # per segment: steps with their wall time and token count, to change the axis
MOST_EVENTS = 300
#: Events shown before others where there are too many.
_LOUD = ("exception", "oom", "host_oom", "comm_timeout", "comm_error", "hardware_error", "xid",
         "killed", "signal", "hang", "checkpoint_failed", "disk_full", "time_limit",
         "checkpoint_load", "start_fresh", "rerun_mismatch", "data_exhausted")  # fmt: skip
Json = dict[str, Any]


def plotly_bundle() -> bytes:
    """plotly.js as it lies in the installed wheel; to import plotly for it takes far longer."""
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        bundle = Path(folder, "package_data", "plotly.min.js")
        if bundle.is_file():
            return bundle.read_bytes()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode("utf-8")


def trimmed(script: str) -> str:
    """A known bundle without its parts that plotly.toml lists; any other as it is."""
    digest = hashlib.sha256(script.encode("utf-8")).hexdigest()
    known = {bundle["sha256"]: bundle["drop"] for bundle in load_data("plotly.toml")["bundle"]}
    kept, at = [], 0
    for first, last in known.get(digest, ()):
        kept.append(script[at:first])
        at = last
    return "".join((*kept, script[at:]))


@cache
def _plotly() -> tuple[str, str]:
    """Hash and packed text of what a page needs of plotly.js; made once for a bundle."""
    bundle = plotly_bundle()
    what = json.dumps(load_data("plotly.toml")).encode("utf-8")

    def made() -> list[str]:
        script = trimmed(bundle.decode("utf-8"))
        return [script_hash(script), squeezed(script.encode("utf-8"))]

    digest, packed = kept("plotly", what + bundle, made)
    return digest, packed


def plotly_packed() -> str:
    """plotly.js without what a page never uses of it, compressed and encoded for the page."""
    return _plotly()[1]


def plotly_hash() -> str:
    """Its sha256 as a content security policy names it."""
    return _plotly()[0]


def script_hash(text: str) -> str:
    """A script's hash source: 'sha256-...' (CSP level 2)."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def page_data(run: RunView, drawn: Callable[[], tuple[Chart, ...]]) -> tuple[Json, str]:
    """The facts of a run's charts, and their packed numbers.

    drawn: gives the charts, which may still be at work: what needs none comes first.
    """
    packer = Packer()
    frame = run.diagnosis.run
    facts = {
        "id": run.id,
        "index": run.index,
        "steps": [run.step_first or 0, run.step_last or 0],
        "segments": [_segment(segment) for segment in frame.meta.segments],
        "axes": _axes(run, packer),
        "events": _events(frame.events),
        "columns": FINDING_COLUMNS,
        "titles": {kind: list(kind_title(kind)) for kind in _kinds(run)},
        "findings": [_finding(f) for f in run.findings.values() if f.step_first is not None],
        "charts": [_chart(chart, packer) for chart in drawn()],
    }
    return facts, packer.text()


def _kinds(run: RunView) -> list[str]:
    return sorted({finding.kind for finding in run.findings.values()})


def _segment(segment: Segment) -> Json:
    return {"index": segment.index, "first": segment.first, "last": segment.last,
            "relation": segment.relation, "superseded": segment.superseded_steps}  # fmt: skip


#: A finding is a row of these on the page.
FINDING_COLUMNS = ("id", "kind", "metric", "severity", "first", "last", "peak", "segment")


def _finding(finding: Finding) -> list[object]:
    span = (finding.step_first, finding.step_last, finding.step_peak)
    return [finding.id, finding.kind, finding.metric, finding.severity, *span, finding.segment]


def _chart(chart: Chart, packer: Packer) -> Json:
    metric = chart.metric
    label = metric_label(metric.name)
    return {
        "name": metric.name,
        "unit": metric.unit,
        "panel": metric.panel if metric.panel in PANELS else "other",
        "label": [label.en, label.zh],
        "total": chart.total,
        "shown": chart.shown,
        "ranks": chart.ranks,
        "curves": [_curve(curve, packer) for curve in chart.curves],
    }


def _curve(curve: Curve, packer: Packer) -> Json:
    return {
        "segment": curve.segment,
        "rank": curve.rank,
        "role": curve.role,
        "again": curve.again_from,
        "x": packer.steps(curve.steps),
        "y": packer.values(curve.values),
        "total": curve.total,
        "gaps": curve.gaps.tolist(),
        "raw": packer.steps(_ends(curve)) if len(curve.steps) < curve.total else "all",
        "sx": packer.steps(curve.smooth_at),
        "smooth": {str(window): packer.values(means) for window, means in curve.smooth.items()},
    }


def _ends(curve: Curve) -> IntArray:
    """Both ends of each raw range, one after the other."""
    return np.array(curve.raw, dtype=np.int64).reshape(-1)


def _axes(run: RunView, packer: Packer) -> Json:
    """Per segment: knots that turn steps into wall time and tokens; missing where not logged."""
    frame = run.diagnosis.run.readings
    found: Json = {}
    for axis, value in (("wall", pl.col("wall_s")), ("tokens", _tokens(run))):
        if value is None or not set(value.meta.root_names()) <= set(frame.columns):
            continue
        known = frame.select("segment", "step", value=value)
        knots = {
            str(segment): _knots(steps, values, packer)
            for segment, steps, values in _lowest(known)
            if len(steps) > 1
        }
        if knots:
            found[axis] = knots
    return found


def _lowest(rows: pl.DataFrame) -> Iterator[tuple[int, IntArray, FloatArray]]:
    """Of each segment the steps, growing, and the lowest finite value at each.

    rows: segment, step and value, any of which may be null.
    """
    values = numbers_of(rows["value"])
    told = given(rows["value"]) & given(rows["step"]) & given(rows["segment"])
    known = np.flatnonzero(told & np.isfinite(values))
    segments, steps = integers(rows["segment"])[known], integers(rows["step"])[known]
    values = values[known]
    for segment in distinct(segments).tolist():
        own = where(segments == segment)
        at, value = steps[own].astype(np.int64), values[own]
        if not (at[1:] > at[:-1]).all():
            order = np.argsort(at, kind="stable")  # nearly in order, as a rule
            at, value = at[order], value[order]
            firsts = np.flatnonzero(np.diff(at, prepend=at[:1] - 1))
            at, value = at[firsts], np.minimum.reduceat(value, firsts)
        yield segment, at, value


def _tokens(run: RunView) -> pl.Expr | None:
    """Tokens seen as logged, else samples seen times the sequence length; None if not told."""
    log = run.diagnosis.run
    if "tokens_seen" in log.readings.columns:
        return pl.col("tokens_seen")
    length = sequence_length(log)
    return pl.col("samples_seen") * length if length else None


def _knots(steps: IntArray, values: FloatArray, packer: Packer) -> list[object]:
    at = np.unique(np.linspace(0, len(steps) - 1, min(KNOTS, len(steps))).astype(np.int64))
    return [packer.steps(steps[at]), packer.exact(np.maximum.accumulate(values[at]))]


def _events(events: pl.DataFrame) -> list[Json]:
    known = events.filter(pl.col("step").is_not_null())
    loud = known.filter(pl.col("kind").is_in(_LOUD)).head(MOST_EVENTS)
    quiet = known.filter(~pl.col("kind").is_in(_LOUD) & ~pl.col("kind").is_in(["config", "note"]))
    room = MOST_EVENTS - loud.height
    if quiet.height > room:
        quiet = quiet[np.linspace(0, quiet.height - 1, max(0, room)).astype(np.int64).tolist()]
    rows = pl.concat([loud, quiet]).sort("step", maintain_order=True)
    wanted = rows.select("kind", "step", "segment", "rank", "text").iter_rows(named=True)
    return [_event(row) for row in wanted]


def _event(row: Json) -> Json:
    return {**row, "text": row["text"][:160], "label": list(both(f"ui_event_{row['kind']}"))}
