"""update_ratio where only the norm of all weights is logged: updates that no longer reach them.

In bfloat16 a weight of 1 has neighbours 2**-8 apart, so that without a float32 copy an update of a
few 1e-4 is rounded away: the learning rate goes on, the gradient is there, the weights stop.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.model import Finding
from loganalyze.running import median
from loganalyze.series import Floats, Ints, print_quantum
from loganalyze.tracks import Track

_BLOCKS = 16
#: Blocks at the start in which the warm-up still moves everything.
_WARM = 2
#: Blocks at the end that are judged together.
_TAIL = 3


class Movement(Struct, frozen=True, kw_only=True):
    """How far the norm moved in each block, as a share of itself and per unit of learning rate.

    edges: (blocks + 1,) places in the track; moves: signed, in the norm's unit; speed: shares per
    unit of rate, no lower than the printed digits can tell; last: the same of the last blocks
    together, over which a norm of few digits tells more.
    """

    edges: Ints
    moves: Floats
    speed: Floats
    last: float
    quantum: float


def movement(norm: Track, lr: Track) -> Movement | None:
    """Of a norm and the rate beside it; None where either is missing or zero in a block."""
    good = np.flatnonzero(np.isfinite(norm.values) & (norm.values > 0))
    sound = np.isfinite(lr.values)
    if len(good) < 10 * _BLOCKS or not sound.any():
        return None
    steps, values = norm.steps[good], norm.values[good]
    if sound.all() and np.array_equal(steps, lr.steps):
        rates = lr.values
    else:
        rates = np.interp(steps, lr.steps[sound], lr.values[sound])
    travelled = np.concatenate(([0.0], np.cumsum(rates[1:] * np.diff(steps))))
    cuts = np.linspace(0, len(good) - 1, _BLOCKS + 1).astype(np.int64)
    quantum = print_quantum(values) or 0.0
    values, way = values[cuts], np.diff(travelled[cuts])
    if not (way > 0).all():
        return None
    moves = np.diff(values)
    speed = np.maximum(np.abs(moves), quantum) / (values[:-1] * way)
    tail = max(abs(float(moves[-_TAIL:].sum())), quantum) / float(values[-1] * way[-_TAIL:].sum())
    return Movement(edges=good[cuts], moves=moves, speed=speed, last=tail, quantum=quantum)


def stopped(context: Context) -> list[Finding]:
    """At most one finding a segment: weights that stand still under a rate and a gradient."""
    if context.profile == "rl":
        return []
    found = []
    for norm in context.tracks("params_norm"):
        lr, grad, loss = (_beside(context, name, norm) for name in ("lr", "grad_norm", "loss"))
        moved = movement(norm, lr) if lr is not None else None
        if moved is None or grad is None or loss is None:
            continue
        first = _standstill(context, moved)
        steps = norm.steps[moved.edges]
        if first is not None and _still_taught(context, steps, first, grad, loss):
            found.append(_finding(context, norm, moved, first))
    return found


def _beside(context: Context, metric: str, norm: Track) -> Track | None:
    own = [t for t in context.tracks(metric) if t.segment == norm.segment and len(t)]
    return max(own, key=len, default=None)


def _standstill(context: Context, moved: Movement) -> int | None:
    """The first block of a stretch to the end in which the norm no longer moves; None without one.

    A norm that turns around, where weight decay outweighs the gradient, is no such stretch.
    """
    top = _WARM + int(np.argmax(moved.speed[_WARM:]))
    share = moved.speed / moved.speed[top]
    fast = np.flatnonzero(share >= context.value("update_ratio.stopped_share"))
    first = int(fast[-1]) + 1
    told = moved.moves[top:][np.abs(moved.moves[top:]) > moved.quantum]
    turns = bool(np.ptp(np.sign(told)) > 0) if len(told) else False
    long = _BLOCKS - first >= context.value("update_ratio.stopped_blocks")
    end = moved.last / moved.speed[top] < context.value("update_ratio.stopped_end")
    return first if long and end and not turns else None


def _still_taught(context: Context, steps: Ints, first: int, grad: Track, loss: Track) -> bool:
    """Whether the gradient keeps its size in the stretch, and the loss falls no more."""
    norms = [_level(grad, steps[k], steps[k + 1]) for k in range(_BLOCKS)]
    before, since = (_median(part) for part in (norms[_WARM:first], norms[first:]))
    least = context.value("update_ratio.stopped_gradient") * before
    begun, end = (_level(loss, steps[k], steps[k + 1]) for k in (first, _BLOCKS - 1))
    flat = end > (1.0 - context.value("update_ratio.stopped_fall")) * begun
    return since >= least and flat


def _median(levels: list[float]) -> float:
    """Median of those that are numbers; NaN, which is not above anything, where none is."""
    known = [level for level in levels if np.isfinite(level)]
    return median(known) if known else float("nan")


def _level(track: Track, start: int, stop: int) -> float:
    inside = track.values[(track.steps >= start) & (track.steps <= stop)]
    inside = inside[np.isfinite(inside)]
    return median(inside) if len(inside) else float("nan")


def _finding(context: Context, norm: Track, moved: Movement, first: int) -> Finding:
    begin, end = int(moved.edges[first]), int(moved.edges[-1])
    top = _WARM + int(np.argmax(moved.speed[_WARM:]))
    share = float(moved.last / moved.speed[top])
    return finding(
        "update_ratio",
        "warning",
        track=norm,
        first=int(norm.steps[begin]),
        last=int(norm.steps[end]),
        peak=int(norm.steps[end]),
        statistics={"movement_share": share},
        threshold=context.thresholds["update_ratio.stopped_share"],
        evidence=(
            point(context, norm, begin, "weights_stopped"),
            point(context, norm, end, "weights_stopped"),
        ),
    )


STOPPED = Detector(
    name="weights_stopped",
    kinds=("update_ratio",),
    needs=(("params_norm",), ("lr",), ("grad_norm",), ("loss",)),
    run=stopped,
)
