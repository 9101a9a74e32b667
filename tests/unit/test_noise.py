"""Lines nobody needs are ignored by a named rule; lines that may matter never are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loganalyze_parsers.noise import ignore_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "blank line"),
        ("-----------------------", "horizontal rule"),
        ("n7:311:402 [3] NCCL INFO Channel 01/16 : 0 7 6 5 4 3 2 1", "NCCL information"),
        ("frame #7: <unknown function> + 0x5af1 (0x7f11 in libtorch.so)", "stack frame"),
        ("/opt/x/layers.py:88: FutureWarning: `old()` is deprecated.", "Python warning"),
        ("fused_adam ............. [NO] ....... [OKAY]", "DeepSpeed environment report"),
        ("hidden_size ..................................... 4096", "argument dump"),
        ('"train_micro_batch_size_per_gpu": 4,', "settings as JSON or YAML"),
        ("++ hostname", "shell trace"),
        ("export NCCL_IB_TIMEOUT=22", "environment variable"),
        ("[W612 01:02:03.456 init.cpp:772] Warning: nvfuser is gone", "PyTorch runtime message"),
        ("Submitted batch job 4711", "job report of the scheduler"),
        ("> building shuffle index with split [0, 70) ...", "data set index"),
        ("> padded vocab (size: 50257) with 47 dummy tokens", "start-up message"),
        ("module.decoder.layers.3.mlp.linear_fc1.weight", "model structure"),
        ("[3/7] /usr/local/cuda/bin/nvcc -c kernel.cu -o kernel.o", "compiler"),
        ("Requirement already satisfied: numpy in /opt/lib (1.26.4)", "package manager"),
        ("| N/A   41C    P0    92W / 400W |   1024MiB / 40960MiB |", "nvidia-smi table"),
        ("Map:  40%|####      | 400/1000 [00:01<00:02, 300.00 examples/s]", "progress bar"),
        ("INFO:datasets:PyTorch version 2.9.1 available.", "library message"),
        ("Well met by moonlight", "text without numbers or failure words"),
    ],
)
def test_rules(text: str, rule: str) -> None:
    """Each sort of noise is counted under its own name."""
    assert ignore_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "step 12, loss 3.25",
        "INFO:mytrainer:epoch 3 loss: 2.75",
        "[INFO] my loop: grad_norm=0.25",
        "Iter 100 | Loss nan",
        "12 3.25 0.001",
        "> validation perplexity: 14.5",
        "WARNING:root:Unable to reach node 7",
        "the worker was killed",
        "ERROR something bad",
        "my op .......: (1.25, 2.50)",
        "Epoch 4:  40%|####      | 400/1000 [00:01<00:02, 300.00it/s, loss=1.25]",
        "[INFO] memory after step: 14.25 GB",
        "wandb: train/loss 0.25",
    ],
)
def test_lines_that_may_matter_stay_unknown(text: str) -> None:
    """A training number or a failure word keeps a line out of every general rule."""
    assert ignore_rule(text) is None


@given(
    st.sampled_from(["", "INFO:x:", "> ", "[INFO] ", "module.a ", "epochs: ", "Loading "]),
    st.sampled_from(["loss", "grad norm", "lr", "val_loss", "step", "reward"]),
    st.sampled_from([": ", "=", " ", " = ", "': "]),
    st.floats(allow_nan=True, allow_infinity=True),
)
def test_no_prefix_hides_a_training_number(
    prefix: str, name: str, separator: str, value: float
) -> None:
    """Whatever stands before it, `loss: 3.2` is never ignored."""
    assert ignore_rule(f"{prefix}{name}{separator}{value}") is None


@given(st.text(max_size=300))
def test_any_text_has_an_answer(text: str) -> None:
    """No text breaks a rule, and the answer is the same when asked again."""
    assert ignore_rule(text) == ignore_rule(text)
