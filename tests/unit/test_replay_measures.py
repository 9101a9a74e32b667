"""Embeddings, heads, costs, formats and spreads: each beside a slow, obvious second computation."""

from __future__ import annotations

import math
from statistics import mean, median, pstdev, quantiles

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import numpy as np
import replay_lab as lab
import torch
from replay_lab import rows_of
from torch import nn
from torch.nn import functional as F

from loganalyze.replay import embeddings, formats, stats
from loganalyze.replay.costs import Clock, Costs, spent
from loganalyze.replay.instruments import Probe
from loganalyze.replay.measured import (
    Layer,
    Measured,
    Parameter,
    gradient_norms,
    groups,
    sample_spread,
)
from loganalyze.replay.recipe import Recorded, Step
from loganalyze.replay.runner import run_step
from loganalyze.replay.taps import Taps

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("values", "norm"),
    [
        ([1e30, -1e30], math.sqrt(2) * 1e30),
        ([3e38, 3e38, 3e38], math.sqrt(3) * 3e38),
        ([1e-30, 2e-30], math.sqrt(5) * 1e-30),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_norms_outlive_their_squares(
    values: list[float], norm: float, dtype: torch.dtype
) -> None:
    """A finite tensor has a finite norm that isn't 0, even where float32 can't hold the squares."""
    made = stats.summary(rows_of(torch.tensor(values, dtype=dtype))[0])
    assert made["nonfinite"] == 0
    assert made["l2"] == pytest.approx(norm, rel=0.01)
    assert made["absmax"] == pytest.approx(max(map(abs, values)), rel=0.01)


@pytest.mark.parametrize("size", [1e30, 1e200, 1e-30])
def test_large_tensors_outlive_them_too(size: float) -> None:
    """Where only a sample is summed in float64, the norm is its, scaled; neither infinite nor 0."""
    dtype = torch.float64 if size == 1e200 else torch.float32
    tensor = torch.full((5000,), size, dtype=dtype)
    row = rows_of(tensor, sample=100)[0]
    assert row["nonfinite"] == 0
    assert row["l2"] == pytest.approx(math.sqrt(5000) * size)
    tensor[1] = 100 * size
    row = rows_of(tensor, sample=100)[0]
    assert row["l2"] >= 100 * size * (1 - 1e-6)


@pytest.mark.parametrize(("rows", "width"), [(40, 12), (9, 30), (2000, 16)])
def test_embeddings_equal_numpy(rows: int, width: int) -> None:
    """Norms, effective rank, drift and turn of a table are those of NumPy's SVD and loops."""
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(rows, width, generator=generator) @ torch.diag(
        torch.linspace(0.01, 3, width)
    )
    then = weight + 0.1 * torch.randn(rows, width, generator=generator)
    got = embeddings.told(*embeddings.look(weight, then), weight)
    some = slice(None, None, max(1, -(-rows // embeddings.ROWS)))
    now, before = weight[some].double().numpy(), then[some].double().numpy()
    shares = np.linalg.svd(now, compute_uv=False)
    shares = shares / shares.sum()
    norms = [math.sqrt(sum(v * v for v in row)) for row in now]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b)
               for a, b in zip(now, before, strict=True)]  # fmt: skip
    assert got["effective_rank"] == pytest.approx(math.exp(-sum(s * math.log(s) for s in shares)),
                                                  rel=1e-3)  # fmt: skip
    assert got["norm_mean"] == pytest.approx(mean(norms), rel=1e-5)
    assert got["norm_spread"] == pytest.approx(pstdev(norms) / mean(norms), rel=1e-4)
    assert (got["norm_min"], got["norm_max"]) == pytest.approx((min(norms), max(norms)), rel=1e-5)
    assert got["drift"] == pytest.approx(
        np.linalg.norm(now - before) / np.linalg.norm(before), rel=1e-4
    )
    assert got["turned"] == pytest.approx(1 - mean(cosines), abs=1e-6)
    assert got["rank_limit"] == min(len(norms), width)


def heads_of(*given: torch.Tensor, **options: object) -> torch.Tensor:
    """What the tap tells of one attention call: (heads, [entropy, largest logit])."""
    with Taps(lambda: "layer", Clock(cuda=False).looking) as taps:
        F.scaled_dot_product_attention(*given, **options)  # type: ignore[arg-type]
    return taps.attention[0][1]


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float", "grouped"])
def test_heads_equal_the_whole_matrix(kind: str) -> None:
    """Entropy and largest logit of each head, for every way to hide keys, by plain loops."""
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(2, 4, 6, 8, generator=generator)
    k = torch.randn(2, 2 if kind == "grouped" else 4, 6, 8, generator=generator)
    keep = torch.rand(2, 1, 6, 6, generator=generator) > 0.4
    keep |= torch.eye(6).bool()
    bias = torch.randn(6, 6, generator=generator)
    options = {
        "none": {}, "causal": {"is_causal": True}, "bool": {"attn_mask": keep},
        "float": {"attn_mask": bias}, "grouped": {"enable_gqa": True},
    }[kind]  # fmt: skip
    got = heads_of(q, k, k, **options)
    for head in range(4):
        entropies, logits = [], []
        for sample in range(2):
            keys = k[sample, head // 2 if kind == "grouped" else head]
            for i in range(6):
                row = []
                for j in range(6):
                    hidden = (kind == "causal" and j > i) or (
                        kind == "bool" and not keep[sample, 0, i, j]
                    )
                    logit = float(q[sample, head, i] @ keys[j]) / math.sqrt(8)
                    logit += float(bias[i, j]) if kind == "float" else 0.0
                    row.append(-math.inf if hidden else logit)
                weights = [math.exp(x) for x in row]
                total = sum(weights)
                entropies.append(-sum(w / total * math.log(w / total) for w in weights if w))
                logits += row
        assert float(got[head, 0]) == pytest.approx(mean(entropies), rel=1e-4)
        assert float(got[head, 1]) == pytest.approx(max(logits), rel=1e-5)


def test_a_query_without_keys_is_no_nan() -> None:
    """Rows of padding, which see nothing, leave the entropy finite."""
    q = torch.ones(1, 1, 2, 4)
    mask = torch.tensor([[True, True], [False, False]])
    assert bool(heads_of(q, q, q, attn_mask=mask)[0, 0].isfinite())


@pytest.fixture(scope="module")
def seen() -> tuple[Measured, Step]:
    """One measured step of the lab's model."""
    made = lab.build()
    batch = lab.text(8, torch.Generator().manual_seed(3))
    data = Recorded(step=1, micro_batches=(batch[:4], batch[4:]))
    with Probe(made.model, dict(made.model.named_parameters())) as probe:
        run_step(made, data, probe)
    return probe.result(), made


def test_every_level_of_the_pyramid_is_there(seen: tuple[Measured, Step]) -> None:
    """L2 norms, L3 layers, L4 samples, L5 embeddings, L6 heads; time and memory with them."""
    measured, made = seen
    assert {p.name for p in measured.parameters} == dict(made.model.named_parameters()).keys()
    assert all(p.gradient and p.update_l2 is not None for p in measured.parameters)
    matrices = [p for p in measured.parameters if p.name.endswith("weight")]
    assert all(p.update_ratio is not None and 0 < p.update_ratio < 1 for p in matrices)
    assert gradient_norms(measured.parameters)["concentration"] >= 1
    assert {"embedding", "attention", "ffn", "output"} <= groups(measured.parameters).keys()
    assert measured.samples is not None
    assert (len(measured.samples.losses), len(measured.samples.positions)) == (8, lab.LENGTH)
    assert [e.name for e in measured.embeddings] == ["wte", "wpe"]
    assert all(e.numbers["drift"] == 0 for e in measured.embeddings)
    blocks = [x for x in measured.layers if x.attention]
    assert [x.name for x in blocks] == [f"blocks.{i}" for i in range(lab.LAYERS)]
    assert all(len(x.head_entropy) == len(x.head_logit) == 2 for x in blocks)


def test_costs_of_layers_add_up(seen: tuple[Measured, Step]) -> None:
    """Bytes are those of the tensors; a block keeps at least what its layers keep."""
    measured, _ = seen
    by_name = {layer.name: layer for layer in measured.layers}
    up = by_name["blocks.0.mlp_up"].cost
    assert up["output_bytes"] == 4 * lab.LENGTH * 4 * lab.WIDTH * 4
    assert up["parameter_bytes"] == (4 * lab.WIDTH * lab.WIDTH + 4 * lab.WIDTH) * 4
    inside = [x.cost["kept_bytes"] for name, x in by_name.items() if name.startswith("blocks.0.")]
    assert by_name["blocks.0"].cost["kept_bytes"] >= sum(inside) > 0
    assert all(x.cost["forward_seconds"] >= 0 for x in measured.layers)
    assert by_name["blocks.0"].cost["forward_seconds"] >= up["forward_seconds"]
    assert by_name["blocks.1"].cost["backward_seconds"] > 0


def test_time_of_looking_counts_for_no_layer() -> None:
    """A pause of the instruments is not in the layer's seconds; a pause of the layer is."""
    import time

    costs = Costs(Clock(cuda=False), set())
    costs.begin("forward", "x")
    with costs.clock.looking():
        time.sleep(0.2)
    time.sleep(0.02)
    costs.end("forward", "x")
    assert 0.02 <= costs.told("x")["forward_seconds"] < 0.2


def test_spent_measures_a_block() -> None:
    """Seconds of the block; without a GPU no bytes."""
    with spent() as made:
        pass
    assert made.seconds >= 0
    assert torch.cuda.is_available() or made.peak_bytes == 0


class Two(nn.Module):
    """A model that calls the cross-entropy twice: an auxiliary loss, then its own."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens)


def test_the_last_cross_entropy_of_a_micro_batch_counts() -> None:
    """An auxiliary loss doesn't double the samples."""

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        logits = model(batch).flatten(0, 1)
        other = F.cross_entropy(logits, batch.flatten() * 0)
        return 0.1 * other + F.cross_entropy(logits, batch.flatten())

    model = Two()
    batch = torch.arange(12).reshape(4, 3) % 5
    step = Step(model=model, loss_fn=loss)
    with Probe(model) as probe:
        run_step(step, Recorded(step=1, micro_batches=(batch, batch[:2])), probe)
    samples = probe.result().samples
    assert samples is not None
    with torch.no_grad():
        alone = [float(F.cross_entropy(model(row), row)) for row in [*batch, *batch[:2]]]
    assert samples.losses == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_token_losses_equal_those_computed_anew(kind: torch.dtype, smoothing: float) -> None:
    """Whether they are read from what backward keeps or not, ignored tokens count nothing."""
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(12, 7, generator=generator).to(kind).requires_grad_()
    target = torch.randint(7, (12,), generator=generator)
    target[3] = -100
    with Taps(lambda: "layer", Clock(cuda=False).looking) as taps:
        taps.next_batch(4)
        F.cross_entropy(logits, target, label_smoothing=smoothing)
    heard = taps.token_losses[0]
    expected = F.cross_entropy(logits.double(), target, reduction="none", label_smoothing=smoothing)
    assert heard.losses.flatten().tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert heard.counted.flatten().tolist() == (target != -100).tolist()


def test_spreads_equal_plain_python() -> None:
    """Medians, p95, ratios and shares of samples; mean, median, p99 and largest of norms."""
    losses = [1.0 + 0.1 * (7 * i % 40) for i in range(40)]
    got = sample_spread(tuple(losses) + (math.nan,))
    cuts = quantiles(losses, n=100, method="inclusive")
    assert (got["p50"], got["p95"]) == pytest.approx((median(losses), cuts[94]))
    assert got["ratio"] == pytest.approx(cuts[94] / median(losses))
    assert got["hard_share"] == pytest.approx(sum(sorted(losses)[-2:]) / sum(losses))
    assert (got["count"], got["nonfinite"]) == (41, 1)
    assert sample_spread(()) == {}
    found = gradient_norms(tuple(
        Parameter(name=str(i), layer="", group="ffn", weight={}, gradient={"l2": loss})
        for i, loss in enumerate(losses)
    ))  # fmt: skip
    assert found["p99"] == pytest.approx(cuts[98])
    assert found["mean"] == pytest.approx(mean(losses))
    assert found["concentration"] == pytest.approx(max(losses) / median(losses))


def layer(name: str, **activation: float) -> Layer:
    """A layer with a given output."""
    plain = {"rms": 1.0, "absmax": 1.0, "nonfinite": 0.0, "near_max_share": 0.0,
             "subnormal_share": 0.0}  # fmt: skip
    return Layer(name=name, kind="Linear", group="ffn", order=0, activation={**plain, **activation})


def test_formats_are_compared_layer_by_layer() -> None:
    """What only one format holds is infinitely far apart; equal layers keep their order."""
    own = Measured(layers=(layer("a"), layer("b", rms=2.0), layer("c", nonfinite=3.0)),
                   parameters=(), samples=None)  # fmt: skip
    wide = Measured(layers=(layer("a"), layer("b"), layer("c")), parameters=(), samples=None)
    rows = formats.compare(own, wide)
    assert [row.apart for row in rows] == [0.0, pytest.approx(math.log(2)), math.inf]
    assert [row.name for row in formats.worst_first(rows)] == ["c", "b", "a"]

