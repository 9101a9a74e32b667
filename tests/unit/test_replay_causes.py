"""Causes with a designed truth: data, state, both, a layer's gradient, results that vary."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import replay_lab as lab
import torch
from torch import Tensor, nn

from loganalyze.replay import Request, Step
from loganalyze.replay.builtin import from_capsule
from loganalyze.replay.result import Judgement, Result
from loganalyze.replay.session import replay

torch.set_num_threads(1)
AT = 12
Builder = Callable[[], Step]


def counted() -> Step:
    """The lab's model, which counts its training steps in a buffer."""
    made = lab.build()
    made.model.register_buffer("count", torch.zeros(()))

    def count(model: Any, given: Any) -> None:
        if model.training:
            model.count += 1

    made.model.register_forward_pre_hook(count)
    return made


def with_loss(add: Callable[[nn.Module, Tensor], float]) -> Builder:
    """Builds a step whose loss has something added to it."""

    def build() -> Step:
        made = counted()
        made.loss_fn = lambda model, batch: lab.loss_fn(model, batch) + add(model, batch)
        return made

    return build


def late(model: nn.Module) -> bool:
    """Whether step AT has come: a fault of the state."""
    return float(model.get_buffer("count")) >= AT


def judged(folder: Path, builder: Builder, *, marked: bool = False) -> Result:
    """Trains to step AT, whose samples may all begin with one token, and replays it."""

    def mark(step: int, made: Step, batch: Tensor) -> None:
        batch[:, 0] = 7 if step == AT and marked else batch[:, 0] % 7

    recorder = lab.train(folder, AT, builder=builder, fault=mark, snapshot_every=4, samples=8)
    recorder.capture()
    request = Request(step=AT, checkpoint=folder)
    return replay(from_capsule(builder(), request), request)


def of(result: Result, cause: str) -> Judgement:
    """What was judged of one cause."""
    return next(item for item in result.judgements if item.cause == cause)


@pytest.mark.parametrize(
    ("which", "supported"), [("data", False), ("state", True), ("both", True)]
)  # fmt: skip
def test_data_state_or_both(which: str, supported: bool, tmp_path: Path) -> None:
    """The suspect batch at the start and a healthy batch at the suspect step tell them apart."""

    def add(model: nn.Module, batch: Tensor) -> float:
        marked = bool((batch[:, 0] == 7).all())
        here = {"data": marked, "state": late(model), "both": marked and late(model)}[which]
        return 3.0 if here else 0.0

    result = judged(tmp_path, with_loss(add), marked=which != "state")
    assert (result.reproduced, result.unusual) == ("equal", True)
    state = of(result, "state")
    assert state.facts["which"] == which
    assert (state.state == "supported") is supported
    trials = {trial.name: trial for trial in result.experiments}
    assert trials["batch_at_start"].calm is (which != "data")
    assert trials["healthy_batch_here"].calm is (which != "state")
    if supported:
        assert result.judgements[0].cause == "state"


def test_a_result_that_varies_is_not_blamed_on_the_hardware(tmp_path: Path) -> None:
    """Earlier steps are bit-equal, the suspect isn't, and two repeats of it differ as well."""
    numbers = itertools.count(1)
    builder = with_loss(lambda model, batch: next(numbers) * 0.5 if late(model) else 0.0)
    result = judged(tmp_path, builder)
    assert result.reproduced == "not_reproduced"
    assert result.first_difference is not None
    assert (result.first_difference.step, result.first_difference.name) == (AT, "loss")
    assert not result.deterministic
    assert result.judgements[0].cause == "nondeterminism"


def test_a_gradient_begins_in_its_layer(tmp_path: Path) -> None:
    """Where a layer spoils only the backward pass, it comes first, the end of the model first."""
    layer = "blocks.2.mlp_down"

    def build() -> Step:
        made = counted()

        def spoil(module: Any, given: Any, out: Tensor) -> None:
            if late(made.model):
                out.register_hook(lambda grad: grad * 1000)

        made.model.get_submodule(layer).register_forward_hook(spoil)
        return made

    result = judged(tmp_path, build)
    assert (result.reproduced, result.measure, result.unusual) == ("equal", "grad_norm", True)
    assert (result.layers[0].name, result.layers[0].where) == (layer, "backward")
    assert of(result, "layer").state == "supported"


def test_every_recorded_value_is_compared(tmp_path: Path) -> None:
    """Loss and gradient norm of each step, and the hash of the parameters after the last."""
    result = judged(tmp_path, counted)
    steps = range(min(match.step for match in result.matches), AT + 1)
    found = {(match.step, match.name): match for match in result.matches}
    expected = {(step, name) for step in steps for name in ("loss", "grad_norm")}
    assert found.keys() == expected | {(AT, "parameters")}
    assert {match.state for match in found.values()} == {"equal"}
    hashes = found[AT, "parameters"]
    assert isinstance(hashes.recorded, str)
    assert hashes.recorded == hashes.replayed
    assert result.healthy is not None
    assert result.steps[-2:] == (AT - 1, AT)


def test_a_spoilt_weight_is_found_though_its_step_spoils_them_all(tmp_path: Path) -> None:
    """After a NaN's update no weight is finite; those from before it tell which one was wrong."""
    layer = "blocks.1.proj"

    def spoil(step: int, made: Step, batch: Tensor) -> None:
        if step == AT:
            made.model.get_parameter(f"{layer}.weight").data[3] = 3e38

    recorder = lab.train(tmp_path, AT, fault=spoil, snapshot_every=4, samples=8)
    assert recorder.capsules
    request = Request(step=None, checkpoint=tmp_path)
    result = replay(from_capsule(lab.build(), request), request)
    found = {match.name: match.state for match in result.matches if match.step == AT}
    assert (found["loss"], found["weights"], found["parameters"]) == ("differs",) * 3
    assert [suspect.name for suspect in result.layers] == [layer]
    assert (result.judgements[0].cause, result.judgements[0].facts["layer"]) == ("hardware", layer)


def test_no_weight_is_blamed_where_all_were_right(tmp_path: Path) -> None:
    """A NaN that only the arithmetic made: weights before the update are as in the replay."""
    broken = [True]

    def build() -> Step:
        made = counted()
        plain = made.loss_fn
        made.loss_fn = lambda model, batch: plain(model, batch) * (
            math.nan if broken[0] and late(model) else 1.0
        )
        return made

    recorder = lab.train(tmp_path, AT, builder=build, snapshot_every=4, samples=8)
    assert recorder.capsules
    broken[0] = False
    request = Request(step=None, checkpoint=tmp_path)
    result = replay(from_capsule(build(), request), request)
    found = {match.name: match.state for match in result.matches if match.step == AT}
    assert (found["loss"], found["weights"]) == ("differs", "equal")
    assert result.layers == ()
    assert (result.judgements[0].cause, result.judgements[0].facts["layer"]) == ("hardware", "")
