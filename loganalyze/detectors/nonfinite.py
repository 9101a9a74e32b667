"""loss_nonfinite, grad_nonfinite: NaN or Inf, one finding for each stretch."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import falls, is_excerpt
from loganalyze.model import Evidence, Finding, Severity
from loganalyze.series import stretches
from loganalyze.tracks import Track, row_ref

MOST = 20
_OTHERS = "aux_loss/"
#: What a row of a training step tells beside its loss and gradient norm.
_BESIDE = ("skipped_steps", "lr", "samples_seen", "step_time_s")
_NO_ROWS = pl.DataFrame(schema={"row": pl.UInt32, "step": pl.Int64, "grad_norm": pl.Float64})


def loss_run(context: Context) -> list[Finding]:
    """NaN or Inf in the loss, NaN steps that the trainer counted, losses that fail to appear."""
    found: list[Finding] = []
    for track in _losses(context):
        bad = ~np.isfinite(track.values)
        found.extend(_loss_stretch(context, track, a, b) for a, b in _grouped(context, bad))
    found.extend(_counted(context, found))
    found.extend(_absent(context, found))
    found.extend(_parts(context, found))
    found.extend(_evaluations(context, found))
    return found


def _losses(context: Context) -> tuple[Track, ...]:
    """The loss; in a run that prints none (PPO's actor and critic), every loss that it prints."""
    if context.has("loss"):
        return context.tracks("loss")
    return tuple(track for name in context.family(_OTHERS) for track in context.tracks(name))


def _parts(context: Context, known: list[Finding]) -> list[Finding]:
    """Parts of the loss (a critic's, a router's) that stay NaN or Inf while the loss is finite."""
    if not context.has("loss"):
        return []
    passing = context.value("nonfinite.passing_points")
    found = []
    for name in context.family(_OTHERS):
        for track in context.tracks(name):
            bad = ~np.isfinite(track.values)
            for first, last in _grouped(context, bad):
                covered = any(_covers(item, int(track.steps[first])) for item in known)
                if not covered and (bad[first : last + 1].sum() > passing or bad.all()):
                    found.append(_stretch(context, track, first, last, "loss_nonfinite", "warning"))
    return found[:MOST]


def _evaluations(context: Context, known: list[Finding]) -> list[Finding]:
    """Evaluations whose loss is NaN or Inf while the training goes on: no step of it is lost."""
    found = []
    for track in context.tracks("val_loss"):
        bad = ~np.isfinite(track.values)
        for first, last in _of_evaluations(context, bad):
            if any(_covers(item, int(track.steps[first])) for item in known):
                continue
            severity: Severity = "warning"
            if _passes(context, track, first, last) or _never_made(context, track, bad):
                severity = "info"
            made = _stretch(context, track, first, last, "loss_nonfinite", severity)
            found.append(_without(made, "cost_steps"))
    return found[:MOST]


def _of_evaluations(context: Context, bad: np.ndarray) -> list[tuple[int, int]]:
    """Stretches of bad evaluations: a table may say NaN on the rows between two of them."""
    parts = stretches(bad)
    between = [last - first + 1 for first, last in parts if last + 1 < len(bad)]
    if len(between) < 3 or bad.mean() <= 0.5:
        return _grouped(context, bad)
    first, last = parts[-1]
    return [(first, last)] if last - first + 1 > 2 * max(between) else []


def _never_made(context: Context, track: Track, bad: np.ndarray) -> bool:
    """Whether NaN stands on every training row: a column that nobody fills looks the same."""
    if not bad.all() or len(bad) < context.value("nonfinite.column_points"):
        return False
    frame = context.run.readings
    return "loss" in frame.columns and not frame["loss"].gather(track.rows).null_count()


def _without(item: Finding, *keys: str) -> Finding:
    """The finding without statistics that do not hold where the training itself went on."""
    told = {key: value for key, value in item.statistics.items() if key not in keys}
    return replace(item, statistics=told)


def _grouped(context: Context, bad: np.ndarray) -> list[tuple[int, int]]:
    gap = int(context.value("nonfinite.gap_points"))
    found = stretches(bad, gap=gap)
    return found if len(found) <= MOST else stretches(bad, gap=len(bad) // MOST)


def _loss_stretch(context: Context, track: Track, first: int, last: int) -> Finding:
    severity: Severity = "warning" if _passes(context, track, first, last) else "critical"
    return _stretch(context, track, first, last, "loss_nonfinite", severity)


def _passes(context: Context, track: Track, first: int, last: int) -> bool:
    """Whether a stretch is short and finite values follow."""
    after = track.values[last + 1 :]
    short = last - first + 1 <= context.value("nonfinite.passing_points")
    return short and len(after) >= 2 and bool(np.isfinite(after[:2]).all())


def _stretch(
    context: Context, track: Track, first: int, last: int, kind: str, severity: Severity
) -> Finding:
    bad = int((~np.isfinite(track.values[first : last + 1])).sum())
    evidence = [point(context, track, first, "first_nonfinite")]
    before = np.flatnonzero(np.isfinite(track.values[:first]))
    if len(before):
        evidence.insert(0, point(context, track, int(before[-1]), "last_finite"))
    if last + 1 < len(track):
        evidence.append(point(context, track, last + 1, "next_finite"))
    return finding(
        kind,
        severity,
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[last]),
        peak=int(track.steps[first]),
        statistics={
            "nonfinite_points": bad,
            "cost_steps": int(track.steps[last] - track.steps[first]) + track.interval,
            "recovered": "yes" if last + 1 < len(track) else "no",
        },
        threshold=context.thresholds["nonfinite.passing_points"],
        evidence=tuple(evidence),
    )


def _counted(context: Context, known: list[Finding]) -> list[Finding]:
    """Stretches of steps where the trainer itself counted NaN iterations."""
    found = []
    for track in context.tracks("nan_steps"):
        hits = track.values > 0
        for first, last in stretches(hits, gap=int(context.value("nonfinite.gap_points"))):
            step = int(track.steps[first])
            if any(_covers(item, step) for item in known):
                continue
            found.append(
                finding(
                    "loss_nonfinite",
                    "critical",
                    track=track,
                    first=step,
                    last=int(track.steps[last]),
                    peak=step,
                    statistics={"nan_steps": float(np.nanmax(track.values[first : last + 1]))},
                    threshold=context.thresholds["nonfinite.passing_points"],
                    evidence=(point(context, track, first, "nan_steps_counted"),),
                )
            )
    return found


def _covers(item: Finding, step: int) -> bool:
    return item.step_first is not None and item.step_first <= step <= (item.step_last or step)


def _absent(context: Context, known: list[Finding]) -> list[Finding]:
    """Rows of training steps that print everything but the loss, which the trainer does for NaN.

    A step that was skipped has no loss and is no NaN: such rows are left out.
    """
    rows = _rows_without_loss(context.run.readings)
    found = []
    for first, last in _consecutive(rows):
        row = rows.row(first, named=True)
        if any(_covers(item, row["step"]) for item in known):
            continue
        bad = any(
            value is not None and not np.isfinite(value)
            for value in rows["grad_norm"][first : last + 1]
        )
        ref = row_ref(context.run, row["row"])
        found.append(
            finding(
                "loss_nonfinite",
                "warning" if bad else "info",
                metric="loss",
                first=row["step"],
                last=rows["step"][last],
                peak=row["step"],
                statistics={"absent_points": last - first + 1},
                threshold=context.thresholds["nonfinite.passing_points"],
                evidence=(Evidence(label="loss_absent", step=row["step"], ref=ref),),
            )
        )
    return found[:MOST]


def _rows_without_loss(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of a grad norm without a loss and without a skipped step, in a log that has both."""
    wanted = ("loss", "grad_norm")
    if not set(wanted) <= set(frame.columns):
        return _NO_ROWS
    told = [name for name in (*wanted, "step", *_BESIDE) if name in frame.columns]
    own = frame["grad_norm"].is_not_null() & frame["step"].is_not_null()
    lacking = own & frame["loss"].is_null()
    if not lacking.any():
        return _NO_ROWS
    usual = int(lacking.sum()) < 0.5 * int(own.sum())
    place = pl.Series("place", (np.cumsum(own.to_numpy()) - 1)[lacking.to_numpy()], pl.Int64)
    rows = frame.select(told).with_row_index("row").filter(lacking).with_columns(place)
    if "skipped_steps" in rows.columns:
        rows = rows.filter(pl.col("skipped_steps").fill_null(0) == 0)
    other = [c for c in _BESIDE[1:] if c in rows.columns]
    if not other or (not usual and not rows["grad_norm"].is_nan().any()):
        return rows.clear()
    return rows.filter(pl.all_horizontal(pl.col(c).is_not_null() for c in other))


def _consecutive(rows: pl.DataFrame) -> list[tuple[int, int]]:
    if not rows.height:
        return []
    apart = (np.diff(rows["place"].to_numpy()) > 1) | (np.diff(rows["step"].to_numpy()) < 0)
    breaks = np.flatnonzero(apart)
    firsts = [0, *(int(b) + 1 for b in breaks)]
    return list(zip(firsts, [*(int(b) for b in breaks), rows.height - 1], strict=True))


def grad_run(context: Context) -> list[Finding]:
    """NaN or Inf in the gradient norm; single skipped steps of fp16 are only a note."""
    found: list[Finding] = []
    for track in context.tracks("grad_norm"):
        bad = ~np.isfinite(track.values)
        if len(bad) and bad.all() and _learns(context, track):
            found.append(_unmeasured(context, track))
            continue
        for first, last in _grouped(context, bad):
            severity = _grad_severity(context, track, first, last)
            found.append(_stretch(context, track, first, last, "grad_nonfinite", severity))
    return found


def _learns(context: Context, track: Track) -> bool:
    """Whether the loss beside a norm is finite and falls, or moves where the start is not seen."""
    loss = _loss_near(context, track, 0, len(track) - 1)
    if loss is None or not loss["sound"]:
        return False
    falling = falls(context, track.segment, int(track.steps[0]), int(track.steps[-1]))
    return bool(falling) or (falling is not None and is_excerpt(context, track))


def _unmeasured(context: Context, track: Track) -> Finding:
    """NaN on every line while the run learns: the gradients are sound, their norm is not."""
    long = len(track) > context.value("nonfinite.passing_points")
    severity: Severity = "warning" if long else "info"
    made = _stretch(context, track, 0, len(track) - 1, "grad_nonfinite", severity)
    return _without(made, "cost_steps", "recovered")


def _grad_severity(context: Context, track: Track, first: int, last: int) -> Severity:
    bad = ~np.isfinite(track.values[first : last + 1])
    loss = _loss_near(context, track, first, last)
    if loss is not None and loss["frozen_after"]:
        return "critical"
    long = int(bad.sum()) > context.value("nonfinite.passing_points")
    ends = last + 1 >= len(track)
    if long and bad.mean() > 0.5:
        return "critical" if ends or loss is None or not loss["sound"] else "warning"
    if ends and len(track) > 2:
        return "critical" if bad.sum() > 1 else "warning"
    if loss is not None and loss["sound"]:
        return "info"
    return "warning"


def _loss_near(context: Context, track: Track, first: int, last: int) -> dict[str, bool] | None:
    """How the loss is during and after a stretch: finite and not zero; frozen ever after."""
    same = [t for t in context.tracks("loss") if t.segment == track.segment]
    if not same:
        return None
    loss = same[0]
    start, stop = np.searchsorted(loss.steps, (track.steps[first], track.steps[last] + 1))
    during = loss.values[start : stop + 3]
    after = loss.values[stop : stop + 10]
    sound = bool(len(during)) and bool(np.all(np.isfinite(during) & (during != 0)))
    frozen = len(after) >= 3 and bool(np.all(after[1:] == after[1]))
    return {"sound": sound, "frozen_after": frozen}


LOSS = Detector(
    name="loss_nonfinite",
    kinds=("loss_nonfinite",),
    needs=(("loss", "nan_steps", _OTHERS),),
    run=loss_run,
    local=True,
)
GRAD = Detector(
    name="grad_nonfinite",
    kinds=("grad_nonfinite",),
    needs=(("grad_norm",),),
    run=grad_run,
    local=True,
)
