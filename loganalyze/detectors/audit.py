"""The configuration against what is usual for its kind of training: notes, one warning."""

from __future__ import annotations

from msgspec import Struct

from loganalyze.detectors.audit_settings import (
    batch_tokens,
    is_lora,
    optimizer,
    precision,
    setting_name,
    settings,
    warmup_share,
)
from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.life_events import Happening, happenings
from loganalyze.model import Evidence, Finding, LineRef, Severity, Threshold

#: Settings that a rule counts in another unit than the one they are printed in.
_COUNTED = frozenset({"warmup_steps", "batch", "init_std"})


class Remark(Struct, frozen=True, kw_only=True):
    """One setting outside of its usual range. rule: the threshold that it passed."""

    key: str
    value: float
    rule: str
    side: str  # "above" or "below"
    severity: Severity = "info"


def detect_settings(context: Context) -> list[Finding]:
    """config_audit: one finding a setting."""
    config = context.run.meta.config
    found = settings(config)
    remarks = [
        *_learning_rate(context, found),
        *_warmup(context, found),
        *_simple(context, found),
        *_parallel(context, found),
        *_moments(context, found),
        *_precision(context),
    ]
    return [_finding(context, remark) for remark in remarks]


def task(context: Context) -> str:
    """Class of training whose learning rates are comparable: pretrain, sft, lora or rl."""
    if is_lora(context.run.meta.config):
        return "lora"
    return context.profile


def _learning_rate(context: Context, found: dict[str, float]) -> list[Remark]:
    lr = found.get("lr")
    if lr is None or lr <= 0 or not _adam(context):
        return []
    kind = task(context)
    high, low = (context.value(f"config_audit.lr_{kind}_{side}") for side in ("high", "low"))
    if lr > high:
        # Small models take several times the rate; only a large one makes it an alarm.
        large = found.get("hidden", 0.0) >= context.value("config_audit.large_hidden")
        wild = lr > context.value("config_audit.lr_wild") * high and large
        severity: Severity = "warning" if wild else "info"
        return [_over("lr", lr, f"config_audit.lr_{kind}_high", severity)]
    return [_under("lr", lr, f"config_audit.lr_{kind}_low")] if lr < low else []


def _adam(context: Context) -> bool:
    name = optimizer(context.run.meta.config)
    return not name or "adam" in name or "lamb" in name


def _over(key: str, value: float, rule: str, severity: Severity = "info") -> Remark:
    return Remark(key=key, value=value, rule=rule, side="above", severity=severity)


def _under(key: str, value: float, rule: str, severity: Severity = "info") -> Remark:
    return Remark(key=key, value=value, rule=rule, side="below", severity=severity)


def _warmup(context: Context, found: dict[str, float]) -> list[Remark]:
    """A note even where there is none at all: healthy real runs went without."""
    share = warmup_share(found)
    if share is None or context.profile != "pretrain":
        return []
    return _range(context, "warmup_steps", share, "warmup")


def _range(context: Context, key: str, value: float, name: str) -> list[Remark]:
    low, high = f"config_audit.{name}_low", f"config_audit.{name}_high"
    if value < context.value(low):
        return [_under(key, value, low)]
    return [_over(key, value, high)] if value > context.value(high) else []


def _simple(context: Context, found: dict[str, float]) -> list[Remark]:
    remarks: list[Remark] = []
    if "weight_decay" in found and context.profile == "pretrain":
        remarks += _range(context, "weight_decay", found["weight_decay"], "weight_decay")
    clip = found.get("clip")
    if clip is not None and clip > context.value("config_audit.clip_high"):
        remarks.append(_over("clip", clip, "config_audit.clip_high"))
    if clip is not None and clip <= 0:
        remarks.append(_under("clip", clip, "config_audit.clip_low"))
    tokens = batch_tokens(found)
    large = found.get("hidden", 0.0) >= context.value("config_audit.large_hidden")
    if tokens is not None and context.profile == "pretrain" and large:
        remarks += _range(context, "batch", tokens, "batch_tokens")
    hidden, std = found.get("hidden"), found.get("init_std")
    if hidden and std and context.profile == "pretrain":
        share = std / (2.0 / (5.0 * hidden)) ** 0.5
        if share > context.value("config_audit.init_ratio"):
            remarks.append(_over("init_std", share, "config_audit.init_ratio"))
    return remarks


