"""loss_oscillation, loss_discontinuity, loss_misscaled: noise that grows, edges, wrong units."""

from __future__ import annotations

import math

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, curves
from loganalyze.model import Finding, Severity
from loganalyze.running import median, row_medians
from loganalyze.series import Floats, mad_sigma, slope

#: Evaluations that are compared with the training loss around them; more say the same.
_MOST_COMPARED = 500
_BLOCKS = 24
_MOST_MICRO_BATCHES = 1e6
_ACCUMULATION = ("gradient_accumulation_steps", "gradient_accumulation_step", "num_microbatches")
_PARALLEL = ("tensor_model_parallel_size", "data_parallel_size", "world_size", "num_processes")
_VOCABULARY = ("padded_vocab_size", "vocab_size")


def oscillation(context: Context) -> list[Finding]:
    """Point-to-point noise of the last part many times that of the calmest part before."""
    if context.profile == "rl":
        return []
    found = []
    for curve in curves(context):
        values = curve.y[curve.skip :]
        size = len(values) // _BLOCKS
        if not curve.log or size < context.value("loss_oscillation.block_points"):
            continue
        noise = _block_noise(values, size)
        calm = np.minimum.accumulate(noise)
        grown = noise >= context.value("loss_oscillation.growth") * np.maximum(calm, 0.005)
        wild = grown & (noise >= context.value("loss_oscillation.noise"))
        lasting = int(context.value("loss_oscillation.blocks"))
        if not wild[-lasting:].all():
            continue
        first = curve.skip + (len(wild) - _trailing(wild)) * size
        found.append(
            finding(
                "loss_oscillation",
                "warning",
                track=curve.track,
                first=int(curve.steps[first]),
                last=int(curve.steps[-1]),
                peak=int(curve.steps[first + int(np.argmax(curve.y[first:]))]),
                statistics={
                    "noise_share": median(noise[-lasting:]),
                    "calm_share": float(calm[-1]),
                },
                threshold=context.thresholds["loss_oscillation.growth"],
                evidence=(
                    point(context, curve.track, int(curve.at[first]), "loss_onset", unit="nat"),
                    point(context, curve.track, int(curve.at[-1]), "loss_end", unit="nat"),
                ),
            )
        )
    return found


def _block_noise(y: Floats, size: int) -> Floats:
    """Robust deviation of neighbours' differences in each block, over sqrt(2)."""
    steps = np.diff(y)
    count = len(steps) // size
    parts = steps[len(steps) - count * size :].reshape(count, size)
    centre = row_medians(parts)[:, None]
    return np.asarray(1.4826 * row_medians(np.abs(parts - centre)) / np.sqrt(2.0))


def _trailing(mask: np.ndarray) -> int:
    wrong = np.flatnonzero(~mask)
    return len(mask) - (int(wrong[-1]) + 1 if len(wrong) else 0)


def discontinuity(context: Context) -> list[Finding]:
    """The loss after a resume beside the trend before it, at the same step."""
    resumed = {s.index for s in context.run.meta.segments if s.relation == "resume"}
    known = curves(context)
    found = []
    for curve in known:
        if curve.track.segment not in resumed or context.profile == "rl":
            continue
        before = [
            c for c in known
            if c.track.segment < curve.track.segment and c.track.rank == curve.track.rank
        ]  # fmt: skip
        if before:
            found += _edge(context, before, curve)
    return found


