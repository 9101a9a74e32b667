"""Judges the causes by experiments on the suspect step; each judgement carries its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from loganalyze.config import Thresholds
from loganalyze.replay import formats
from loganalyze.replay.bench import Bench, Scale
from loganalyze.replay.measured import Measured
from loganalyze.replay.recipe import Recorded
from loganalyze.replay.result import (
    Experiment,
    Fact,
    FormatRow,
    Judgement,
    LayerSuspect,
    SampleSuspect,
    State,
)

_SWAPS = 3  # layers whose weights are put back, each in its own experiment
_ALONE = 8  # worst samples that are run alone


class Trials:
    """The experiments on one step, run once each and kept in order."""

    def __init__(self, bench: Bench, scale: Scale, data: Recorded, rules: Thresholds) -> None:
        """data: the suspect step as recorded."""
        self.bench, self.scale, self.data, self.rules = bench, scale, data, rules
        self.done: list[Experiment] = []
        self.formats: tuple[FormatRow, ...] = ()

    def samples(
        self, ranked: Sequence[SampleSuspect]
    ) -> tuple[Judgement, tuple[SampleSuspect, ...]]:
        """Carried by these samples? The step without them, and without as many usual ones."""
        if len(ranked) < 2:
            return _open("samples", missing="sample_losses"), tuple(ranked)
        taken = [s for s in ranked if s.suspect] or [ranked[0]]
        shown = tuple(
            replace(s, grad_norm=self.bench.only(self.data, s.index).grad_norm)
            for s in ranked[:_ALONE]
        ) + tuple(ranked[_ALONE:])  # fmt: skip
        names = ", ".join(s.id for s in taken[:4])
        trial = self._without("without_samples", taken, names)
        usual = list(ranked)[len(ranked) // 2 :][: len(taken)]
        control = self._without("without_others", usual, ", ".join(s.id for s in usual[:4]))
        if trial is None:
            return _open("samples", missing="sample_losses"), shown
        carried = trial.calm and not (control is not None and control.calm)
        facts: dict[str, Fact] = {
            "samples": names, "count": len(taken), "loss": taken[0].loss, "z": taken[0].z,
            "gone": trial.gone, "without": trial.loss,
        }  # fmt: skip
        sure = 0.95 if carried and taken[0].suspect else 0.8
        return Judgement(
            cause="samples", state=_state(carried), confidence=sure, facts=facts
        ), shown

    def _without(
        self, name: str, samples: Sequence[SampleSuspect], subject: str
    ) -> Experiment | None:
        outcome = self.bench.without(self.data, [s.index for s in samples])
        return None if outcome is None else self._keep(self.scale.judge(name, outcome, subject))

    def number_format(self, layers: Sequence[LayerSuspect], seen: Measured) -> Judgement:
        """Is the same step calm in fp32, or with one layer in fp32?"""
        outcome, wide = self.bench.in_fp32(self.data)
        self.formats = formats.compare(seen, wide)
        trial = self._keep(self.scale.judge("fp32", outcome))
        worst = _nearest_limit(seen)
        layer = layers[0].name if layers and layers[0].where == "forward" else worst[0]
        if trial.calm and layer:
            single = self.bench.with_layer_in_fp32(self.data, layer)
            self._keep(self.scale.judge("fp32_layer", single, layer))
        facts: dict[str, Fact] = {
            "precision": self.bench.step.precision, "loss": trial.loss, "gone": trial.gone,
            "layer": layer, "absmax": worst[1],
        }  # fmt: skip
        return Judgement(cause="number_format", state=_state(trial.calm), confidence=0.9,
                         facts=facts)  # fmt: skip

    def learning_rate(self, seen: Measured) -> Judgement:
        """Is the step calm after the same steps at a lower learning rate?"""
        if not self.bench.step.before or self.bench.step.optimizer is None:
            return _open("learning_rate", missing="earlier_steps")
        factor = self.rules.value("replay.lower_lr")
        usual, outcome = self.bench.slower(self.data, factor)
        trial = self._keep(self.scale.judge("lower_lr", outcome, f"{factor:g}", usual))
        ratios = [
            (p.update_ratio, p.name)
            for p in seen.parameters
            if p.update_ratio is not None and p.group != "norm" and p.name.endswith("weight")
        ]
        top = max(ratios, default=(0.0, ""))
        high = top[0] > self.rules.value("replay.update_high")
        facts: dict[str, Fact] = {
            "factor": factor, "loss": trial.loss, "gone": trial.gone, "ratio": top[0],
            "parameter": top[1],
        }  # fmt: skip
        sure = 0.9 if high == trial.calm else 0.7
        return Judgement(cause="learning_rate", state=_state(trial.calm), confidence=sure,
                         facts=facts)  # fmt: skip

    def state(self, healthy: Recorded | None) -> Judgement:
        """Data, state, or both: the suspect batch at the start, a healthy batch at the suspect."""
        if healthy is None:
            return _open("state", missing="earlier_steps")
        at_start = self.bench.run(self.data, self.bench.start)
        here = self.bench.run(healthy)
        usual = self.bench.run(self.bench.step.before[0], self.bench.start)
        early = self._keep(self.scale.judge("batch_at_start", at_start, usual=usual))
        other = self._keep(self.scale.judge("healthy_batch_here", here, str(healthy.step)))
        which = {(True, False): "state", (False, True): "data", (True, True): "both",
                 (False, False): "neither"}[early.calm, other.calm]  # fmt: skip
        facts: dict[str, Fact] = {
            "which": which, "early": early.loss, "here": other.loss, "step": healthy.step,
        }  # fmt: skip
        supported: State = "supported" if which in ("state", "both") else "ruled_out"
        return Judgement(cause="state", state=supported, confidence=0.8, facts=facts)

    def layer(self, ranked: Sequence[LayerSuspect]) -> tuple[Judgement, tuple[LayerSuspect, ...]]:
        """Begins in this layer? The step with that layer's weights of the start, one by one."""
        if not ranked:
            return Judgement(cause="layer", state="ruled_out", confidence=0.7), ()
        tried = list(ranked)
        if self.bench.step.before:
            picked = [*ranked[:_SWAPS], *[s for s in ranked if s.where == "weights"][:2]]
            for suspect in dict.fromkeys(picked):
                outcome = self.bench.with_weights(self.data, suspect.name)
                trial = self._keep(self.scale.judge("old_weights", outcome, suspect.name))
                if trial.calm:
                    tried[tried.index(suspect)] = replace(suspect, confirmed=True)
        tried.sort(key=lambda s: not s.confirmed)
        first = tried[0]
        facts: dict[str, Fact] = {
            "layer": first.name, "ratio": first.ratio, "where": first.where,
            "against": first.against, "confirmed": int(first.confirmed),
        }  # fmt: skip
        sure = 0.95 if first.confirmed else 0.8 if math.isinf(first.ratio) else 0.75
        return Judgement(cause="layer", state="supported", confidence=sure, facts=facts), \
            tuple(tried)  # fmt: skip

    def _keep(self, trial: Experiment) -> Experiment:
        self.done.append(trial)
        return trial


def _state(holds: bool) -> State:
    return "supported" if holds else "ruled_out"


def _open(cause: str, missing: str) -> Judgement:
    return Judgement(cause=cause, state="not_checkable", confidence=0.0,
                     facts={"missing": missing})  # fmt: skip


def _nearest_limit(seen: Measured) -> tuple[str, float]:
    """The layer whose output is nearest to its format's end: not finite first, then largest."""
    layers = [layer for layer in seen.layers if layer.activation]
    bad = next((layer for layer in layers if layer.activation["nonfinite"]), None)
    if bad is not None:
        return bad.name, math.inf
    largest = max(layers, key=lambda layer: layer.activation["absmax"], default=None)
    return (largest.name, largest.activation["absmax"]) if largest is not None else ("", 0.0)


#: Causes in the order in which they explain: the first supported one is the headline.
ORDER = ("hardware", "nondeterminism", "other_run", "number_format", "samples", "learning_rate",
         "layer", "state")  # fmt: skip


def ordered(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Supported ones first, in ORDER; then open ones, then those ruled out."""
    states: tuple[State, ...] = ("supported", "not_checkable", "ruled_out")
    return tuple(sorted(judgements, key=lambda j: (states.index(j.state), ORDER.index(j.cause))))
