"""Chooses what is drawn of each metric: curves per segment and rank, within a budget of points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from weakref import ref

import numpy as np
import polars as pl
from msgspec import Struct, field

from loganalyze.engine import cores
from loganalyze.model import Finding, RunLog
from loganalyze.report import buckets
from loganalyze.report.counted import MetricView
from loganalyze.report.model import RunView
from loganalyze.tracks import FloatArray, IntArray, Outline, Track, outlines, tracks

LEAST_POINTS = 120  # for a series, where the budget has as many
MOST_CHARTS = 80  # a log may carry any number of unknown keys
MOST_LINES, FEW_LINES = 300, 12  # of one chart: ranks times restarts, the longest first
MOST_RANKS = 8  # ranks drawn one by one; more become a band (lowest, median, highest)
BAND_COLUMNS = 240
TELLING = frozenset({"loss", "val_loss", "grad_norm", "reward"})
SMOOTH_WINDOWS = (100, 250, 500)  # steps; the seeds ask for 100 to 500
SMOOTH_POINTS = 120


class Curve(Struct, frozen=True, kw_only=True):
    """One line of a chart. role: raw (logged points) or low, mid, high (over all ranks).

    kept: of `total` logged points these are in `steps` and `values`. gaps: indices after which
    the line breaks. raw: ranges of steps where every logged point is there. again_from: the step
    from which a later segment ran the same steps again (this is then the branch given up).
    """

    segment: int
    rank: int | None
    role: str
    steps: IntArray
    values: FloatArray
    total: int
    gaps: IntArray
    raw: tuple[tuple[int, int], ...]
    smooth_at: IntArray
    smooth: Mapping[int, FloatArray]
    again_from: int | None = None


class Chart(Struct, frozen=True, kw_only=True):
    """A metric with its curves. ranks: how many report it; total: logged points behind it."""

    metric: MetricView
    curves: tuple[Curve, ...]
    ranks: int
    total: int

    @property
    def shown(self) -> int:
        """Logged points that the page holds."""
        return sum(len(curve.steps) for curve in self.curves if curve.role == "raw")


class _Plan(Struct, frozen=True, kw_only=True):
    """A metric, the tracks drawn one by one, and the steps that matter in it.

    The tracks are cut when they are drawn: all at once would fill the memory.
    """

    metric: MetricView
    lines: list[Outline]
    spans: list[tuple[int, int]]


def charts(run: RunView, budget: int) -> tuple[Chart, ...]:
    """A chart for each metric that has steps, canonical ones first, MOST_CHARTS at most."""
    with ThreadPoolExecutor(cores()) as pool:  # numpy and polars leave the interpreter free
        names = [metric.name for metric in run.metrics[:MOST_CHARTS]]
        log = run.diagnosis.run
        plans = _plans(run, budget // 16, pool.map(partial(outlines, log), names))
        shared = _shared(run, plans, budget)
        drawing = _Drawing(window=shared.window, again=_run_again(run))
        draw = partial(_chart, log, drawing)
        return tuple(pool.map(draw, plans, shared.points))


class _Shared(Struct, frozen=True, kw_only=True):
    """The budget divided: points of each line of each plan, and of the window around a span."""

    points: list[list[int]]
    window: int


def _shared(run: RunView, plans: list[_Plan], budget: int) -> _Shared:
    lengths = [line.points for plan in plans for line in plan.lines]
    whole = sum(lengths) <= budget
    base = int(budget * 0.7)
    least = max(4, min(LEAST_POINTS, base // max(1, len(lengths))))
    parts = iter(lengths if whole else buckets.shares(lengths, base, least, _weights(run, plans)))
    places = sum(_meets(line, span) for p in plans for line in p.lines for span in p.spans)
    return _Shared(
        points=[[next(parts) for _ in plan.lines] for plan in plans],
        window=max(24, int(budget * 0.3) // max(1, places)),
    )


def _weights(run: RunView, plans: list[_Plan]) -> list[float]:
    """Per line: metrics that findings are about, and the telling ones, get more of the budget."""
    judged = {finding.metric for finding in run.findings.values()} | TELLING
    return [
        6.0 if plan.metric.name in judged else 0.5 if plan.metric.panel == "other" else 1.0
        for plan in plans
        for _ in plan.lines
    ]


def _plans(run: RunView, lines: int, cut: Iterable[tuple[Outline, ...]]) -> list[_Plan]:
    """The first metrics get up to MOST_LINES each, until `lines` are used; then a few each."""
    plans: list[_Plan] = []
    for metric, made in zip(run.metrics, cut, strict=False):
        if made:
            plans.append(_plan(run, metric, made, max(FEW_LINES, min(MOST_LINES, lines))))
            lines -= len(plans[-1].lines)
    return plans


def _plan(run: RunView, metric: MetricView, made: tuple[Outline, ...], most: int) -> _Plan:
    lines = _lines(run, metric, made)
    longest = {id(line) for line in sorted(lines, key=lambda one: one.points, reverse=True)[:most]}
    kept = lines if len(lines) <= most else [line for line in lines if id(line) in longest]
    return _Plan(metric=metric, lines=kept, spans=_spans(run, metric.name))


def _meets(line: Outline, span: tuple[int, int]) -> bool:
    return line.first <= span[1] and span[0] <= line.last


class _Drawing(Struct, frozen=True, kw_only=True):
    """What all charts of a run share. window: points around a span; again: see _run_again()."""

    window: int
    again: Mapping[int, int]
    silent: dict[int, tuple[ref[IntArray], IntArray]] = field(default_factory=dict)

    def gaps(self, track: Track) -> IntArray:
        """buckets.gaps() of a track; metrics of one line share their steps, and so these."""
        held = self.silent.get(id(track.steps))
        if held is None or held[0]() is not track.steps:
            held = ref(track.steps), buckets.gaps(track.steps, track.interval)
            self.silent[id(track.steps)] = held
        return held[1]


def _chart(log: RunLog, drawing: _Drawing, plan: _Plan, points: list[int]) -> Chart:
    made = tracks(log, plan.metric.name)
    by_place = {(track.segment, track.rank): track for track in made}
    curves = []
    for line, most in zip(plan.lines, points, strict=True):
        track = by_place[line.segment, line.rank]
        spans = [span for span in plan.spans if _meets(line, span)]
        curves.append(_curve(track, most, spans, drawing))
    return Chart(
        metric=plan.metric,
        curves=(*curves, *_band(made)),
        ranks=len({track.rank for track in made}),
        total=sum(len(track) for track in made) if log.whole is None else plan.metric.count,
    )


def _run_again(run: RunView) -> dict[int, int]:
    """For each segment: the first step that a later, resumed segment ran again."""
    found: dict[int, int] = {}
    segments = run.diagnosis.run.meta.segments
    for later in segments:
        for old in segments:
            if later.relation == "resume" and old.index < later.index and later.first <= old.last:
                found[old.index] = min(later.first, found.get(old.index, later.first))
    return found


def _lines(run: RunView, metric: MetricView, made: tuple[Outline, ...]) -> list[Outline]:
    """The tracks drawn one by one: all of a few ranks, else those that findings name."""
    if len({track.rank for track in made}) <= MOST_RANKS:
        return list(made)
    named = [f.rank for f in run.findings.values() if f.metric == metric.name]
    wanted = set(list(dict.fromkeys(named))[:MOST_RANKS])
    return [track for track in made if track.rank in wanted]


def _spans(run: RunView, metric: str) -> list[tuple[int, int]]:
    """Steps of the findings about a metric, and of the incidents that it is part of."""
    found: dict[tuple[int, int], None] = {}
    for finding in run.findings.values():
        if finding.step_first is not None and finding.metric == metric:
            found[_span(finding)] = None
            if finding.step_peak is not None:
                found[finding.step_peak, finding.step_peak] = None
    for incident in run.incidents[:20]:
        first, last = incident.step_first, incident.step_last
        if first is not None and incident.severity != "info":
            found[first, last if last is not None else first] = None
    return list(found)


def _span(finding: Finding) -> tuple[int, int]:
    first = finding.step_first or 0
    return first, finding.step_last if finding.step_last is not None else first


def _curve(track: Track, points: int, spans: list[tuple[int, int]], drawing: _Drawing) -> Curve:
    n = len(track)
    breaks = drawing.gaps(track)
    kept = np.zeros(n, dtype=bool)
    kept[buckets.extremes(track.values, max(1, points // 2) if points < n else n)] = True
    kept |= buckets.windows(track.steps, spans, drawing.window)
    kept[breaks] = True
    kept[np.minimum(breaks + 1, n - 1)] = True
    index = np.flatnonzero(kept)
    at, means = _smoothed(track)
    return Curve(
        segment=track.segment,
        rank=track.rank,
        role="raw",
        steps=track.steps[index],
        values=track.values[index],
        total=n,
        gaps=np.searchsorted(index, breaks),
        raw=tuple(buckets.raw_ranges(track.steps, kept)),
        smooth_at=at,
        smooth=means,
        again_from=drawing.again.get(track.segment),
    )


def _smoothed(track: Track) -> tuple[IntArray, dict[int, FloatArray]]:
    if len(track) < 20:
        return np.empty(0, dtype=np.int64), {}
    places = np.linspace(0, len(track) - 1, min(SMOOTH_POINTS, len(track))).astype(np.int64)
    at = np.unique(track.steps[places])
    span = int(track.steps[-1] - track.steps[0])
    useful = [w for w in SMOOTH_WINDOWS if 2 * track.interval <= w <= span]
    return at, {w: buckets.smooth(track.steps, track.values, w, at) for w in useful}


def _band(made: tuple[Track, ...]) -> tuple[Curve, ...]:
    """Lowest, median and highest over all ranks, where there are too many to draw."""
    if len({track.rank for track in made}) <= MOST_RANKS:
        return ()
    bands: list[Curve] = []
    for segment in sorted({track.segment for track in made}):
        bands += _segment_band(segment, [track for track in made if track.segment == segment])
    return tuple(bands)


def _segment_band(segment: int, made: list[Track]) -> list[Curve]:
    steps = np.concatenate([track.steps for track in made])
    values = np.concatenate([track.values for track in made])
    first, last = int(steps.min()), int(steps.max())
    width = max(1, -(-(last - first + 1) // BAND_COLUMNS))
    table = (
        pl.DataFrame({"at": first + (steps - first) // width * width, "value": values})
        .filter(pl.col("value").is_finite())
        .group_by("at")
        .agg(low=pl.col("value").min(), mid=pl.col("value").median(), high=pl.col("value").max())
        .sort("at")
    )
    at = table["at"].to_numpy().astype(np.int64)
    empty = np.empty(0, dtype=np.int64)
    return [
        Curve(segment=segment, rank=None, role=role, steps=at, values=table[role].to_numpy(),
              total=len(steps), gaps=empty, raw=(), smooth_at=empty, smooth={})
        for role in ("low", "high", "mid")
    ]  # fmt: skip
