"""RL trainers with one line an iteration: verl, OpenRLHF, slime.

    (TaskRunner pid=123) step:40 - actor/kl_loss:0.001 - critic/score/mean:0.31
    (Actor pid=9) Global step 40: {'policy_loss': 0.01, 'kl': 0.02, 'reward': 0.3}
    (RolloutManager pid=7) rollout.py:99 - rollout 40: {'rollout/response_len/mean': 2773.7}

verl prints values as plain numbers or `np.float64(0.3)`; its `step:0` line has validation only.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "step:40 - actor/kl_loss:0.001 - critic/score/mean:np.float64(0.31)"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["kl"], values["reward"]
(40, 0.001, 0.31)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.pairs import PairFormat, pair_dialect

_N = r"(?:np\.float\d+\()?[-+]?(?:nan|inf|[\d.]+(?:[eE][-+]?\d+)?)\)?"
_NAMES = {
    "actor/kl_loss": ("kl", 1.0),
    "critic/kl": ("kl", 1.0),
    "kl": ("kl", 1.0),
    "actor/entropy_loss": ("entropy", 1.0),
    "actor/entropy": ("entropy", 1.0),
    "entropy": ("entropy", 1.0),
    "actor/grad_norm": ("grad_norm", 1.0),
    "actor/lr": ("lr", 1.0),
    "actor_lr": ("lr", 1.0),
    "actor/pg_clipfrac": ("clip_fraction", 1.0),
    "critic/score/mean": ("reward", 1.0),
    "reward": ("reward", 1.0),
    "rollout/raw_reward": ("reward", 1.0),
    "response_length/mean": ("response_length", 1.0),
    "response_length": ("response_length", 1.0),
    "rollout/response_len/mean": ("response_length", 1.0),
    "timing_s/step": ("step_time_s", 1.0),
    "perf/throughput": ("tokens_per_s_per_gpu", 1.0),
    "perf/step_time": ("step_time_s", 1.0),
    "perf/tokens_per_gpu_per_sec": ("tokens_per_s_per_gpu", 1.0),
    "mfu/actor": ("mfu", 1.0),
    "perf/mfu/actor": ("mfu", 1.0),
    "policy_loss": ("loss", 1.0),
    "actor/pg_loss": ("loss", 1.0),
    "train/loss": ("loss", 1.0),
    "train/grad_norm": ("grad_norm", 1.0),
}
_VERL = PairFormat(
    start=lazy.pattern(r"\bstep:(?P<step>\d+) - (?=[\w/]+:)"),
    pair=lazy.pattern(rf"([\w/@.-]{{1,120}}):({_N})(?= - |$|\s)"),
    names=_NAMES,
)
_DICTS = PairFormat(
    start=lazy.pattern(r"(?:\bGlobal step|\b(?:rollout|perf|step)) (?P<step>\d+): (?=\{)"),
    pair=lazy.pattern(rf"'([^']+)': ({_N})"),
    names=_NAMES,
)

DIALECT = pair_dialect(
    "rl_trainers",
    ("step:", "Global step", "rollout ", "perf ", "step "),
    _VERL,
    _DICTS,
    about="RL trainers: verl, OpenRLHF, slime",
)
