"""DeepSpeed's life: configuration, checkpoints, and the log's own envelope.

    [...] [INFO] [config.py:1:print]   gradient_clipping ............ 1.0
    [...] [INFO] [torch_checkpoint_engine.py:1:save] [Torch] Checkpoint global_step500 is about ...

Hundreds of shards are saved and loaded by every rank: the first line of a checkpoint is the
event, the others are ignored by name.
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.deepspeed_state import State, event

_ENVELOPE = lazy.pattern(r"\[(?P<level>INFO|WARNING|ERROR|DEBUG)\] \[[\w.-]+:\d+:[\w<>]+\]")
_CONFIG = lazy.pattern(
    r"\[config\.py:\d+:print\](?: \[Rank \d+\])?\s{1,9}"
    r"([A-Za-z_]\w{0,120})\s{0,99}\.{0,99}\s{1,99}(\S.*)$"
)
_VERSION = lazy.pattern(r"DeepSpeed info: version=([\w.+-]+)")
_STEP = lazy.pattern(r"(?:global_step|checkpoint-|iter_)(\d{1,15})")
_SAVE_BEGIN = lazy.pattern(r"\[Torch\] Checkpoint (\S+) is about to be saved")
_SAVE_END = lazy.pattern(r"\[Torch\] Checkpoint (\S+) is ready now")
_SHARD = lazy.pattern(
    r"\[Torch\] (?:Saving|Saved|Loaded checkpoint)|Saving model checkpoint: |zero checkpoint saved"
    r"|successfully read|loading \d+ zero partition|\[Torch\] Loading checkpoint"
)
#: Shards by the tag of their folder, which says of which checkpoint they are.
_SHARD_SAVE = lazy.pattern(r"\[Torch\] (Saving|Saved) \S*?((?:global_step|checkpoint-|iter_)\d+)")
_LOAD = lazy.pattern(r"\[Torch\] Loading checkpoint from (\S+)")


def take_life(line: Line, state: State) -> Taken | None:
    """Events of the run's life; a line of the envelope that says nothing else is ignored."""
    return _config(line, state) or _checkpoint(line, state) or _envelope(line)


def _config(line: Line, state: State) -> Taken | None:
    match = _VERSION.search(line.text)
    if match is not None:
        return Taken(events=[event(line, "config", state.step, deepspeed_version=match[1])])
    match = _CONFIG.search(line.text)
    if match is None or match[2].strip() == "{":
        return None
    return Taken(events=[event(line, "config", state.step, **{match[1]: match[2].strip()[:200]})])


def _checkpoint(line: Line, state: State) -> Taken | None:
    text = line.text
    for pattern, kind in (
        (_SAVE_BEGIN, "checkpoint_save_begin"),
        (_SAVE_END, "checkpoint_save_end"),
    ):
        match = pattern.search(text)
        if match is not None:
            return _once(line, kind, match[1], state)
    match = _LOAD.search(text)
    if match is not None:
        return _once(line, "checkpoint_load", match[1].rsplit("/", 1)[0], state)
    match = _SHARD_SAVE.search(text)
    if match is not None:
        return _of_shards(line, match[1], match[2], state)
    return Taken(ignored="shard of a checkpoint") if _SHARD.search(text) else None


def _of_shards(line: Line, word: str, tag: str, state: State) -> Taken:
    """Versions that announce no checkpoint as a whole: its first shard begins it and ends it.

    Where the checkpoint itself was announced under the same tag, the shards say nothing new.
    """
    begun = f"checkpoint_save_begin {tag}"
    by_shards = f"{begun} by shards"
    if word == "Saving" and state.checkpoint_seen.split(" by ")[0] not in (
        begun, f"checkpoint_save_end {tag}",
    ):  # fmt: skip
        taken = _once(line, "checkpoint_save_begin", tag, state)
        state.checkpoint_seen = by_shards
        return taken
    if word == "Saved" and state.checkpoint_seen == by_shards:
        return _once(line, "checkpoint_save_end", tag, state)
    return Taken(ignored="shard of a checkpoint")


def _once(line: Line, kind: str, name: str, state: State) -> Taken:
    key = f"{kind} {name}"
    if key == state.checkpoint_seen:
        return Taken(ignored="shard of a checkpoint")
    state.checkpoint_seen = key
    match = _STEP.search(name)
    step = int(match[1]) if match else (None if kind == "checkpoint_load" else state.step)
    return Taken(events=[event(line, kind, step, path=name)])


def _envelope(line: Line) -> Taken | None:
    match = _ENVELOPE.search(line.text)
    if match is None:
        return None
    return Taken(ignored=f"deepspeed log line ({match['level'].lower()})")
