"""RL trainers with one line an iteration: verl, OpenRLHF, slime, trlx.

    (TaskRunner pid=123) step:40 - actor/kl_loss:0.001 - critic/score/mean:0.31
    (Actor pid=9) Global step 40: {'policy_loss': 0.01, 'kl': 0.02, 'reward': 0.3}
    [losses/total_loss: 0.12 | losses/value_loss: 0.13]:   1%| | 12/1000 [00:30<41:10,  2.5s/it]
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

_GIB = 1024.0**3
_N = r"(?:np\.\w{1,12}\()?[-+]?(?:nan|inf|[\d.]+(?:[eE][-+]?\d+)?)\)?"
_NAMES = {
    "actor/kl_loss": ("kl", 1.0),
    "actor/reward_kl_penalty": ("kl", 1.0),
    "critic/kl": ("kl", 1.0),
    "train/kl_loss": ("kl", 1.0),
    "kl": ("kl", 1.0),
    "actor/entropy_loss": ("entropy", 1.0),
    "actor/entropy": ("entropy", 1.0),
    "train/entropy_loss": ("entropy", 1.0),
    "entropy": ("entropy", 1.0),
    "actor/grad_norm": ("grad_norm", 1.0),
    "actor_train/grad_norm": ("grad_norm", 1.0),
    "train/grad_norm": ("grad_norm", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "actor/lr": ("lr", 1.0),
    "actor_lr": ("lr", 1.0),
    "train/lr": ("lr", 1.0),
    "train/lr-pg_0": ("lr", 1.0),
    "train/lr(1e-3)": ("lr", 1e-3),  # verl's first SFT trainer prints thousandths
    "actor/pg_clipfrac": ("clip_fraction", 1.0),
    "train/pg_clipfrac": ("clip_fraction", 1.0),
    "ppo_clip_ratio": ("clip_fraction", 1.0),
    "critic/score/mean": ("reward", 1.0),
    "reward/overall": ("reward", 1.0),
    "reward": ("reward", 1.0),
    "rollout/raw_reward": ("reward", 1.0),
    "response_length/mean": ("response_length", 1.0),
    "response_length": ("response_length", 1.0),
    "rollout/response_len/mean": ("response_length", 1.0),
    "rollout/response_lengths": ("response_length", 1.0),
    "timing_s/step": ("step_time_s", 1.0),
    "train/time(s)": ("step_time_s", 1.0),
    "time/step_total": ("step_time_s", 1.0),
    "timing/step_total": ("step_time_s", 1.0),
    "perf/step_time": ("step_time_s", 1.0),
    "perf/throughput": ("tokens_per_s_per_gpu", 1.0),
    "perf/tokens_per_gpu_per_sec": ("tokens_per_s_per_gpu", 1.0),
    "mfu/actor": ("mfu", 1.0),
    "perf/mfu/actor": ("mfu", 1.0),
    "perf/mfu_actor": ("mfu", 1.0),
    "train/mfu": ("mfu", 1.0),
    "perf/max_memory_allocated_gb": ("mem_peak_allocated_bytes", _GIB),
    "perf/max_memory_reserved_gb": ("mem_peak_reserved_bytes", _GIB),
    "perf/cpu_memory_used_gb": ("host_mem_used_bytes", _GIB),
    "policy_loss": ("loss", 1.0),
    "actor/pg_loss": ("loss", 1.0),
    "train/loss": ("loss", 1.0),
    "val/loss": ("val_loss", 1.0),
    "critic/vf_loss": ("aux_loss/value", 1.0),
    "critic_loss": ("aux_loss/value", 1.0),
    "train/value_loss": ("aux_loss/value", 1.0),
}
_VERL = PairFormat(
    start=lazy.pattern(r"\bstep:(?P<step>\d+) - (?=[\w/@.()-]{1,120}:)"),
    pair=lazy.pattern(rf"([\w/@.()-]{{1,120}}):({_N})(?= - |$|\s)"),
    names=_NAMES,
)
_DICTS = PairFormat(
    start=lazy.pattern(r"(?:\bGlobal step|\b(?:rollout|perf|step)) (?P<step>\d+): (?=\{)"),
    pair=lazy.pattern(rf"'([^']+)': ({_N})"),
    names=_NAMES,
)
#: trlx hangs its losses before the bar, which has the step.
_TRLX = PairFormat(
    start=lazy.pattern(
        r"^\[(?=loss(?:es)?/[^\]|]{1,80}(?:\|[^\]|]{1,80}){0,30}\]: {1,9}\d{1,3}%\|[^|]{0,200}\| "
        r"(?P<step>\d{1,15})/)"
    ),
    pair=lazy.pattern(rf"([\w/]{{1,80}}): ({_N})(?=[ \]])"),
    names={
        "losses/total_loss": ("loss", 1.0),
        "losses/loss": ("loss", 1.0),
        "losses/policy_loss": ("aux_loss/policy", 1.0),
        "losses/value_loss": ("aux_loss/value", 1.0),
    },
)

DIALECT = pair_dialect(
    "rl_trainers",
    ("step:", "Global step", "rollout ", "perf ", "step ", "[loss"),
    _VERL,
    _DICTS,
    _TRLX,
    about="RL trainers: verl, OpenRLHF, slime, trlx",
)
