"""Runs with a known fault, and whether a replay names it: for tests and the quality table."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import replay_lab as lab
import torch
from torch import Tensor

from loganalyze.replay.builtin import from_capsule
from loganalyze.replay.recipe import Precision, Request, Step
from loganalyze.replay.result import Result
from loganalyze.replay.session import replay

AT = 48  # the step at which most faults strike
PLACES = ("qkv", "proj", "mlp_up", "mlp_down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault and its truth: the cause, and the layer or sample behind it."""

    cause: str
    builder: Callable[[], Step]
    layer: str = ""
    sample: str = ""
    precision: Precision = "fp32"
    strike: Callable[[int, Step, Tensor], None] | None = None
    samples: int = 16
    wide: int = 0  # samples of the step AT, where they are more


def _layer(rng: random.Random) -> str:
    return f"blocks.{rng.randrange(lab.LAYERS)}.{rng.choice(PLACES)}"


def healthy(seed: int) -> Fault:
    """Nothing is wrong."""
    return Fault(cause="", builder=lambda: lab.build(seed))


def exploding(seed: int) -> Fault:
    """A layer multiplies its output."""
    rng = random.Random(seed)
    layer, factor = _layer(rng), rng.choice([30.0, 100.0, 1000.0])
    return Fault(cause="layer", layer=layer,
                 builder=lambda: lab.exploding(layer, AT, factor, seed))  # fmt: skip


def poisoned(seed: int, samples: int = 16) -> Fault:
    """One sample of a batch is noise, or one token said again and again."""
    rng = random.Random(seed)
    place = rng.randrange(samples)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(lab.VOCAB, (lab.LENGTH + 1,), generator=generator)
    bad = noise if seed % 2 else noise[:1].expand(lab.LENGTH + 1)

    def strike(step: int, made: Step, batch: Tensor) -> None:
        if step == AT:
            batch[place] = bad

    return Fault(cause="samples", sample=f"s{AT}-{place}", builder=lambda: lab.build(seed),
                 strike=strike, samples=samples)  # fmt: skip


def needle(seed: int) -> Fault:
    """One poisoned sample among 512: too few to be seen in the step's loss, so no cause is due."""
    return replace(poisoned(seed, 512), cause="", samples=16, wide=512)


def overflow(seed: int) -> Fault:
    """A layer leaves the range of fp16."""
    layer = _layer(random.Random(seed))
    return Fault(cause="number_format", layer=layer, precision="fp16",
                 builder=lambda: lab.overflowing(layer, AT, seed))  # fmt: skip


def fast(seed: int) -> Fault:
    """The learning rate is raised a hundredfold a few steps before."""
    first = AT - random.Random(seed).randrange(2, 6)

    def strike(step: int, made: Step, batch: Tensor) -> None:
        assert made.optimizer is not None
        made.optimizer.param_groups[0]["lr"] = 0.3 if step >= first else 3e-3

    return Fault(cause="learning_rate", builder=lambda: lab.build(seed), strike=strike)


def flipped(seed: int) -> Fault:
    """A high bit of one weight flips between two steps."""
    rng = random.Random(seed)
    layer = _layer(rng)

    def strike(step: int, made: Step, batch: Tensor) -> None:
        if step == AT:
            weight = made.model.get_parameter(f"{layer}.weight")
            small = (weight.detach().abs() < 1).flatten().nonzero().flatten().tolist()
            lab.flip_bit(made, f"{layer}.weight", rng.choice(small), rng.choice([30, 29, 28]))

    return Fault(cause="hardware", layer=layer, builder=lambda: lab.build(seed), strike=strike)


FAULTS: dict[str, Callable[[int], Fault]] = {
    "exploding layer": exploding,
    "poisoned sample": poisoned,
    "fp16 overflow": overflow,
    "learning rate": fast,
    "bit flip": flipped,
}


def judged(fault: Fault, folder: Path, seed: int) -> Result:
    """Trains until the recorder stops (or a little after the fault), and replays."""
    recorder = lab.train(
        folder, AT, seed=seed, builder=fault.builder, fault=fault.strike, snapshot_every=16,
        precision=fault.precision, samples=fault.samples,
        wide=(AT, fault.wide) if fault.wide else (0, 0),
    )  # fmt: skip
    if not recorder.capsules:  # the recorder saw nothing: the step is still worth a replay
        recorder.capture()
    request = Request(step=None, checkpoint=folder)
    return replay(from_capsule(fault.builder(), request), request)
