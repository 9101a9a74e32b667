"""Which kind of training a log shows: pre-training, supervised fine-tuning, or RL."""

from __future__ import annotations

from loganalyze.model import RunLog
from loganalyze.tracks import tracks

_RL_METRICS = ("reward", "kl", "response_length", "entropy")
#: Loss per token of a model that already knows its language (TREES: 1.5 to 3 on ordinary text).
_TRAINED_LOSS = 4.0


def choose_profile(run: RunLog) -> tuple[str, str]:
    """The profile and why (a plain English reason that names what was seen)."""
    rewards = [name for name in _RL_METRICS if name in run.readings.columns]
    if rewards:
        return "rl", f"the log has {', '.join(rewards)}"
    losses = tracks(run, "loss")
    if not losses:
        return "pretrain", "the log has no loss; pre-training is assumed"
    first = float(losses[0].values[0])
    epochs = "epoch" in run.readings.columns
    if epochs and first < _TRAINED_LOSS:
        return "sft", f"epochs are counted and the loss begins at {first:.3g}: a trained model"
    return "pretrain", f"the loss begins at {first:.3g}"
