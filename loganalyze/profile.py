"""Which kind of training a log shows: pre-training, supervised fine-tuning, or RL."""

from __future__ import annotations

from loganalyze.long_runs import ROWS, is_long, with_rows
from loganalyze.model import Profile, RunLog
from loganalyze.tracks import first_value

_RL_METRICS = ("reward", "kl", "response_length", "entropy")
#: Loss per token of a model that already knows its language (TREES: 1.5 to 3 on ordinary text).
_TRAINED_LOSS = 4.0


def choose_profile(run: RunLog) -> Profile:
    """The profile and why."""
    rewards = [name for name in _RL_METRICS if name in run.readings.columns]
    if rewards:
        return Profile("rl", "profile_rl", ", ".join(rewards))
    first = _first_loss(run)
    if first is None:
        return Profile("pretrain", "profile_no_loss")
    epochs = "epoch" in run.readings.columns
    if epochs and first < _TRAINED_LOSS:
        return Profile("sft", "profile_sft", f"{first:.3g}")
    return Profile("pretrain", "profile_pretrain", f"{first:.3g}")


def _first_loss(run: RunLog) -> float | None:
    """The first loss; of a very long run it is looked for in the first rows, if they have one."""
    found = None
    if is_long(run):
        found = first_value(with_rows(run, run.readings.head(ROWS)), "loss")
    return first_value(run, "loss") if found is None else found
