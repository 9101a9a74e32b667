"""What a recipe hands over: model, optimizer, loss function, data; and how recipes are found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from loganalyze.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
#: Built-in recipes; capsule and torch need a function that builds model, optimizer and loss.
BUILTIN = ("capsule", "hf", "torch")
#: Function of a recipe file that is named without one.
DEFAULT_FUNCTION = "recipe"


class Request(Struct, frozen=True, kw_only=True):
    """What the command asks a recipe for."""

    step: int | None  # the suspect step; None: the one that the capsule was written for
    device: str = "cpu"
    checkpoint: Path | None = None
    data: Path | None = None  # recorded batches (a recorder's folder), or a dataset file
    trust: bool = False  # pickles may be loaded, code named by a checkpoint may run
    logged: Mapping[str, float] = field(default_factory=dict)  # metric -> value at that step


class Recorded(Struct, frozen=True, kw_only=True):
    """One optimizer step: its data, and what was recorded of it. Absent values are None.

    micro_batches: whatever loss_fn takes, one per backward pass. rng: see state.capture_rng;
    values: loss, grad_norm as recorded (exact floats).
    """

    step: int
    micro_batches: tuple[Any, ...]
    sample_ids: tuple[str, ...] = ()  # of all micro-batches, in their order
    hashes: tuple[str, ...] = ()  # one per micro-batch
    lrs: tuple[float, ...] = ()  # one per parameter group
    loss_scale: float | None = None
    seed: int | None = None
    rng: Mapping[str, Any] | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True  # values are exact floats, not figures printed in a log


class Step(Struct, kw_only=True):
    """The suspect step, and the state that it (or an earlier recorded step) starts from.

    loss_fn(model, batch) is the mean loss that training minimised, a scalar. model and optimizer
    are in the state before `before[0]`, or before the suspect where `before` is empty.
    after, held: parameters right after the suspect step, and right before its update, where the
    recorder kept them.
    """

    model: nn.Module
    loss_fn: Callable[[nn.Module, Any], Tensor]
    optimizer: Optimizer | None = None
    batch: Any = None
    micro_batches: Sequence[Any] = ()
    precision: Precision = "fp32"
    clip: float | None = None
    accumulate: Literal["mean", "sum"] = "mean"  # of micro-batches' losses
    step: int = 0
    sample_ids: Sequence[str] = ()
    seed: int | None = None
    loss_scale: float | None = None
    suspect: Recorded | None = None
    before: tuple[Recorded, ...] = ()
    history: tuple[float, ...] = ()  # losses of earlier steps, for what is usual
    after: Mapping[str, Tensor] = field(default_factory=dict)
    held: Mapping[str, Tensor] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)  # see environment.capture
    select: Callable[[Any, Sequence[int]], Any] | None = None  # some samples of a batch
    decode: Callable[[Any], str] | None = None  # a batch of one sample as text

    def target(self) -> Recorded:
        """The suspect step's data; made of batch, sample_ids and seed where none was recorded."""
        if self.suspect is not None:
            return self.suspect
        micro = tuple(self.micro_batches) or ((self.batch,) if self.batch is not None else ())
        if not micro:
            raise UsageError("the recipe gave no batch", hint="set Step.batch or .micro_batches")
        return Recorded(
            step=self.step, micro_batches=micro, sample_ids=tuple(map(str, self.sample_ids)),
            seed=self.seed, loss_scale=self.loss_scale, exact=False,
        )  # fmt: skip


def load_step(recipe: str, request: Request) -> Step:
    """The step of `path.py[:function]`, or of `capsule[:path.py:function]`, `torch:...`, `hf`.

    Raises UsageError for a recipe that can't be found or gives no Step.
    """
    kind, _, rest = recipe.partition(":")
    if kind not in BUILTIN:
        return call(load_function(recipe), request, recipe)
    from loganalyze.replay import builtin

    return builtin.load(kind, rest, request)


def load_function(place: str) -> Callable[..., Any]:
    """The function of `path.py:function`, its folder importable as for a script."""
    name, _, function = place.partition(":")
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(
            f"recipe {place}: no such Python file",
            hint=f"path.py:function, or a built-in: {', '.join(BUILTIN)}",
        )
    found = getattr(_module(path.resolve()), function or DEFAULT_FUNCTION, None)
    if not callable(found):
        raise UsageError(f"{path}: has no function '{function or DEFAULT_FUNCTION}'")
    return found  # type: ignore[no-any-return]


def _module(path: Path) -> Any:
    name = f"loganalyze_recipe_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: can't be imported")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec.loader.exec_module(module)
    return module


def call(function: Callable[..., Any], request: Request, place: str) -> Step:
    """Calls a recipe or builder, with the request if it has a parameter that needs a value."""
    needed = [p for p in signature(function).parameters.values() if p.default is Parameter.empty]
    made = function(request) if needed else function()
    if not isinstance(made, Step):
        raise UsageError(
            f"recipe {place}: gave {type(made).__name__}, not a Step",
            hint="return loganalyze.replay.Step(model=..., loss_fn=..., ...)",
        )
    if made.precision not in PRECISIONS:
        raise UsageError(f"recipe {place}: precision '{made.precision}' is not one of "
                         f"{', '.join(PRECISIONS)}")  # fmt: skip
    return made
