"""Checks on reinforcement learning, preference training, per-rank values and what is not logged."""

from __future__ import annotations

import numpy as np
import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    Floats,
    at_step,
    median,
    missing,
    seen,
    spread,
    yes_or_no,
)
from loganalyze.model import CheckResult
from loganalyze.series_trend import running_median


def _raw(context: CheckContext, *names: str) -> Floats:
    """Finite values of the first of these columns that the log has."""
    for name in names:
        values = context.all_of(name)
        if len(values):
            return values
    return np.empty(0)


def rewards_equal(context: CheckContext) -> CheckResult:
    """The rewards of a group do not differ, so that the advantage is zero."""
    share = _raw(context, "raw/frac_reward_zero_std")
    if len(share):
        level = median(share[-50:])
        evidence = seen("zero_spread_share", level, "share", "< 0.8")
        return yes_or_no("rewards_equal", level >= 0.8, evidence)
    spreads = _raw(context, "reward_std")
    if len(spreads):
        level = median(spreads[-50:])
        return yes_or_no("rewards_equal", level < 1e-6, seen("reward_spread", level, "", "> 0"))
    return missing("rewards_equal", "reward_std")


def answers_cut_off(context: CheckContext) -> CheckResult:
    """Nine tenths or more of the answers reach the length limit."""
    share = _raw(
        context, "raw/completions/clipped_ratio", "raw/response_length/clip_ratio",
        "raw/clipped_ratio",
    )  # fmt: skip
    if not len(share):
        return missing("answers_cut_off", "clipped_answers")
    level = median(share[-50:])
    return yes_or_no("answers_cut_off", level >= 0.9, seen("cut_share", level, "share", "< 0.3"))


def ratio_off_one(context: CheckContext) -> CheckResult:
    """The importance ratio of rollout and trainer is outside 0.85 to 1.15."""
    values = _raw(
        context, "raw/sampling/importance_sampling_ratio/mean", "raw/importance_ratio",
        "raw/actor/ppo_ratio_mean", "raw/policy/ratio", "raw/val/ratio", "raw/ratio_mean",
        "raw/ratio",
    )  # fmt: skip
    if not len(values):
        return missing("ratio_off_one", "importance_ratio")
    first = float(values[0])
    away = not 0.85 <= first <= 1.15
    return yes_or_no("ratio_off_one", away, seen("ratio", first, "", "0.85 to 1.15"))


def rollout_gap_grew(context: CheckContext) -> CheckResult:
    """The gap between rollout and training log-probabilities tripled or is above 0.05 nat."""
    values = np.abs(_raw(
        context, "raw/sampling/sampling_logp_difference/mean", "raw/logp_diff",
        "raw/rollout_probs_diff_mean", "raw/training/rollout_probs_diff_mean",
    ))  # fmt: skip
    if not len(values):
        return missing("rollout_gap_grew", "logp_difference")
    start, end = median(values[:10]), median(values[-10:])
    grown = end > 0.05 or (start > 1e-4 and end > 3 * start)
    return yes_or_no("rollout_gap_grew", grown, seen("logp_gap", end, "nat", "< 0.05"))


def kl_negative(context: CheckContext) -> CheckResult:
    """KL is clearly below zero for ten lines or more, which no true divergence can be."""
    values = context.all_of("kl")
    if not len(values):
        return missing("kl_negative", "kl")
    count = int(np.sum(values < -0.05))
    return yes_or_no("kl_negative", count >= 10, seen("lines_below_zero", count, "", "< 10"))