def _edge(context: Context, before: list[Curve], after: Curve) -> list[Finding]:
    expected, noise, count = _trend_at(before, int(after.steps[0]))
    window = after.values[: int(context.value("loss_discontinuity.window"))]
    if count < 5 or len(window) < 3:
        return []
    level = median(window)
    error = noise * math.sqrt(1.57 / len(window) + 1.57 / count)
    jump = level - expected
    z = jump / max(error, context.value("loss_spike.floor_nat"))
    if abs(z) < context.value("loss_discontinuity.z"):
        return []
    ratio = level / expected if expected > 0 else 1.0
    later = after.values[len(window) : 4 * len(window)]
    stays = len(later) >= 3 and median(later) - expected > 0.5 * jump
    severity: Severity = "info"
    if jump >= context.value("loss_spike.nat_warning") and ratio > context.value(
        "loss_discontinuity.ratio_warning"
    ):
        worst = ratio > 1.0 + context.value("loss_spike.rise_major") and stays
        severity = "critical" if worst else "warning"
    elif abs(ratio - 1.0) < context.value("loss_discontinuity.ratio_info"):
        return []
    last = min(len(window), len(after.values)) - 1
    return [
        finding(
            "loss_discontinuity",
            severity,
            track=after.track,
            first=int(after.steps[0]),
            last=int(after.steps[last]),
            peak=int(after.steps[0]),
            statistics={
                "expected": expected, "level": level, "jump_nat": jump, "ratio": ratio, "z": z,
                "stays": "yes" if stays else "no",
            },
            threshold=context.thresholds["loss_discontinuity.z"],
            evidence=(
                point(context, before[-1].track, int(before[-1].at[-1]), "loss_before", unit="nat"),
                point(
                    context, after.track, int(after.at[0]), "loss_onset", unit="nat",
                    expected=f"{expected:.4g}",
                ),
            ),
        )
    ]  # fmt: skip


def _trend_at(before: list[Curve], step: int) -> tuple[float, float, int]:
    """Loss expected at a step from the points around and before it, its noise, their number."""
    for curve in reversed(before):
        upto = int(np.searchsorted(curve.steps, step, side="right"))
        around = slice(max(0, upto - 60), min(len(curve.values), upto + 20))
        steps, values = curve.steps[around], curve.values[around]
        if len(values) >= 5 and upto > 0:
            fit = slope(steps.astype(np.float64), values)
            rest = values - fit.intercept - fit.slope * steps
            steady = abs(fit.z) > 3
            place = fit.intercept + fit.slope * min(step, int(steps[-1]))
            centre = place if steady else median(values)
            return float(centre), max(mad_sigma(rest), 1e-6), len(values)
    return 0.0, 0.0, 0


def misscaled(context: Context) -> list[Finding]:
    """A first loss that is chance times the accumulation steps, or chance plus ln(ranks).

    Or a training loss that stands at the accumulation steps times the validation loss.
    """
    known = [c for c in curves(context) if c.track.segment == 0]
    if not known or context.profile == "rl":
        return []
    return _beside_chance(context, known[0]) or _beside_validation(context, known[0])


def _beside_chance(context: Context, curve: Curve) -> list[Finding]:
    chance = _chance(context)
    if chance is None or int(curve.steps[0]) > 10 * curve.track.interval:
        return []
    first = float(curve.values[0])
    for by, count in _counts(context):
        if abs(first / (chance * count) - 1.0) < context.value("loss_misscaled.tolerance"):
            return [
                _scaled(context, curve, by, count, expected=chance, chance_nat=chance, first=first)
            ]
    for key in _PARALLEL:
        size = _number(context, key)
        offset = context.value("loss_misscaled.tolerance_nat")
        if size and size >= 2 and abs(first - chance - math.log(size)) < offset:
            by = f"ln({key})"
            return [
                _scaled(context, curve, by, size, expected=chance, chance_nat=chance, first=first)
            ]
    return []


def _counts(context: Context) -> list[tuple[str, float]]:
    """What a loss that was summed and not averaged would be a multiple of: setting, count >= 2."""
    told = [(key, _number(context, key)) for key in _ACCUMULATION]
    told.append(("micro-batches", _micro_batches(context)))
    return [(key, count) for key, count in told if count and count >= 2]