def _parallel(context: Context, found: dict[str, float]) -> list[Remark]:
    tp = found.get("tp")
    if tp is None or tp <= context.value("config_audit.tensor_parallel_high"):
        return []
    return [_over("tp", tp, "config_audit.tensor_parallel_high")]


def _moments(context: Context, found: dict[str, float]) -> list[Remark]:
    """Adam's betas and eps; a warning where eps alone damps every update."""
    if not _adam(context):
        return []
    remarks: list[Remark] = []
    eps, beta1, beta2 = (found.get(key) for key in ("eps", "beta1", "beta2"))
    if eps is not None and eps > context.value("config_audit.eps_high"):
        wild = eps >= 10 * context.value("config_audit.eps_high")
        remarks.append(_over("eps", eps, "config_audit.eps_high", "warning" if wild else "info"))
    if beta1 is not None and 0 < beta1 < context.value("config_audit.beta1_low"):
        remarks.append(_under("beta1", beta1, "config_audit.beta1_low"))
    if beta2 is not None and 0 < beta2 < 1:
        remarks += _range(context, "beta2", beta2, "beta2")
    return remarks


def _precision(context: Context) -> list[Remark]:
    kind = precision(context.run.meta.config)
    if kind == "fp16":
        return [_under("precision", 16.0, "config_audit.precision")]
    return [_over("precision", 32.0, "config_audit.precision")] if kind == "fp32" else []


def _finding(context: Context, remark: Remark) -> Finding:
    config = context.run.meta.config
    named = "precision" if remark.key == "precision" else setting_name(config, remark.key)
    threshold = context.thresholds[remark.rule]
    seeds = tuple(
        context.thresholds[name]
        for name in (f"seed.config_{remark.key}_{remark.side}",)
        if name in context.thresholds.entries
    )
    return finding(
        "config_audit",
        remark.severity,
        statistics={
            "setting": named,
            "value": remark.value,
            "limit": threshold.value,
            "side": remark.side,
            "rule": remark.rule.partition(".")[2],
            "task": task(context),
        },
        threshold=threshold,
        rules=seeds,
        evidence=_shown(context, remark, named, threshold),
    )


def _shown(
    context: Context, remark: Remark, named: str, threshold: Threshold
) -> tuple[Evidence, ...]:
    """The setting as printed and, where the rule counts it otherwise, what the rule looked at."""
    if remark.key == "precision":
        text = f"fp{remark.value:.0f}"
        ref = _config_ref(context, "fp16" if text == "fp16" else "bf16")
        return (Evidence(label="config_precision", value=text, expected="bf16", ref=ref),)
    ref = _config_ref(context, named)
    usual = f"{'<=' if remark.side == 'above' else '>='} {threshold.value:g}"
    counted = remark.key in _COUNTED
    printed = Evidence(
        label="config_setting",
        value=f"{named} = {context.run.meta.config.get(named, remark.value)}",
        expected="" if counted else usual,
        ref=ref,
    )
    if not counted:
        return (printed,)
    unit = threshold.unit
    label = f"config_{remark.key}"
    return (printed, Evidence(label=label, value=remark.value, unit=unit, expected=usual, ref=ref))


def _config_ref(context: Context, named: str) -> LineRef | None:
    """The line that says a setting, or the head of the dump that does; the last dump of any."""
    dumps = happenings(context, ("config",))
    for dump in reversed(dumps):
        if named in dump.detail:
            return _place(dump, named)
    return dumps[-1].ref if dumps else None


def _place(dump: Happening, named: str) -> LineRef:
    """Where a setting stands in a dump of many lines, if the parser told."""
    words = str(dump.detail.get("@places", "")).split()
    found = dict(zip(words[::2], words[1::2], strict=False)).get(named)
    if found is None:
        return dump.ref
    line, offset, length = (int(part) for part in found.split(":"))
    return LineRef(source=dump.ref.source, line=line, offset=offset, length=length)


CONFIG_AUDIT = Detector(
    name="config_audit",
    kinds=("config_audit",),
    needs=(("event:config",),),
    run=detect_settings,
)
