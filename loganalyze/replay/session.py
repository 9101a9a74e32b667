"""The whole replay of one step: through the recorded steps, measured, tried, judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import torch
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.config import Thresholds, load_thresholds
from loganalyze.replay import batches, environment, equality, state, suspects, verdict
from loganalyze.replay.bench import Bench, Scale, scale
from loganalyze.replay.costs import spent
from loganalyze.replay.instruments import Probe
from loganalyze.replay.measured import Measured
from loganalyze.replay.recipe import Recorded, Request, Step
from loganalyze.replay.result import (
    HeatRow,
    Judgement,
    LayerSuspect,
    Match,
    Result,
    SampleSuspect,
)
from loganalyze.replay.runner import Outcome, run_step

_SHOWN_SAMPLES = 32


class _Run(Struct, kw_only=True):
    """What happened on the way to the suspect step and at it."""

    data: Recorded
    start: state.Snapshot
    before: state.Snapshot
    outcomes: list[Outcome]
    measured: dict[int, Measured]
    matches: list[Match]
    suspect: Outcome
    seen: Measured
    untouched: bool
    flipped: list[LayerSuspect]
    seconds: dict[str, float]
    memory: dict[str, float]


def replay(
    step: Step, request: Request, *, run: str = "", finding: str = "", against: str = "",
    rules: Thresholds | None = None,
) -> Result:  # fmt: skip
    """Replays a step and judges it; the model is left in the state before the suspect step.

    against: `fp32` compares with fp32 even where the step's precision is fp32 already.
    """
    rules = rules or load_thresholds()
    with environment.as_recorded(step.environment) as differing:
        return _replayed(step, request, (run, finding, against), rules, differing)


def _replayed(
    step: Step, request: Request, named: tuple[str, str, str], rules: Thresholds,
    differing: tuple[str, ...],
) -> Result:  # fmt: skip
    run, finding, against = named
    done = _forward(step, step.target(), request, rules)
    data = done.data
    bench = Bench(step, done.start, done.before)
    healthy = _healthy(step, done, rules)
    found = scale(done.suspect, healthy[1] if healthy else None, _history(step, done), rules)
    references = list(done.measured.values())
    trials = verdict.Trials(bench, found, data, rules)
    reproduced, first = equality.verdict(done.matches, bool(step.environment) and not differing)
    layers: Sequence[LayerSuspect] = suspects.rank_layers(done.seen, references, rules)
    samples = _samples(step, data, done.seen, rules)
    if reproduced in ("not_reproduced", "not_the_same"):
        layers = done.flipped or layers
        judged = [_unlike(bench, data, done, reproduced, first)]
    else:
        judged = []
        if found.is_unusual(rules.value("replay.excess_ratio")):
            judged, layers, samples = _judged(trials, layers, samples, done, healthy, against)
    done.before.restore(step.model, step.optimizer)
    again = bench.run(data)
    return Result(
        run=run, finding=finding, step=data.step, device=request.device, precision=step.precision,
        reproduced=reproduced, deterministic=again.same(done.suspect),
        loss=done.suspect.loss, grad_norm=done.suspect.grad_norm,
        usual_loss=found.usual.loss if found.usual else None, measure=found.measure,
        unusual=found.is_unusual(rules.value("replay.excess_ratio")),
        matches=tuple(done.matches), first_difference=first, judgements=verdict.ordered(judged),
        layers=tuple(layers), samples=tuple(samples[:_SHOWN_SAMPLES]),
        experiments=tuple(trials.done), steps=(*done.measured, data.step),
        heat=_heat([*references, done.seen]), measured=done.seen, formats=trials.formats,
        healthy=references[-1] if references else None, untouched=done.untouched,
        seconds=done.seconds, memory=done.memory, notes=_notes(step, step.target(), differing),
    )  # fmt: skip


def _forward(step: Step, data: Recorded, request: Request, rules: Thresholds) -> _Run:
    """Through the recorded steps; the suspect twice, bare and with instruments."""
    start = state.take(step.model, step.optimizer)
    outcomes, measured, found = [], {}, []
    watched = _watched_steps(step.before)
    given, step.before = step.before, ()
    for item in map(_pinned, given):
        step.before += (item,)
        probe = Probe(step.model, start.tensors) if item.step in watched else None
        outcomes.append(_observed(step, item, probe))
        if probe is not None:
            measured[item.step] = probe.result()
        found += equality.matches(item, outcomes[-1], rules)
    before = state.take(step.model, step.optimizer) if step.before else start
    data = _pinned(data)
    with spent() as bare:
        suspect = run_step(step, data)
    ended = state.digests(step.model)
    found += equality.matches(data, suspect, rules)
    found += equality.parameters(data.step, step.after, before.tensors, step.model)
    found += equality.logged(data.step, request.logged, suspect, rules)
    found += equality.weights(data.step, step.held, before.tensors)
    if step.held:  # after its update nothing may be finite
        flipped = equality.altered(step.held, before.tensors)
    else:
        flipped = equality.flipped(step.after, before.tensors, step.model)
    before.restore(step.model, step.optimizer)
    probe = Probe(step.model, start.tensors)
    with spent() as full:
        looked = _observed(step, data, probe)
        seen = probe.result()
    seconds = {"bare": bare.seconds, "instrumented": full.seconds}
    memory = {"bare": bare.peak_bytes, "instrumented": full.peak_bytes} if bare.peak_bytes else {}
    untouched = looked.same(suspect) and state.digests(step.model) == ended
    return _Run(
        data=data, start=start, before=before, outcomes=outcomes, measured=measured, matches=found,
        suspect=suspect, seen=seen, untouched=untouched, flipped=list(flipped), seconds=seconds,
        memory=memory,
    )  # fmt: skip


def _pinned(data: Recorded) -> Recorded:
    """A step with the generators as they are now, where none were recorded: repeats are alike."""
    if data.rng is not None or data.seed is not None:
        return data
    return replace(data, rng=state.capture_rng())


def _watched_steps(before: Sequence[Recorded]) -> set[int]:
    """The first and the last recorded steps, and a few between, for the map of layers."""
    count = len(before)
    picked = {0, count // 4, count // 2, 3 * count // 4, count - 2, count - 1}
    return {before[i].step for i in picked if 0 <= i < count}


def _observed(step: Step, data: Recorded, probe: Probe | None) -> Outcome:
    if probe is None:
        return run_step(step, data)
    with probe:
        return run_step(step, data, probe)


def _history(step: Step, done: _Run) -> tuple[float, ...]:
    """Losses before the suspect step, the replayed ones where there are enough."""
    replayed = [o.loss for o in done.outcomes]
    return tuple(replayed[-8:] if len(replayed) >= 3 else step.history[:-1][-8:])


def _healthy(step: Step, done: _Run, rules: Thresholds) -> tuple[Recorded, Outcome] | None:
    """The nearest earlier recorded step whose loss is usual."""
    finite = [o.loss for o in done.outcomes if math.isfinite(o.loss)]
    if not finite:
        return None
    limit = rules.value("replay.excess_ratio") * median(finite)
    pairs = list(zip(step.before, done.outcomes, strict=True))
    calm = [p for p in pairs if math.isfinite(p[1].grad_norm) and p[1].loss <= limit]
    return calm[-1] if calm else None


def _samples(
    step: Step, data: Recorded, seen: Measured, rules: Thresholds
) -> Sequence[SampleSuspect]:
    losses = seen.samples.losses if seen.samples is not None else _alone(step, data)
    ranked = suspects.rank_samples(losses, data.sample_ids, data.hashes, rules)
    if step.decode is None:
        return ranked
    parts = [(batch, i) for batch in data.micro_batches for i in range(batches.sample_count(batch))]
    pick = step.select or batches.select
    decode = step.decode
    return [
        replace(s, text=decode(pick(parts[s.index][0], [parts[s.index][1]]))) if place < 8 else s
        for place, s in enumerate(ranked)
    ]


@torch.no_grad()
def _alone(step: Step, data: Recorded) -> tuple[float, ...]:
    """Loss of each sample by itself, where no cross-entropy was heard."""
    pick = step.select or batches.select
    with state.kept_rng():
        return tuple(
            float(step.loss_fn(step.model, pick(batch, [i])))
            for batch in data.micro_batches
            for i in range(batches.sample_count(batch))
        )


def _judged(
    trials: verdict.Trials, layers: Sequence[LayerSuspect], samples: Sequence[SampleSuspect],
    done: _Run, healthy: tuple[Recorded, Outcome] | None, against: str,
) -> tuple[list[Judgement], Sequence[LayerSuspect], Sequence[SampleSuspect]]:  # fmt: skip
    """All judgements; a layer that only shows what samples do is not the beginning."""
    by_samples, samples = trials.samples(samples)
    judged = [by_samples]
    if trials.bench.step.precision != "fp32" or against == "fp32":
        judged.append(trials.number_format(layers, done.seen))
    judged.append(trials.learning_rate(done.seen))
    judged.append(trials.state(healthy[0] if healthy else None))
    by_layer, layers = trials.layer(layers)
    if by_samples.state == "supported" and not by_layer.facts.get("confirmed"):
        by_layer = replace(by_layer, state="ruled_out", confidence=0.6)
    judged.append(by_layer)
    return judged, layers, samples


def _unlike(
    bench: Bench, data: Recorded, done: _Run, reproduced: str, first: Match | None
) -> Judgement:
    """Why it is not the same: another run, a result that varies, or hardware that erred once."""
    facts = {
        "step": first.step if first else None, "name": first.name if first else "",
        "recorded": first.recorded if first else None,
        "replayed": first.replayed if first else None,
        "layer": done.flipped[0].name if done.flipped else "",
    }  # fmt: skip
    if reproduced == "not_the_same":
        return Judgement(cause="other_run", state="supported", confidence=0.9, facts=facts)
    repeats = [bench.run(data) for _ in range(2)]
    same = all(outcome.same(done.suspect) for outcome in repeats)
    cause = "hardware" if same else "nondeterminism"
    sure = 0.9 if done.flipped and same else 0.7
    return Judgement(cause=cause, state="supported", confidence=sure, facts=facts)


def _heat(measured: Sequence[Measured]) -> tuple[HeatRow, ...]:
    """Layers in forward order, their sizes over the measured steps; NaN where not seen."""
    tables = [{layer.name: layer for layer in item.layers} for item in measured]

    def size(table: dict[str, object], name: str, what: str) -> float:
        found = getattr(table.get(name), what, None)
        if not found:
            return math.nan
        return math.inf if found["nonfinite"] else float(found["rms"])

    return tuple(
        HeatRow(
            name=layer.name, group=layer.group,
            forward=tuple(size(dict(t), layer.name, "activation") for t in tables),
            backward=tuple(size(dict(t), layer.name, "output_gradient") for t in tables),
        )
        for layer in measured[-1].layers
    )  # fmt: skip


def _notes(step: Step, data: Recorded, differing: tuple[str, ...]) -> tuple[str, ...]:
    """Keys of what was missing."""
    found = []
    if not step.before:
        found.append("replay_note_no_earlier_steps")
    if not data.values:
        found.append("replay_note_nothing_recorded")
    if data.rng is None:
        found.append("replay_note_no_rng")
    if differing:
        found.append("replay_note_environment")
    return tuple(found)


__all__ = ["Scale", "replay"]
