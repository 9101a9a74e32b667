"""Files beside a `.wandb` log, for logs that are empty: summary, configuration, metadata.

files/wandb-summary.json   the last values (bare NaN allowed)
files/config.yaml          `key:` then an indented `value: ...`; only scalars are read, nested
                           values and the tracker's own `_wandb` part are stepped over
Legacy runs (wandb 0.8, 0.9) keep them in the run's folder itself. Host, user, e-mail and program
in wandb-metadata.json are personal data and not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from loganalyze import lazy
from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.wandb_history import flat_numbers

_TEXT_LIMIT = 200
_MAX_BYTES = 4 * 1024 * 1024
_TOP = lazy.pattern(r"(?P<quote>['\"]?)(?P<key>[^\s:'\"#][^:'\"]*)(?P=quote):\s*$")
_VALUE = lazy.pattern(r"\s+value:\s*(?P<value>\S.*)$")
_MACHINE_KEYS = ("gpu", "gpu_count", "cpu_count", "cpu_count_logical", "gpuapple", "cuda")


def flat_config(name: str, words: bytes) -> dict[str, str]:
    """Scalars of one configuration item by dotted name, as printed.

    >>> flat_config("optim", b'{"lr": 0.01, "betas": [0.9, 0.95]}')
    {'optim.lr': '0.01', 'optim.betas': '[0.9, 0.95]'}
    """
    try:
        value = json.loads(words)
    except (ValueError, RecursionError):
        return {}
    return dict(_scalars(name, value))


def _scalars(name: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in _scalars(f"{name}.{key}", inner)]
    shown = value if isinstance(value, str) else json.dumps(value)
    return [(name, shown[:_TEXT_LIMIT])]


def summary_beside(log: Path) -> dict[str, float]:
    """The last values that the tracker wrote beside a log; empty where there are none."""
    text = _beside(log, "wandb-summary.json")
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    pairs = content.items() if isinstance(content, dict) else ()
    return {
        key.decode("utf-8", "replace"): value
        for name, inner in pairs
        if name != "_wandb"
        for key, value in flat_numbers(str(name).encode("utf-8", "replace"), inner)
    }


def config_beside(log: Path) -> dict[str, str]:
    """Settings of config.yaml, and the machine of wandb-metadata.json, as printed."""
    found = yaml_values(_beside(log, "config.yaml"))
    try:
        machine = json.loads(_beside(log, "wandb-metadata.json") or "{}")
    except (ValueError, RecursionError):
        machine = {}
    if isinstance(machine, dict):
        found.update({f"machine.{k}": str(machine[k]) for k in _MACHINE_KEYS if k in machine})
    return found


def yaml_values(text: str) -> dict[str, str]:
    """The flat part of W&B's config.yaml: every top key whose `value:` is a scalar.

    >>> yaml_values("wandb_version: 1\\n\\nlr:\\n    desc: null\\n    value: 0.001\\n")
    {'lr': '0.001'}
    """
    found: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        top = _TOP.match(line)
        if top:
            key = top["key"].strip()
        elif line[:1] not in (" ", "\t", ""):
            key = ""
        elif key and key != "_wandb":
            value = _VALUE.match(line)
            if value and key not in found:
                found[key] = value["value"].strip().strip("'\"")[:_TEXT_LIMIT]
    return found


def _beside(log: Path, name: str) -> str:
    for path in (log.parent / "files" / name, log.parent / name):
        try:
            if path.is_file() and path.stat().st_size <= _MAX_BYTES:
                return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return ""


def empty_log(path: Path, source: int) -> Batch:
    """What the files beside an empty log tell: the last values and the configuration."""
    ref = LineRef(source=source, line=1, offset=0, length=0)
    summary, config = summary_beside(path), config_beside(path)
    events = []
    if config:
        events.append(Event(kind="config", ref=ref, text="", detail=config))
    if summary:
        events.append(Event(kind="note", ref=ref, text="last values", detail=summary))
    told = "its last values are read from the files beside it" if summary else "nothing to read"
    message = f"{path}: the log holds no record (created, never written); {told}"
    return Batch(
        readings=None,
        events=tuple(events),
        problems=(Problem(rule="empty_log", message=message),),
        account=Account(),
        framework="wandb",
    )
