"""What a replay found out: plain values, the same for text, JSON and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from loganalyze.replay.measured import Measured

Equality = Literal["equal", "close", "differs"]
State = Literal["supported", "ruled_out", "not_checkable"]
#: What a replay can say of the step as a whole.
Reproduced = Literal["equal", "close", "not_reproduced", "not_the_same", "unrecorded"]
Fact = float | int | str | None


class Match(Struct, frozen=True, kw_only=True):
    """One recorded value beside the replayed one."""

    step: int
    name: str  # loss, grad_norm, parameters, or logged loss
    recorded: float | str
    replayed: float | str
    state: Equality


class Experiment(Struct, frozen=True, kw_only=True):
    """The step again with one thing changed. gone: share of the unusual that vanished (1 = all).

    calm: gone at least `replay.calm_share`, or finite where the step was not.
    """

    name: str
    loss: float
    grad_norm: float
    gone: float
    calm: bool
    subject: str = ""


class LayerSuspect(Struct, frozen=True, kw_only=True):
    """A layer out of range. Ratios are of root mean squares; inf where not finite.

    where: forward, backward, weights or state. against: healthy (its own step before) or peers.
    """

    name: str
    where: str
    ratio: float
    against: str
    group: str = ""
    confirmed: bool = False  # the step is calm with this layer's weights of the healthy step


class SampleSuspect(Struct, frozen=True, kw_only=True):
    """A sample, worst first; z: robust deviations over the batch's median loss."""

    index: int
    id: str
    loss: float
    z: float
    share: float | None = None  # of the batch's whole loss
    grad_norm: float | None = None  # of this sample alone
    hash: str = ""
    text: str = ""
    suspect: bool = False


class Judgement(Struct, frozen=True, kw_only=True):
    """A possible cause, judged. facts fill the placeholders of its wording."""

    cause: str
    state: State
    confidence: float
    facts: Mapping[str, Fact] = field(default_factory=dict)


class HeatRow(Struct, frozen=True, kw_only=True):
    """One layer over the measured steps: root mean square of its output, and of its gradient."""

    name: str
    group: str
    forward: tuple[float, ...]
    backward: tuple[float, ...]


class FormatRow(Struct, frozen=True, kw_only=True):
    """A layer's output in the step's own format beside fp32; rms and absmax of both.

    apart: |log| of the ratio of root mean squares, inf where only one of them is finite.
    near_max_share, subnormal_share: of the own format's values near its ends.
    """

    name: str
    group: str
    rms: float
    rms_fp32: float
    absmax: float
    absmax_fp32: float
    nonfinite: float
    near_max_share: float
    subnormal_share: float
    apart: float


class Result(Struct, frozen=True, kw_only=True):
    """Everything a replay has to say."""

    run: str
    finding: str
    step: int
    device: str
    precision: str
    reproduced: Reproduced
    deterministic: bool | None
    loss: float
    grad_norm: float
    usual_loss: float | None
    measure: str  # loss or grad_norm: what is unusual
    unusual: bool  # whether it is unusual at all
    matches: tuple[Match, ...]
    first_difference: Match | None
    judgements: tuple[Judgement, ...]  # the one that explains best comes first
    layers: tuple[LayerSuspect, ...]
    samples: tuple[SampleSuspect, ...]
    experiments: tuple[Experiment, ...]
    steps: tuple[int, ...]  # measured ones, the suspect last
    heat: tuple[HeatRow, ...]
    measured: Measured
    healthy: Measured | None
    untouched: bool  # the step was bit-equal with and without instruments
    formats: tuple[FormatRow, ...] = ()  # in forward order; empty where fp32 was not compared
    seconds: Mapping[str, float] = field(default_factory=dict)  # bare and instrumented step
    memory: Mapping[str, float] = field(default_factory=dict)  # peak bytes of both, on a GPU
    notes: tuple[str, ...] = ()
