"""Recorder and runner: what is recorded replays bit for bit, and looking changes nothing."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import numpy as np
import replay_lab as lab
import torch
from torch import nn

from loganalyze.errors import StoreError, UsageError
from loganalyze.replay import Recorder, Request, Step, batches, capsule, checkpoint, state
from loganalyze.replay.instruments import Probe
from loganalyze.replay.recipe import Recorded, load_function, load_step
from loganalyze.replay.runner import run_step
from loganalyze.replay.watch import Watch

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with dropout that asked for a capsule at its end."""
    recorder = lab.train(tmp_path_factory.mktemp("run"), 12, snapshot_every=4)
    path = recorder.capture()
    assert path is not None
    return path


def opened(path: Path, step: int | None = None) -> Step:
    """The capsule's step."""
    return load_step(f"capsule:{lab.BUILDER}", Request(step=step, checkpoint=path))


def test_recorded_steps_replay_bit_for_bit(recorded: Path) -> None:
    """Loss, gradient norm and every parameter come out as they were, dropout included."""
    step = opened(recorded)
    assert len(step.before) >= 2
    for data in (*step.before, step.target()):
        outcome = run_step(step, data)
        assert (outcome.loss, outcome.grad_norm) == (data.values["loss"], data.values["grad_norm"])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_looking_changes_nothing(recorded: Path, precision: str) -> None:
    """A step with and without instruments is bit-equal: results, state, modes, generators."""
    step = opened(recorded)
    start = state.take(step.model, step.optimizer)
    ends = []
    for probe in (None, Probe(step.model)):
        start.restore(step.model, step.optimizer)
        if probe is None:
            outcome = run_step(step, step.before[0], precision=precision)
        else:
            with probe:
                outcome = run_step(step, step.before[0], probe, precision=precision)
            assert probe.result().layers
        ends.append((outcome, state.digests(step.model), state.capture_rng(),
                     state.take(step.model, step.optimizer)))  # fmt: skip
    (one, hashes, rng, after), (two, hashes2, rng2, after2) = ends
    assert one.same(two)
    assert hashes == hashes2
    assert rng == rng2
    assert after.modes == after2.modes
    assert after.optimizer is not None
    assert after2.optimizer is not None
    for name, entry in after.optimizer["state"].items():
        assert all(torch.equal(v, after2.optimizer["state"][name][k]) for k, v in entry.items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in step.model.modules())


def test_sample_losses_are_those_of_each_sample_alone(recorded: Path) -> None:
    """What is heard at the cross-entropy equals one forward pass per sample."""
    step = opened(recorded)
    step.model.eval()
    data = step.before[0]
    with Probe(step.model) as probe:
        run_step(step, data, probe)
        start = opened(recorded).model.eval()
    samples = probe.result().samples
    assert samples is not None
    batch = data.micro_batches[0]
    with torch.no_grad():
        alone = [float(lab.loss_fn(start, batches.select(batch, [i]))) for i in range(16)]
    assert samples.losses == pytest.approx(alone, rel=1e-5)
    assert sum(samples.positions) / lab.LENGTH == pytest.approx(sum(alone) / 16, rel=1e-5)


def test_attention_statistics_equal_plain_ones(recorded: Path) -> None:
    """Entropy and largest logit per head equal those of the whole attention matrix."""
    step = opened(recorded)
    step.model.eval()
    seen = {}
    block = step.model.get_submodule("blocks.1")
    qkv = block.get_submodule("qkv").register_forward_hook(
        lambda m, i, o: seen.update(qkv=o[:2].detach())
    )
    with Probe(step.model) as probe:
        run_step(step, step.before[0], probe)
    qkv.remove()
    q, k, _ = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in seen["qkv"].chunk(3, -1))
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    logits = logits.masked_fill(torch.ones(lab.LENGTH, lab.LENGTH).triu(1).bool(), -math.inf)
    chances = logits.softmax(-1)
    entropy = torch.special.entr(chances).sum(-1).mean((0, 2))
    layer = next(item for item in probe.result().layers if item.name == "blocks.1")
    assert layer.attention["entropy"] == pytest.approx(float(entropy.mean()), rel=1e-5)
    assert layer.attention["largest_logit"] == pytest.approx(float(logits.max()), rel=1e-5)


