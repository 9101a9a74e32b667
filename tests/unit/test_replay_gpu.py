"""On a GPU: bf16 replays, statistics in a single transfer, a recorder that doesn't block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import replay_lab as lab
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from loganalyze.replay import Recorder, Request, Step
from loganalyze.replay.builtin import from_capsule
from loganalyze.replay.instruments import Probe
from loganalyze.replay.readout import to_host
from loganalyze.replay.recipe import Precision, Recorded
from loganalyze.replay.runner import run_step
from loganalyze.replay.session import replay

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # of kernels that may not be deterministic
]
STEPS, BAD = 48, 44


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Deterministic kernels, as a run that is to be replayed bit for bit has them."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    with sdpa_kernel(SDPBackend.MATH):
        yield
    torch.use_deterministic_algorithms(False)


def record(folder: Path, precision: Precision) -> Recorder:
    """Trains the lab's model on the GPU; a sample of step BAD is noise."""
    made = lab.build()
    made.model.cuda()
    recorder = Recorder(folder, made.model, made.optimizer, builder=lab.BUILDER, clip=1.0,
                        precision=precision, snapshot_every=16)  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    for number in range(1, STEPS + 1):
        batch = lab.text(16, generator)
        if number == BAD:
            batch[5] = torch.randint(lab.VOCAB, (lab.LENGTH + 1,), generator=generator)
        batch = batch.cuda()
        with recorder.step(number, batch) as record:
            loss, norm = step_on_gpu(made, batch, precision)
            record.log(loss=loss, grad_norm=norm)
    recorder.capture()
    return recorder


def step_on_gpu(made: Step, batch: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """Forward, backward, clip, update, as a plain loop writes it."""
    assert made.optimizer is not None
    made.optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
        loss = made.loss_fn(made.model, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(made.model.parameters(), 1.0)
    made.optimizer.step()
    return loss.detach(), norm


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_on_the_gpu_is_replayed(precision: Precision, tmp_path: Path) -> None:
    """Every recorded loss and norm comes out bit for bit; the instruments change nothing."""
    recorder = record(tmp_path, precision)
    assert recorder.capsules
    request = Request(step=BAD, device="cuda", checkpoint=tmp_path)
    result = replay(from_capsule(lab.build(), request), request, against="fp32")
    assert result.reproduced == "equal"
    assert (result.precision, result.deterministic, result.untouched) == (precision, True, True)
    assert result.samples[0].index == 5
    assert result.memory["instrumented"] >= result.memory["bare"] > 0
    if precision == "bf16":
        assert result.formats
        assert all(row.apart < 0.5 for row in result.formats)


def measured_step() -> tuple[Step, Recorded]:
    """The lab's model on the GPU with a batch."""
    made = lab.build()
    made.model.cuda()
    batch = lab.text(8, torch.Generator().manual_seed(1)).cuda()
    return made, Recorded(step=1, micro_batches=(batch,))


def waits(run: Callable[[], object]) -> int:
    """How often something makes the host wait for the GPU, by torch's own account."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(item.message) for item in told)


def test_the_instruments_wait_for_nothing() -> None:
    """With them, a step makes the host wait no more often than without."""
    made, data = measured_step()
    run_step(made, data)  # first calls load kernels

    def instrumented() -> None:
        with Probe(made.model) as probe:
            run_step(made, data, probe)

    instrumented()
    assert waits(instrumented) == waits(lambda: run_step(made, data))


def test_all_statistics_come_in_one_transfer() -> None:
    """The host waits once for the result, however many layers there are."""
    made, data = measured_step()
    with Probe(made.model) as probe:
        run_step(made, data, probe)
    torch.cuda.synchronize()
    assert waits(probe.result) == 1


def test_tensors_of_any_kind_arrive_as_they_were() -> None:
    """What is transferred together comes back in its own shapes."""
    tensors = [torch.ones(2, 3, device="cuda"), torch.tensor([True], device="cuda")]
    assert [item.tolist() for item in to_host(tensors)] == [[[1.0] * 3] * 2, [1.0]]


def test_statistics_on_the_gpu_are_those_of_the_cpu() -> None:
    """Rows of the same tensors agree, sampled or whole, in every format."""
    generator = torch.Generator().manual_seed(0)
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        tensor = torch.randn(40_000, generator=generator).to(kind)
        tensor[7] = torch.nan
        small = tensor[:100]
        ours = lab.rows_of(tensor.cuda(), small.cuda())
        for one, other in zip(ours, lab.rows_of(tensor, small), strict=True):
            assert one == pytest.approx(other, rel=1e-5)


def test_the_recorder_does_not_block(tmp_path: Path) -> None:
    """A step without a copy of the state is recorded without one synchronisation."""
    made, data = measured_step()
    recorder = Recorder(tmp_path, made.model, made.optimizer)
    values = torch.ones((), device="cuda")

    def step(number: int) -> None:
        opened = recorder.step(number, data.micro_batches[0])
        opened.log(loss=values, grad_norm=values)
        recorder.close_step(opened, None)

    for number in range(3):  # the first copies the state
        step(number)
    assert waits(lambda: step(3)) == 0
