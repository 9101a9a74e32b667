"""Keras' progress lines: steps through the epochs, both versions, drawn over themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from loganalyze_parsers.keras import DIALECT
from loganalyze_parsers.samples import rows_of
from textlogs import run_of

BAR = "━" * 20


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (" 7/20 [=========>....................] - ETA: 1:23 - loss: 2.25 - accuracy: 0.125",
         {"loss": 2.25, "token_accuracy": 0.125}),
        ("20/20 [==============================] - 83s 83ms/step - loss: 1.5 - val_loss: 1.75",
         {"loss": 1.5, "val_loss": 1.75, "step_time_s": 0.083}),
        (f"7/20 {BAR} 1:23 2s/step - learning_rate: 5e-05 - loss: nan",
         {"lr": 5e-5, "loss": pytest.approx(float("nan"), nan_ok=True), "step_time_s": 2.0}),
        (f"\x08\x08\x08\x08 7/20 {BAR} 0s 250us/step - loss: 3.5 - my_metric: 7",
         {"loss": 3.5, "raw/my_metric": 7.0, "step_time_s": 0.00025}),
    ],
)  # fmt: skip
def test_a_bar_of_either_version(line: str, values: dict[str, float]) -> None:
    """Its numbers under canonical names, times in seconds."""
    ((step, read),) = rows_of(DIALECT, line)
    assert step in (7, 20)
    assert read == values


def test_steps_go_on_through_the_epochs(tmp_path: Path) -> None:
    """A bar is drawn many times in one line; every drawing is a record, no line is unknown."""
    text = "".join(
        f"Epoch {epoch}/3\n"
        + "\r".join(f"{n}/10 {BAR} 1s 100ms/step - loss: {4 - epoch / 2}" for n in range(1, 11))
        + "\n"
        for epoch in (1, 2, 3)
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == list(range(1, 31))
    assert run.sources[0].account.unknown == 0
    assert run.meta.framework == "keras"


@pytest.mark.parametrize(
    "line", ["32/1000 files done", "[====>    ] 45 %", "Epoch 3/10, Loss: 2.5"]
)
def test_other_bars_are_not_of_keras(line: str) -> None:
    """Bars of downloads and lines of loops are left to others."""
    assert rows_of(DIALECT, line) == []
