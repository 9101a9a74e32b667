"""Replay: re-run a suspect step, prove that it is the same one, and name what is behind it.

The only package that imports torch, and only when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loganalyze.errors import UsageError

if TYPE_CHECKING:
    from loganalyze.replay.builtin import from_capsule, from_checkpoint
    from loganalyze.replay.callback import trainer_callback
    from loganalyze.replay.hf import from_hf
    from loganalyze.replay.recipe import Recorded, Request, Step
    from loganalyze.replay.recorder import Recorder

__all__ = [
    "Recorded", "Recorder", "Request", "Step", "from_capsule", "from_checkpoint", "from_hf",
    "require", "trainer_callback",
]  # fmt: skip

_PLACES = {
    "Recorded": "recipe",
    "Recorder": "recorder",
    "Request": "recipe",
    "Step": "recipe",
    "from_capsule": "builtin",
    "from_checkpoint": "builtin",
    "from_hf": "hf",
    "trainer_callback": "callback",
}


def require() -> None:
    """Raises UsageError, saying what to install, where torch or safetensors is missing."""
    missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"replay needs {' and '.join(missing)}, which is not installed",
            hint="pip install 'loganalyze[replay]'",
        )


def __getattr__(name: str) -> Any:
    """Public names, imported on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require()
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