def test_a_spike_leaves_a_capsule_without_pickles(tmp_path: Path) -> None:
    """Steps, ids, hashes, the state before and after, the log's tail; nothing executable."""
    log = tmp_path / "train.log"
    log.write_text("last words\n", encoding="utf-8")

    def fault(step: int, made: Step, batch: torch.Tensor) -> None:
        if step == 24:
            with torch.no_grad():
                made.model.get_parameter("blocks.1.mlp_down.weight").mul_(100)

    recorder = lab.train(tmp_path / "box", 26, fault=fault, snapshot_every=4, tail=log)
    assert [path.name for path in recorder.capsules] == ["capsule-24"]
    names = {path.name for path in recorder.capsules[0].iterdir()}
    assert names == {"capsule.json", "state.safetensors", "batches.safetensors",
                     "after.safetensors", "tail.txt"}  # fmt: skip
    held = capsule.read(recorder.capsules[0])
    assert (held.reason, held.step, held.steps[0].step) == ("spike", 24, 21)
    assert held.steps[-1].sample_ids[3] == "s24-3"
    rows = held.steps[-1].micro_batches[0].tolist()
    assert len(held.steps[-1].hashes) == 16
    assert len(set(held.steps[-1].hashes)) == len(set(map(tuple, rows)))
    assert (recorder.capsules[0] / "tail.txt").read_text(encoding="utf-8") == "last words\n"
    lines = [json.loads(line) for line in (tmp_path / "box/steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in lines] == list(range(1, 25))
    assert lines[3]["offset"] == 64


def test_an_exception_leaves_a_capsule_and_goes_on_its_way(tmp_path: Path) -> None:
    """What the loop raises is raised, and the step that raised it is in the capsule."""
    made = lab.build()
    recorder = Recorder(tmp_path, made.model, made.optimizer)
    with pytest.raises(ZeroDivisionError), recorder.step(1, torch.zeros(2, 17).long()):
        raise ZeroDivisionError("no")
    held = capsule.read(recorder.capsules[0])
    assert (held.reason, held.text) == ("exception", "ZeroDivisionError: no")


def test_a_batch_that_cannot_be_stored_never_stops_the_run(tmp_path: Path) -> None:
    """The recorder warns, and the training goes on."""
    made = lab.build()
    recorder = Recorder(tmp_path, made.model, made.optimizer)
    with (
        pytest.warns(UserWarning, match="no capsule of step 1"),
        recorder.step(1, {"x": SimpleNamespace()}) as record,
    ):
        record.log(loss=math.nan)
    assert recorder.capsules == []


def test_the_ring_is_bounded(tmp_path: Path) -> None:
    """No more than `ring` steps or `ring_bytes` of batches are held."""
    made = lab.build()
    recorder = Recorder(tmp_path, made.model, None, ring=8, snapshot_every=4, ring_bytes=3000)
    for number in range(30):
        with recorder.step(number, torch.zeros(100)) as record:
            record.log(loss=1.0)
        assert len(recorder._steps) <= 8
        assert sum(step.bytes for step in recorder._steps) <= 3000
    held = capsule.read(recorder.capture() or tmp_path)
    assert held.step == 29
    assert len(held.steps) >= 3


def test_copies_of_the_state_take_little_of_the_time(tmp_path: Path) -> None:
    """Without a number they come as seldom as their cost asks, but before the ring is half full."""
    made = lab.build()
    recorder = Recorder(tmp_path, made.model, made.optimizer, ring=200)
    starts = set()
    for number in range(240):
        with recorder.step(number, torch.zeros(4)) as record:
            record.log(loss=1.0)
        recorder._rested = math.inf  # a copy that would have been very slow
        starts.add(recorder._snapshots[-1][0])
    assert sorted(starts) == [0, 100, 200]
    recorder._rested = 0.0
    for number in range(240, 300):
        with recorder.step(number, torch.zeros(4)) as record:
            record.log(loss=1.0)
        recorder._rested = 0.0
        starts.add(recorder._snapshots[-1][0])
    assert sorted(starts) == [0, 100, 200, 240, 272]


def test_peak_memory_is_of_each_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log carries the most bytes of every device, and the largest of them."""
    monkeypatch.setattr(state, "peak_memory", lambda: [5, 7])
    made = lab.build()
    recorder = Recorder(tmp_path, made.model, None)
    with recorder.step(1, torch.zeros(4)) as record:
        record.log(loss=1.0)
    recorder.flush()
    row = json.loads((tmp_path / "steps.jsonl").read_text("utf-8"))
    assert (row["peak_memory_bytes"], row["peak_memory_bytes_by_device"]) == (7, [5, 7])


def test_what_the_recorder_takes_for_a_fault() -> None:
    """NaN, jumps of loss or norm; never a falling loss, nor a scaler's overflow."""
    watch = Watch()
    noise = random.Random(1)
    falling = [4 * 0.97**i * (1 + 0.02 * noise.gauss(0, 1)) for i in range(200)]
    assert not any(watch.see({"loss": loss, "grad_norm": 1.0}) for loss in falling)
    assert watch.see({"loss": 0.1, "grad_norm": math.inf, "loss_scale": 65536.0}) == ""
    assert watch.see({"loss": 0.01, "grad_norm": 20.0}) == "grad_spike"
    assert watch.see({"loss": 4.0}) == "spike"
    assert watch.see({"loss": math.nan}) == "nonfinite"


@pytest.mark.parametrize("kind", ["tuple", "dict", "nested"])
def test_batches_of_any_shape(kind: str, tmp_path: Path) -> None:
    """Samples are counted, picked and hashed in tensors, mappings and sequences alike."""
    rows = torch.arange(12).reshape(4, 3)
    batch = {"tuple": (rows, rows + 1), "dict": {"a": rows, "scale": 2.0},
             "nested": [{"a": (rows,)}, torch.tensor(3)]}[kind]  # fmt: skip
    assert batches.sample_count(batch) == 4
    some = batches.select(batch, [2, 0])
    assert batches.tensors_of(some)[0].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert batches.sample_hashes(some)[0] == batches.sample_hashes(batch)[2]
    held = _stored(tmp_path, batch)
    assert str(held) == str(batch)


def _stored(folder: Path, batch: object) -> object:
    taken = state.take(nn.Linear(1, 1), None)
    steps = (Recorded(step=1, micro_batches=(batch,), values={"loss": math.inf}),)
    made = capsule.Capsule(reason="asked", step=1, snapshot=taken, steps=steps, precision="fp32",
                           clip=None, builder="")  # fmt: skip
    back = capsule.read(capsule.write(folder / "c", made))
    assert back.steps[0].values == {"loss": math.inf}
    return back.steps[0].micro_batches[0]


def test_generators_that_stood_still_are_kept_once(tmp_path: Path) -> None:
    """Steps share what their generators did not change; each still has its own state."""
    made = lab.build()
    recorder = Recorder(tmp_path, made.model, None)
    states = []
    for number in range(3):
        with recorder.step(number, torch.zeros(4)) as record:
            if number == 1:
                random.random()
                np.random.rand()
            torch.rand(1)
        states.append(record.rng)
    for place in (1, 2):
        assert states[0][place] is states[1][place]
        assert states[1][place] is not states[2][place]
    assert len({state.digest(item[0]) for item in states}) == 3


def test_generators_are_put_back() -> None:
    """Python, NumPy and torch draw the same numbers again."""
    import numpy as np

    held = json.loads(json.dumps(state.capture_rng()))
    first = (random.random(), float(np.random.rand()), float(torch.rand(())), random.gauss(0, 1))
    state.restore_rng(held)
    again = (random.random(), float(np.random.rand()), float(torch.rand(())), random.gauss(0, 1))
    assert first == again


class Hostile:
    """Runs something when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('ran')",))


def test_a_hostile_checkpoint_is_refused(tmp_path: Path) -> None:
    """Pickles that hold more than tensors are refused with the way out; their code never runs."""
    path = tmp_path / "evil.pt"
    torch.save({"model": Hostile()}, path)
    with pytest.raises(UsageError, match="refused") as error:
        checkpoint.load(path, "cpu", trust=False)
    assert "--trust-checkpoint" in error.value.hint
    with pytest.raises(SystemExit, match="ran"):
        checkpoint.load(path, "cpu", trust=True)


def test_plain_checkpoints_are_read(tmp_path: Path) -> None:
    """A state dict with its optimizer, from the file or its folder, fills the builder's step."""
    made = lab.build(seed=5)
    lab.one_step(made, lab.text(4, torch.Generator().manual_seed(1)))
    assert made.optimizer is not None
    torch.save({"model": made.model.state_dict(), "optimizer": made.optimizer.state_dict()},
               tmp_path / "step1.pt")  # fmt: skip
    request = Request(step=2, checkpoint=tmp_path)
    step = load_step(f"torch:{lab.BUILDER}", request)
    assert state.digests(step.model) == state.digests(made.model)
    assert step.optimizer is not None
    assert len(step.optimizer.state) == len(made.optimizer.state)
    assert step.step == 2


def test_damaged_capsules_are_told(recorded: Path, tmp_path: Path) -> None:
    """A capsule of another schema, cut short or missing is a message, never a traceback."""
    with pytest.raises(UsageError, match="no capsule"):
        capsule.find(tmp_path, 1)
    with pytest.raises(UsageError, match="no capsule holds step 99"):
        capsule.find(recorded.parent, 99)
    (tmp_path / "capsule.json").write_text('{"schema": "other"}', encoding="utf-8")
    with pytest.raises(StoreError, match="schema"):
        capsule.read(tmp_path)
    text = (recorded / "capsule.json").read_text(encoding="utf-8")
    (tmp_path / "capsule.json").write_text(text, encoding="utf-8")
    (tmp_path / "state.safetensors").write_bytes(b"short")
    with pytest.raises(StoreError, match="safetensors"):
        capsule.read(tmp_path)


def test_recipes_that_are_wrong_say_so(tmp_path: Path, recorded: Path) -> None:
    """No file, no function, no Step, no builder: each is one line with what to do."""
    with pytest.raises(UsageError, match="no such Python file"):
        load_function("nowhere.py:f")
    file = tmp_path / "mine.py"
    file.write_text("def recipe():\n    return 5\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has no function 'other'"):
        load_function(f"{file}:other")
    with pytest.raises(UsageError, match="gave int, not a Step"):
        load_step(str(file), Request(step=1))
    with pytest.raises(UsageError, match="wants to run") as error:
        load_step("capsule", Request(step=None, checkpoint=recorded))
    assert "--trust-checkpoint" in error.value.hint
    trusted = load_step("capsule", Request(step=None, checkpoint=recorded, trust=True))
    assert trusted.before


def test_without_torch_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the package works; its first name says which extra is missing."""
    import loganalyze.replay as package

    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="torch and safetensors") as error:
        package.__getattr__("Recorder")
    assert "loganalyze[replay]" in error.value.hint
    with pytest.raises(AttributeError):
        package.__getattr__("nothing")