def kl_without_gain(context: CheckContext) -> CheckResult:
    """KL grew fivefold over its start while the reward gained less than 5 %."""
    drift, gain = context.all_of("kl"), context.all_of("reward")
    if len(drift) < 20 or len(gain) < 20:
        return missing("kl_without_gain", "kl" if len(drift) < 20 else "reward")
    tenth = max(len(drift) // 5, 5)
    ratio = median(drift[-tenth:]) / max(abs(median(drift[len(drift) // 2 :][:tenth])), 1e-3)
    half = gain[len(gain) // 2 :]
    before, after = median(half[: len(half) // 3 + 1]), median(half[-len(half) // 3 :])
    flat = after - before < 0.05 * max(abs(before), 1e-9)
    evidence = (seen("change_ratio", ratio, "", "< 2"), seen("reward_change", after - before))
    return yes_or_no("kl_without_gain", ratio > 2 and flat, *evidence)


def lr_jumped_earlier(context: CheckContext) -> CheckResult:
    """The learning rate jumped up by half or more within the sixty lines before, warm-up apart."""
    track = context.track("lr")
    if track is None or context.first is None or len(track) < 20:
        return missing("lr_jumped_earlier", "lr")
    end = int(np.searchsorted(track.steps, context.first, side="right"))
    begin = max(10, end - 60)
    values = track.values[begin:end]
    if len(values) < 2 or not (values[:-1] > 0).all():
        return missing("lr_jumped_earlier", "lr")
    ratio = float(np.max(values[1:] / values[:-1]))
    limit = context.value("lr_jump")
    place = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no("lr_jumped_earlier", ratio > limit, place,
                     seen("largest_ratio", ratio, "", f"<= {limit:g}"))  # fmt: skip


def _leaves(values: Floats, *, up: bool) -> int | None:
    """First record of the stretch to the end that lies half above (or 15 % below) the level."""
    if len(values) < 60:
        return None
    level = median(values[20 : max(len(values) // 2, 40)])
    away = values > 1.5 * level if up else values < 0.85 * level
    near = np.flatnonzero(~away)
    begin = int(near[-1]) + 1 if len(near) else 0
    return begin if len(values) - begin >= 5 else None


def entropy_falls_first(context: CheckContext) -> CheckResult:
    """The entropy left its level for good before KL left its own, or KL did not at all."""
    drift, entropy = context.track("kl"), context.track("entropy")
    if entropy is None or drift is None:
        return missing("entropy_falls_first", "entropy" if entropy is None else "kl")
    fell = _leaves(running_median(entropy.values, 5), up=False)
    rose = _leaves(running_median(drift.values, 9), up=True)
    if fell is None:
        return yes_or_no("entropy_falls_first", False)
    at = int(entropy.steps[fell])
    later = rose is None or int(drift.steps[rose]) > at
    return yes_or_no("entropy_falls_first", later, at_step(context, "entropy", at, "entropy_value"))


def updates_large(context: CheckContext) -> CheckResult:
    """More than 30 % of the policy's updates are clipped."""
    values = context.all_of("clip_fraction")
    if not len(values):
        return missing("updates_large", "clip_fraction")
    level = float(np.percentile(values, 90))
    return yes_or_no("updates_large", level > 0.3, seen("clipped_share", level, "share", "< 0.3"))


def entropy_gone(context: CheckContext) -> CheckResult:
    """The policy's entropy fell below a tenth of its start."""
    values = context.all_of("entropy")
    if len(values) < 10:
        return missing("entropy_gone", "entropy")
    share = median(values[-5:]) / max(median(values[:5]), 1e-9)
    return yes_or_no("entropy_gone", share < 0.1, seen("share_of_start", share, "share", ">= 0.1"))


def length_grew(context: CheckContext) -> CheckResult:
    """The answers became half as long again, or more."""
    values = context.all_of("response_length")
    if len(values) < 10:
        return missing("length_grew", "response_length")
    ratio = median(values[-5:]) / max(median(values[:5]), 1e-9)
    return yes_or_no("length_grew", ratio > 1.5, seen("change_ratio", ratio, "", "<= 1.5"))


def reward_constant(context: CheckContext) -> CheckResult:
    """The reward is one number on every line: its service or parser may be broken."""
    values = context.all_of("reward")
    if len(values) < 5:
        return missing("reward_constant", "reward")
    same = len(np.unique(values)) == 1
    return yes_or_no("reward_constant", same, seen("reward", float(values[0])))


def margins_zero(context: CheckContext) -> CheckResult:
    """The preference margins are exactly zero: policy and reference are the same."""
    values = _raw(context, "raw/rewards/margins", "raw/train/rewards/margins")
    if not len(values):
        return missing("margins_zero", "preference_margins")
    share = float(np.mean(values == 0.0))
    return yes_or_no("margins_zero", share > 0.9, seen("share_of_zeros", share, "share", "< 0.9"))


def margins_large(context: CheckContext) -> CheckResult:
    """The preference margins are large: chosen and rejected answers are told apart at once."""
    values = _raw(context, "raw/rewards/margins", "raw/train/rewards/margins")
    if not len(values):
        return missing("margins_large", "preference_margins")
    level = median(values[-5:])
    return yes_or_no("margins_large", level > 5, seen("margin", level, "", "<= 5"))


def rank_outlier(context: CheckContext) -> CheckResult:
    """One rank's loss or norm stands six deviations away while the others are calm."""
    for metric in ("loss", "grad_norm"):
        own = [t for t in context.tracks(metric) if t.rank is not None]
        if len(own) < 3 or context.first is None:
            continue
        at = {t.rank: t.values[t.steps >= context.first][:20] for t in own}
        levels = {r: median(v[np.isfinite(v)]) for r, v in at.items() if np.isfinite(v).any()}
        if len(levels) < 3:
            continue
        values = np.array(list(levels.values()))
        usual = float(np.median(values))
        width = max(spread(values), 1e-3 * abs(usual), 1e-9)
        rank, worst = max(levels.items(), key=lambda item: abs(item[1] - usual))
        away = abs(worst - usual) / width
        evidence = (seen("rank", float(rank or 0)), seen("deviations", away, "", "< 6"))
        return yes_or_no("rank_outlier", away >= 6, *evidence)
    return missing("rank_outlier", "per_rank_loss")


def equal_then_apart(context: CheckContext) -> CheckResult:
    """The ranks had one value to the last digit, and from one step on they have not."""
    told = context.finding.statistics.get("same_before")
    if not isinstance(told, int | float):
        return missing("equal_then_apart", "per_rank_loss")
    return yes_or_no("equal_then_apart", told >= 5, seen("steps_before", float(told), "step"))


def attention_logits_grow(context: CheckContext) -> CheckResult:
    """The largest attention logit is above 1000, or doubled over the run."""
    values = context.all_of("max_attention_logit")
    if not len(values):
        return missing("attention_logits_grow", "max_attention_logit")
    ratio = median(values[-20:]) / max(median(values[:20]), 1e-9)
    answer = float(values.max()) > 1000 or ratio > 2
    evidence = seen("highest_logit", float(values.max()), "", "< 1000")
    return yes_or_no("attention_logits_grow", answer, evidence)


def metrics_lacking(context: CheckContext) -> CheckResult:
    """Loss, learning rate or gradient norm are missing from the log."""
    frame = context.run.readings
    lacking = [
        name
        for name in ("loss", "lr", "grad_norm")
        if name not in frame.columns or not frame.select(pl.col(name).is_not_null().any()).item()
    ]
    evidence = seen("metrics_lacking_names", ", ".join(lacking))
    return yes_or_no("metrics_lacking", bool(lacking), evidence)


def lines_unknown(context: CheckContext) -> CheckResult:
    """More than a tenth of the lines were not understood."""
    lines = sum(source.account.lines for source in context.run.sources)
    unknown = sum(source.account.unknown for source in context.run.sources)
    share = unknown / lines if lines else 0.0
    return yes_or_no("lines_unknown", share > 0.1, seen("unknown_share", share, "share", "< 0.1"))


def steps_have_holes(context: CheckContext) -> CheckResult:
    """The gaps between logged steps differ: the log is a sample of the run, or lost lines."""
    track = context.track("loss")
    if track is None or len(track) < 50:
        return missing("steps_have_holes", "loss")
    gaps = np.diff(track.steps)
    share = float(np.mean(gaps != np.median(gaps)))
    evidence = seen("irregular_share", share, "share", "< 0.2")
    return yes_or_no("steps_have_holes", share > 0.2, evidence)


RL: dict[str, Check] = {
    check.__name__: check
    for check in (
        rewards_equal, answers_cut_off, ratio_off_one, rollout_gap_grew, kl_negative,
        kl_without_gain, lr_jumped_earlier, entropy_falls_first, updates_large, entropy_gone,
        length_grew, reward_constant, margins_zero, margins_large,
        rank_outlier, equal_then_apart, attention_logits_grow,
        metrics_lacking, lines_unknown, steps_have_holes,
    )
}  # fmt: skip
