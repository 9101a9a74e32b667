"""What lies beside a run's logs that a replay can start from: black boxes, Trainer checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

_MOST_FOLDERS = 8  # of logs; runs of a thousand ranks keep theirs in few


class Start(Struct, frozen=True, kw_only=True):
    """Options of `loganalyze replay`: recipe, checkpoint and data ("" where there is none)."""

    recipe: str
    checkpoint: str = ""
    data: str = ""


#: Nothing was found: the user's own recipe.
OWN = Start(recipe="recipe.py")


def start(paths: Sequence[str], step: int) -> Start:
    """Where the replay of a step starts: a black box that holds it, a checkpoint before it, or OWN.

    paths: the run's logs. A recorder's folder is looked for where a log is and one folder below.
    """
    folders = list(dict.fromkeys(Path(path).parent for path in paths))[:_MOST_FOLDERS]
    for folder in folders:
        for box, builder in _boxes(folder, step):
            return Start(recipe=f"capsule:{builder}" if builder else "capsule", checkpoint=str(box))
    for folder in folders:
        place = _checkpoint(folder, step)
        if place is not None:
            return Start(recipe="hf", checkpoint=str(place), data="rows.jsonl")
    return OWN


def _boxes(folder: Path, step: int) -> Iterator[tuple[Path, str]]:
    """Folders of capsules that hold the step, and who builds the model."""
    for pattern in ("capsule-*/capsule.json", "*/capsule-*/capsule.json"):
        for file in sorted(folder.glob(pattern)):
            document = _document(file)
            steps = [item.get("step") for item in document.get("steps") or ()]
            if step in steps:
                yield file.parent.parent, _builder(str(document.get("builder") or ""), folder)


def _builder(named: str, folder: Path) -> str:
    """`path.py:function` as named, or where the file is to be found beside the logs."""
    name, _, function = named.partition(":")
    for place in (Path(), folder, folder.parent):
        if name and (place / name).is_file():
            return f"{place / name}:{function}" if function else str(place / name)
    return named


def _checkpoint(folder: Path, step: int) -> Path | None:
    """The nearest of a Trainer's checkpoints before a step."""
    found = []
    for place in (folder, folder.parent):
        for file in place.glob("checkpoint-*/trainer_state.json"):
            number = file.parent.name.partition("-")[2]
            if number.isdecimal() and int(number) < step:
                found.append((int(number), file.parent))
    return max(found)[1] if found else None


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
