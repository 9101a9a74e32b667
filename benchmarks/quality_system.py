"""Quality of the speed, memory and rank detectors on runs with known truth: part of quality.py.

Each case plants one fault in seeded noise (auto-correlated, heavy-tailed, rounded as logs print
it, with lone slow steps and pauses) and asks for findings of the wanted kinds. `found` counts
findings of any severity, `alarm` those of warning or worse. Onset errors are in steps (median).
False alarms are warnings of any of the judged kinds in healthy runs, per million steps.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from synth_system import FloatArray, context, event, make_run

from loganalyze.detectors.memory import detect_leaks
from loganalyze.detectors.ranks import detect_stragglers
from loganalyze.detectors.speed import detect_speed
from loganalyze.model import Event, Finding, RunLog

SPEED = frozenset({
    "throughput_drop", "throughput_degradation", "throughput_variance", "throughput_stall",
})  # fmt: skip
LEAK = frozenset({"memory_leak"})
RANK = frozenset({"straggler_rank"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run and its truth: steps [first, last] hold a fault of one of `kinds`; none if empty."""

    group: str
    run: RunLog
    detect: Callable[[RunLog], list[Finding]]
    kinds: frozenset[str] = frozenset()
    first: int = 0
    last: int = 0
    rank: int | None = None
    steps: int = 0


# -- noise ----------------------------------------------------------------------------------


def _ar1(rng: np.random.Generator, count: int, spread: float, memory: float) -> FloatArray:
    """Auto-correlated noise of a given standard deviation."""
    shocks = rng.standard_t(5, count) * np.sqrt(3.0 / 5.0) * spread * np.sqrt(1.0 - memory**2)
    out = np.empty(count)
    last = 0.0
    for i, shock in enumerate(shocks.tolist()):
        last = memory * last + shock
        out[i] = last
    return out


def healthy_time(rng: np.random.Generator, count: int) -> FloatArray:
    """Step times of a healthy run, rounded to a tenth of a millisecond."""
    usual = float(np.exp(rng.uniform(np.log(0.2), np.log(20.0))))
    spread = float(np.exp(rng.uniform(np.log(0.002), np.log(0.03))))
    memory = float(rng.choice([0.0, 0.3, 0.7]))
    time = usual * np.exp(_ar1(rng, count, spread, memory))
    lone = rng.random(count) < 0.003
    time[lone] *= rng.uniform(1.3, 6.0, int(lone.sum()))
    time[: int(rng.integers(1, 4))] *= rng.uniform(3.0, 30.0)
    return np.round(time, 4)


def _speed_run(time: FloatArray, events: Sequence[Event] = ()) -> RunLog:
    return make_run({"loss": np.linspace(6.0, 3.0, len(time)), "step_time_s": time}, events=events)


def _on_speed(run: RunLog) -> list[Finding]:
    return detect_speed(context(run))


def _on_memory(run: RunLog) -> list[Finding]:
    return detect_leaks(context(run))


def _on_ranks(run: RunLog) -> list[Finding]:
    return detect_stragglers(context(run))


# -- speed ----------------------------------------------------------------------------------


def speed_cases(seeds: range) -> Iterator[Case]:
    """Drops, drifts, variance and stalls."""
    for seed in seeds:
        rng = np.random.default_rng([1, seed])
        yield from _drops(rng)
        yield _drift(rng)
        yield _variance(rng)
        yield _stall(rng)


