"""Statistics of replay: each against a slow, obvious second implementation."""

from __future__ import annotations

import math
from statistics import mean, quantiles

import pytest

pytest.importorskip("torch", reason="replay needs torch")
pytest.importorskip("safetensors", reason="replay needs safetensors")

import torch
from replay_lab import rows_of

from loganalyze.replay import stats
from loganalyze.replay.measured import gradient_norms, group_of, hard_share, role_of

torch.set_num_threads(1)


def slow(values: list[float], tensor: torch.Tensor) -> dict[str, float]:
    """The same numbers by plain Python."""
    kept = [v for v in values if math.isfinite(v)]
    middle = mean(kept)
    var = mean((v - middle) ** 2 for v in kept)
    cuts = quantiles([abs(v) for v in kept] + [0.0] * (len(values) - len(kept)), n=100,
                     method="inclusive")  # fmt: skip
    info = torch.finfo(tensor.dtype)
    return {
        "l2": math.sqrt(sum(v * v for v in kept)),
        "rms": math.sqrt(sum(v * v for v in kept) / len(values)),
        "mean": middle, "var": var, "absmax": max(map(abs, kept)),
        "kurtosis": mean((v - middle) ** 4 for v in kept) / var**2,
        "p50": cuts[49], "p99": cuts[98],
        "zero_share": sum(v == 0 for v in kept) / len(kept),
        "nonfinite": len(values) - len(kept),
        "near_max_share": sum(abs(v) >= info.max / 2 for v in kept) / len(kept),
        "subnormal_share": sum(0 < abs(v) < info.tiny for v in kept) / len(kept),
        "size": len(values),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_column_equals_plain_python(seed: int, dtype: torch.dtype) -> None:
    """Moments, norms, quantiles and shares, with zeros, subnormals, NaN and Inf among them."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(37, 11, generator=generator).to(dtype)
    tensor[0, :3] = 0
    tensor[1, 0] = math.nan
    tensor[1, 1] = math.inf
    tensor[2, 0] = 6e-8 if dtype is torch.float16 else 1e-39
    if dtype is torch.float16:
        tensor[3, 0] = 60000
    expected = slow(tensor.double().flatten().tolist(), tensor)
    got = stats.summary(rows_of(tensor)[0])
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_pooled_moments_equal_those_of_the_whole(seed: int) -> None:
    """Rows of micro-batches merge into the row of their union, but for the quantiles."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(60, generator=generator).exp()
    rows = rows_of(*whole.split([5, 30, 25]))
    one = stats.summary(rows_of(whole)[0])
    pooled = stats.summary(stats.merged(rows))
    for key in one.keys() - {"p50", "p99"}:
        assert pooled[key] == pytest.approx(one[key], rel=1e-9), key


def test_large_tensors_are_sampled_but_extremes_are_exact() -> None:
    """Norm, largest value and non-finite count are of every value, whatever the sample."""
    tensor = torch.ones(1001)
    tensor[1] = 50
    row = rows_of(tensor, sample=10)[0]
    assert (row["absmax"], row["nonfinite"]) == (50, 0)
    assert row["l2"] == pytest.approx(math.sqrt(1000 + 2500))
    assert row["n"] < 20
    tensor[3] = math.inf
    row = rows_of(tensor, sample=10)[0]
    assert (row["nonfinite"], row["absmax"]) == (1, 1)
    assert row["l2"] == pytest.approx(math.sqrt(1001))


def test_rows_are_the_same_however_they_are_reduced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tensors of many lengths and formats, reduced in several goes: each row is as if alone."""
    generator = torch.Generator().manual_seed(0)
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    tensors = [torch.randn(7 + 40 * (i % 3), generator=generator).to(kinds[i % 2 + i // 20])
               for i in range(40)]  # fmt: skip
    tensors[5][2] = math.nan
    alone = [rows_of(tensor, sample=20)[0] for tensor in tensors]
    monkeypatch.setattr(stats, "_WAITING", 150)
    for one, many in zip(alone, rows_of(*tensors, sample=20), strict=True):
        assert many == pytest.approx(one, rel=1e-12)


def test_a_tensor_that_changes_later_was_seen_as_it_was() -> None:
    """What waits to be reduced is a copy."""
    rows, tensor = stats.Rows(), torch.ones(8)
    rows.add("x", tensor)
    tensor.zero_()
    assert stats.settled(rows.table().tolist()[0])["l2"] == pytest.approx(math.sqrt(8))


def test_empty_tensors_and_no_rows() -> None:
    """Nothing to measure is no error."""
    assert rows_of() == []
    assert stats.summary(rows_of(torch.zeros(0))[0])["absmax"] == 0


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("transformer.wte.weight", "embedding"), ("model.embed_tokens.weight", "embedding"),
        ("model.layers.3.self_attn.q_proj.weight", "attention"),
        ("transformer.h.0.attn.c_attn.bias", "attention"),
        ("model.layers.3.mlp.down_proj.weight", "ffn"), ("blocks.1.mlp_up.weight", "ffn"),
        ("lm_head.weight", "output"), ("decoder.layers.0.input_layernorm.weight", "norm"),
        ("language_model.output_layer.weight", "output"), ("gain", "other"),
    ],
)  # fmt: skip
def test_groups_of_parameters(name: str, group: str) -> None:
    """Names of common model families fall into the group that a reader expects."""
    assert group_of(name) == group


def test_roles_concentration_and_hard_share() -> None:
    """Peers share a role; shares are of the whole loss."""
    assert role_of("h.3.mlp") == role_of("h.11.mlp")
    assert gradient_norms(()) == {}
    assert hard_share((1.0,) * 19 + (19.0,), 0.05) == pytest.approx(0.5)
    assert hard_share((), 0.05) is None
