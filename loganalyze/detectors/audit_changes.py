"""What the attempts of a run were started with, one after the other, and what was changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import polars as pl
from msgspec import Struct

from loganalyze.detectors.audit_settings import NAMES
from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.model import Evidence, Finding, LineRef

#: Settings besides those of the parameter table whose change changes what is learnt.
_ALSO = (
    "optimizer", "optim", "optimizer_name", "lr_decay_style", "lr_scheduler_type", "seed",
    "data_path", "train_data_path", "dataset", "split", "bf16", "fp16", "fp8", "loss_scale",
    "num_experts", "num_layers", "recompute_granularity", "attention_backend", "use_flash_attn",
    "min_lr", "lr_decay_iters", "lr_decay_samples", "rampup_batch_size", "tokenizer_model",
    "tokenizer_type", "dropout", "hidden_dropout", "attention_dropout",
)  # fmt: skip
_KNOWN = frozenset((*(name for names in NAMES.values() for name in names), *_ALSO))
_MOST = 12  # findings; a new job in the same file changes everything


class Dump(Struct, frozen=True, kw_only=True):
    """One printed configuration: settings, the segment that it starts, and its last line."""

    settings: Mapping[str, str]
    segment: int
    ref: LineRef


def dumps(context: Context) -> list[Dump]:
    """Configurations in the order printed; lines without a reading between them are one."""
    rows = context.events("config").select(
        "source", "line", "offset", "length", "segment", "step", "detail"
    )
    found: list[tuple[tuple[object, ...], dict[str, str], LineRef]] = []
    for row in rows.iter_rows(named=True):
        place = (row["source"], row["segment"], row["step"])
        told = {str(k).lower().replace("-", "_"): str(v)
                for k, v in json.loads(row["detail"] or "{}").items()}  # fmt: skip
        ref = LineRef(
            source=row["source"], line=row["line"], offset=row["offset"], length=row["length"]
        )
        if found and found[-1][0] == place:
            found[-1][1].update(told)
        else:
            found.append((place, told, ref))
    return [
        Dump(settings=told, segment=_starts(context, ref), ref=ref)
        for _, told, ref in found if len(told) > 3
    ]  # fmt: skip


def _starts(context: Context, ref: LineRef) -> int:
    """The segment of the first reading behind a line of an input."""
    later = context.run.readings.filter(
        (pl.col("source") == ref.source) & (pl.col("offset") > ref.offset)
    ).head(1)
    return int(later["segment"][0] or 0) if len(later) else 0


def detect_changes(context: Context) -> list[Finding]:
    """config_audit: a note on every setting of weight that a later attempt changed."""
    known = dumps(context)
    found: list[Finding] = []
    for before, after in pairwise(known):
        if after.segment <= before.segment:
            continue
        both = sorted(before.settings.keys() & after.settings.keys() & _KNOWN)
        changed = [name for name in both if _differ(before.settings[name], after.settings[name])]
        found += [_finding(context, name, before, after) for name in changed]
    return found[:_MOST]


def _differ(one: str, other: str) -> bool:
    try:
        return float(one) != float(other)
    except ValueError:
        return one.strip() != other.strip()


def _finding(context: Context, name: str, before: Dump, after: Dump) -> Finding:
    old, new = before.settings[name][:80], after.settings[name][:80]
    threshold = context.thresholds["config_audit.changed"]
    return finding(
        "config_audit",
        "info",
        statistics={
            "setting": name, "value": new, "limit": old, "side": "changed", "rule": "changed",
            "segment_changed": after.segment,
        },
        threshold=threshold,
        evidence=(
            Evidence(label="config_before", value=f"{name} = {old}", ref=before.ref),
            Evidence(label="config_after", value=f"{name} = {new}", ref=after.ref),
        ),
    )  # fmt: skip


CHANGES = Detector(
    name="config_changes", kinds=("config_audit",), needs=(("event:config",),), run=detect_changes
)