def _drops(rng: np.random.Generator) -> Iterator[Case]:
    for low, high, shortest, longest in (
        (0.03, 0.10, 50, 5000),
        (0.10, 0.20, 20, 5000),
        (0.20, 0.50, 20, 5000),
        (0.50, 1.00, 3, 19),
        (1.00, 3.00, 3, 19),
    ):
        count = int(rng.integers(1500, 12000))
        long = int(np.exp(rng.uniform(np.log(shortest), np.log(min(longest, count // 3)))))
        share = float(rng.uniform(low, high))
        time = healthy_time(rng, count)
        at = int(rng.integers(200, count - long))
        time[at : at + long] *= 1.0 + share
        yield Case(
            group=f"drop +{low:.0%}..+{high:.0%}, {shortest}-{longest} steps",
            run=_speed_run(time),
            detect=_on_speed,
            kinds=frozenset({"throughput_drop"}),
            first=at + 1,
            last=at + long,
        )


def _drift(rng: np.random.Generator) -> Case:
    count = int(rng.integers(300, 8000))
    rise = float(rng.uniform(0.10, 0.50))
    time = healthy_time(rng, count) * (1.0 + rise * np.arange(count) / count)
    return Case(
        group="drift +10%..+50% over the run",
        run=_speed_run(time),
        detect=_on_speed,
        kinds=frozenset({"throughput_degradation", "throughput_drop"}),
        first=1,
        last=count,
    )


def _variance(rng: np.random.Generator) -> Case:
    """p95/p50 of 1.5 to 7: log-normal or two-valued step times from some step on."""
    count = int(rng.integers(600, 6000))
    ratio = float(np.exp(rng.uniform(np.log(1.5), np.log(7.0))))
    time = healthy_time(rng, count)
    at = int(rng.integers(0, count // 2))
    wild = count - at
    if rng.random() < 0.5:
        time[at:] *= np.exp(np.log(ratio) / 1.645 * rng.standard_normal(wild))
    else:
        time[at:] *= np.where(rng.random(wild) < 0.08, ratio, 1.0)
    return Case(
        group="variance p95/p50 x1.5..x7",
        run=_speed_run(time),
        detect=_on_speed,
        kinds=frozenset({"throughput_variance"}),
        first=at + 1,
        last=count,
    )


def _stall(rng: np.random.Generator) -> Case:
    count = int(rng.integers(1000, 10000))
    period = int(rng.choice([8, 32, 64, 100, 250]))
    time = healthy_time(rng, count)
    phase = int(rng.integers(0, period))
    time[phase::period] *= rng.uniform(2.0, 8.0) if period < 50 else rng.uniform(4.0, 20.0)
    return Case(
        group="stall every 8..250 steps",
        run=_speed_run(time),
        detect=_on_speed,
        kinds=frozenset({"throughput_stall"}),
        first=phase + 1,
        last=count,
    )


def healthy_speed(seeds: range) -> Iterator[Case]:
    """Healthy step times, half of them with evaluations of known place inside."""
    for seed in seeds:
        rng = np.random.default_rng([2, seed])
        count = int(rng.integers(30, 20000))
        time = healthy_time(rng, count)
        events: list[Event] = []
        if rng.random() < 0.5:
            every = int(rng.choice([50, 200, 1000]))
            events = [event("evaluation", row - 1, step=row) for row in range(every, count, every)]
            time[every::every] += float(rng.uniform(2.0, 50.0)) * np.median(time)
        yield Case(
            group="healthy: speed", run=_speed_run(time, events), detect=_on_speed, steps=count
        )


# -- memory ---------------------------------------------------------------------------------


def _allocator(rng: np.random.Generator, count: int) -> FloatArray:
    """Allocated memory of a healthy run: jitter of lengths, buffers that appear at the start."""
    base = float(rng.uniform(10e9, 70e9))
    spread = float(np.exp(rng.uniform(np.log(0.0005), np.log(0.03))))
    values = base * (1.0 + _ar1(rng, count, spread, float(rng.choice([0.0, 0.5]))))
    values[:3] *= 0.6
    if rng.random() < 0.4:  # a cache that fills
        values *= 1.0 + rng.uniform(0.0, 0.1) * (1.0 - np.exp(-np.arange(count) / (count / 20)))
    if rng.random() < 0.3:  # a longer batch size from some step on
        values[int(rng.integers(count // 4, count)) :] *= rng.uniform(1.0, 1.15)
    return np.round(values / 2**20) * 2**20


def memory_cases(seeds: range) -> Iterator[Case]:
    """Leaks over the whole run, late ones, and ones that restarts reset."""
    for seed in seeds:
        rng = np.random.default_rng([3, seed])
        for low, high in ((0.05, 0.10), (0.10, 0.50)):
            count = int(rng.integers(300, 6000))
            share = float(rng.uniform(low, high))
            values = _quiet(rng, count)
            yield _leak(f"leak +{low:.0%}..+{high:.0%}", values * _ramp(count, 0, share), 0)
        count = int(rng.integers(600, 6000))
        at = int(rng.uniform(0.4, 0.7) * count)
        late = _quiet(rng, count) * _ramp(count, at, float(rng.uniform(0.10, 0.50)))
        yield _leak("leak, late +10%..+50%", late, at)
        yield _sawtooth(rng)


def _quiet(rng: np.random.Generator, count: int) -> FloatArray:
    """Memory with jitter of up to a per cent."""
    spread = float(np.exp(rng.uniform(np.log(0.0005), np.log(0.01))))
    return float(rng.uniform(10e9, 60e9)) * (1.0 + _ar1(rng, count, spread, 0.3))


def _ramp(count: int, at: int, share: float) -> FloatArray:
    return 1.0 + share * np.maximum(0, np.arange(count) - at) / (count - at)


def _leak(group: str, values: FloatArray, at: int) -> Case:
    return Case(
        group=group,
        run=make_run({"mem_allocated_bytes": values}),
        detect=_on_memory,
        kinds=LEAK,
        first=at + 1,
        last=len(values),
    )


def _sawtooth(rng: np.random.Generator) -> Case:
    teeth, long = int(rng.integers(3, 6)), int(rng.integers(150, 800))
    tooth = _ramp(long, 0, float(rng.uniform(0.10, 0.50)))
    values = _quiet(rng, teeth * long) * np.tile(tooth, teeth)
    loads = [event("checkpoint_load", n * long - 1, step=n * long) for n in range(1, teeth)]
    return Case(
        group="leak over restarts +10%..+50%",
        run=make_run({"mem_allocated_bytes": values}, events=loads),
        detect=_on_memory,
        kinds=LEAK,
        first=1,
        last=teeth * long,
    )


def healthy_memory(seeds: range) -> Iterator[Case]:
    """Healthy memory, allocated or as a peak that only rises."""
    for seed in seeds:
        rng = np.random.default_rng([4, seed])
        count = int(rng.integers(30, 10000))
        values = _allocator(rng, count)
        metric = "mem_allocated_bytes"
        if rng.random() < 0.3:
            values, metric = np.maximum.accumulate(values), "mem_peak_allocated_bytes"
        run = make_run({metric: values})
        yield Case(group="healthy: memory", run=run, detect=_on_memory, steps=count)


# -- ranks ----------------------------------------------------------------------------------


def _rank_run(rng: np.random.Generator, ranks: int, slow: float) -> tuple[RunLog, int, int]:
    steps = int(rng.integers(200, 400)) if ranks <= 64 else 60 if ranks <= 256 else 40
    spread = float(rng.uniform(0.005, 0.02))
    common = np.exp(0.02 * rng.standard_normal((steps, 1)))
    skew = np.exp(0.001 * rng.standard_normal((1, ranks)))
    values = common * skew * np.exp(spread * rng.standard_normal((steps, ranks)))
    guilty = int(rng.integers(0, ranks))
    values[:, guilty] *= 1.0 + slow
    run = make_run(
        {"forward_time_s": values.ravel()},
        steps=np.repeat(np.arange(1, steps + 1), ranks),
        rank=np.tile(np.arange(ranks), steps),
    )
    return run, guilty, steps


def rank_cases(seeds: range, sizes: Sequence[int]) -> Iterator[Case]:
    """One slow rank among many."""
    for seed in seeds:
        for ranks in sizes:
            for low, high in ((0.01, 0.03), (0.03, 0.20)):
                rng = np.random.default_rng([5, seed, ranks, int(100 * low)])
                run, guilty, steps = _rank_run(rng, ranks, float(rng.uniform(low, high)))
                yield Case(
                    group=f"slow rank +{low:.0%}..+{high:.0%}, {sizes[0]}-{sizes[-1]} ranks",
                    run=run,
                    detect=_on_ranks,
                    kinds=RANK,
                    first=1,
                    last=steps,
                    rank=guilty,
                )


def healthy_ranks(seeds: range, sizes: Sequence[int]) -> Iterator[Case]:
    """Nobody is slow."""
    for seed in seeds:
        for ranks in sizes:
            run, _, steps = _rank_run(np.random.default_rng([6, seed, ranks]), ranks, 0.0)
            yield Case(group="healthy: ranks", run=run, detect=_on_ranks, steps=steps * ranks)


# -- judging --------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Counts over the cases of a group."""

    cases: int = 0
    found: int = 0
    alarmed: int = 0
    strays: int = 0  # warnings that do not overlap the truth, or name another rank
    errors: list[int] | None = None
    steps: int = 0
    seconds: float = 0.0

    def add(self, case: Case) -> None:
        """Judge one case."""
        begin = clock.perf_counter()
        findings = case.detect(case.run)
        self.seconds += clock.perf_counter() - begin
        self.cases += 1
        self.steps += case.steps
        hits = [f for f in findings if _hits(case, f)]
        alarms = [f for f in findings if f.severity != "info"]
        self.found += bool(hits)
        self.alarmed += any(f.severity != "info" for f in hits)
        self.strays += sum(f not in hits and not _related(case, f) for f in alarms)
        if hits and self.errors is not None:
            best = min(abs((f.step_first or 0) - case.first) for f in hits)
            self.errors.append(best)


def _hits(case: Case, found: Finding) -> bool:
    if found.kind not in case.kinds or found.step_first is None or found.step_last is None:
        return False
    overlaps = found.step_first <= case.last and found.step_last >= case.first
    return overlaps and case.rank in (None, found.rank)


def _related(case: Case, found: Finding) -> bool:
    """Another kind of the same family inside the truth: told twice, not told wrongly."""
    inside = (found.step_first or 0) <= case.last and (found.step_last or 0) >= case.first
    return bool(case.kinds) and inside and found.rank == case.rank and found.kind in SPEED | LEAK


#: First seed of the figures; the detectors were tuned on seeds below 1000.
FIRST_SEED = 5000


def seeds_of(count: int) -> range:
    """That many seeds that nothing was tuned on."""
    return range(FIRST_SEED, FIRST_SEED + count)


def run_all(quick: bool, *more: Iterator[Case]) -> dict[str, Tally]:
    """All groups, in the order of the table; `more` cases come first."""
    seeds, healthy = seeds_of(12 if quick else 60), seeds_of(20 if quick else 110)
    small, large = (8, 64), (256, 1024)
    streams: list[Iterator[Case]] = [
        *more,
        speed_cases(seeds),
        memory_cases(seeds),
        rank_cases(seeds_of(4 if quick else 20), small),
        rank_cases(seeds_of(1 if quick else 4), large),
        healthy_speed(healthy),
        healthy_memory(healthy),
        healthy_ranks(seeds_of(3 if quick else 20), small),
        healthy_ranks(seeds_of(1 if quick else 4), large),
    ]
    tallies: dict[str, Tally] = {}
    for stream in streams:
        for case in stream:
            tallies.setdefault(case.group, Tally(errors=[])).add(case)
    return tallies


#: What is declared detectable: groups of this beginning hold effects of that size and more.
DECLARED = (
    "gradient x6..x100", "gradient x36", "gradient, new level", "gradient, growth",
    "gradient vanished", "drop +10%", "drop +20%", "drop +50%", "drop +100%", "drift",
    "variance", "stall", "leak +10%", "leak, late", "leak over restarts", "slow rank +3%",
)  # fmt: skip


LEAST_F1 = 0.95


def _precision(tally: Tally) -> float:
    return tally.found / max(tally.found + tally.strays, 1)


def _f1(tally: Tally) -> float:
    recall, precision = tally.found / tally.cases, _precision(tally)
    return 2 * precision * recall / max(precision + recall, 1e-9)


def print_tables(tallies: dict[str, Tally]) -> None:
    """Recall, precision and F1 by effect size (declared ones marked), then healthy runs."""
    print(
        f"\n{'planted fault (* declared detectable)':46} {'cases':>5} {'recall':>6} {'alarm':>6} "
        f"{'P':>6} {'F1':>6} {'onset50':>7} {'onset95':>7}"
    )
    for group, tally in tallies.items():
        if tally.steps:
            continue
        recall, precision, both = tally.found / tally.cases, _precision(tally), _f1(tally)
        middle, high = np.percentile(tally.errors or [0], [50, 95])
        mark = "*" if group.startswith(DECLARED) else " "
        print(
            f"{mark} {group:44} {tally.cases:5} {recall:6.3f} {tally.alarmed / tally.cases:6.3f} "
            f"{precision:6.3f} {both:6.3f} {middle:7.0f} {high:7.0f}"
        )
    weak = [g for g, t in tallies.items() if g.startswith(DECLARED) and _f1(t) < LEAST_F1]
    print(
        f"declared detectable (F1 at least {LEAST_F1:g} asked): " + "; ".join(
            group for group in tallies if group.startswith(DECLARED)
        ) + f"\nbelow it: {'; '.join(weak) or 'none'}"
    )  # fmt: skip
    print(f"\n{'healthy runs':46} {'cases':>5} {'steps':>9} {'alarms':>6} {'per 1M':>7}")
    for group, tally in tallies.items():
        if tally.steps:
            rate = tally.strays / tally.steps * 1e6
            print(f"{group:46} {tally.cases:5} {tally.steps:9} {tally.strays:6} {rate:7.2f}")