def _beside_validation(context: Context, curve: Curve) -> list[Finding]:
    """The evaluation averages its batches itself: both losses should be of one size."""
    ratios = _over_validation(context, curve)
    if len(ratios) < int(context.value("loss_misscaled.evaluations")):
        return []
    ratio = median(ratios)
    for by, count in _counts(context) or _whole(context, ratios):
        if abs(ratio / count - 1.0) < context.value("loss_misscaled.tolerance_val"):
            usual = float(curve.values[-1]) / ratio
            made = _scaled(
                context, curve, by, count, at=-1, expected=usual, rule="tolerance_val",
                val_ratio=ratio,
            )  # fmt: skip
            return [made]
    return []


def _whole(context: Context, ratios: list[float]) -> list[tuple[str, float]]:
    """The whole number of which all evaluations give nearly the same multiple, if no count is told.

    Both losses fall by a factor or more in between: nothing but a sum keeps them so far apart.
    """
    ratio = median(ratios)
    count = round(ratio) if ratio < _MOST_MICRO_BATCHES else 0
    share = context.value("loss_misscaled.tolerance_whole")
    even = all(abs(ratio / count - 1.0) < share for ratio in ratios) if count >= 2 else False
    enough = len(ratios) >= int(context.value("loss_misscaled.evaluations")) + 1
    return [("validation loss", float(count))] if even and enough else []


def _over_validation(context: Context, curve: Curve) -> list[float]:
    """Training loss over validation loss at evaluations all over the curve's segment."""
    found = []
    steps, reach = curve.steps, 10 * curve.track.interval
    for track in context.tracks("val_loss"):
        if track.segment != curve.track.segment:
            continue
        some = slice(None, None, -(-len(track) // _MOST_COMPARED) or 1)
        first = np.searchsorted(steps, track.steps[some] - reach, side="left")
        end = np.searchsorted(steps, track.steps[some] + reach, side="right")
        for value, a, b in zip(track.values[some], first, end, strict=True):
            if b - a >= 3 and np.isfinite(value) and value > 0:
                found.append(median(curve.values[a:b]) / float(value))
    return found


def _micro_batches(context: Context) -> float | None:
    """Micro-batches of a step where only the sizes of batches are told; None for one or unknown."""
    whole, part = _number(context, "global_batch_size"), _number(context, "micro_batch_size")
    ranks = _number(context, "data_parallel_size") or _number(context, "world_size")
    if not whole or not part or not ranks:
        return None
    count = whole / (part * ranks)
    return count if count >= 2 and count == int(count) else None


def _chance(context: Context) -> float | None:
    for key in _VOCABULARY:
        size = _number(context, key)
        if size and size >= 100:
            return math.log(size)
    return None


def _number(context: Context, key: str) -> float | None:
    for name, text in context.run.meta.config.items():
        if name.rsplit(".", 1)[-1] == key:
            try:
                return float(text)
            except ValueError:
                return None
    return None


def _scaled(
    context: Context, curve: Curve, by: str, count: float, *, at: int = 0, expected: float,
    rule: str = "tolerance", **told: float,
) -> Finding:  # fmt: skip
    """at: the point whose loss should have been `expected` nat."""
    return finding(
        "loss_misscaled",
        "warning",
        track=curve.track,
        first=int(curve.steps[0]),
        last=int(curve.steps[-1]),
        peak=int(curve.steps[at]),
        statistics={**told, "by": by, "factor": count},
        threshold=context.thresholds[f"loss_misscaled.{rule}"],
        evidence=(
            point(
                context, curve.track, int(curve.at[at]), "loss_onset", unit="nat",
                expected=f"{expected:.4g}",
            ),
        ),
    )  # fmt: skip


OSCILLATION = Detector(
    name="loss_oscillation", kinds=("loss_oscillation",), needs=(("loss",),), run=oscillation
)
DISCONTINUITY = Detector(
    name="loss_discontinuity",
    kinds=("loss_discontinuity",),
    needs=(("loss",),),
    run=discontinuity,
    local=True,
)
MISSCALED = Detector(
    name="loss_misscaled", kinds=("loss_misscaled",), needs=(("loss",),), run=misscaled
)
