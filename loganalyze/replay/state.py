"""State that a step depends on: RNGs, parameters, buffers, modes, optimizer; taken and put back."""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.optim import Optimizer


def peak_memory() -> list[int]:
    """Most bytes allocated so far on each CUDA device; empty where none is in use."""
    if not cuda_in_use():
        return []
    return [torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count())]


def has_cuda() -> bool:
    """Whether torch sees a CUDA device."""
    return torch.cuda.is_available()


def cuda_in_use() -> bool:
    """Whether this process has started CUDA."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def capture_rng() -> dict[str, Any]:
    """States of all generators as plain JSON: torch (CPU, each CUDA device), Python, NumPy."""
    return pack_state(*raw_rng())


RawRng = tuple[Tensor, Any, Any, Any]


def raw_rng(last: RawRng | None = None) -> RawRng:
    """What pack_state takes, as the generators give it: quick to get, small to keep.

    last: of the step before; what is still as it was there is shared.
    """
    numpy = sys.modules.get("numpy")  # a loop that never imported it can't depend on it
    words = random.getstate()
    others = numpy.random.get_state() if numpy is not None else None
    if last is not None:
        words = last[1] if words == last[1] else words
        others = last[2] if _unmoved(others, last[2]) else others
    cuda = torch.cuda.get_rng_state_all() if cuda_in_use() else None
    return torch.get_rng_state(), words, others, cuda


def _unmoved(now: Any, then: Any) -> bool:
    """Whether two states of NumPy's generator are the same."""
    if now is None or then is None:
        return False
    return bool(now[2:] == then[2:] and (now[1] == then[1]).all())


def pack_state(cpu: Tensor, python: Any, numpy: Any = None, cuda: Any = None) -> dict[str, Any]:
    """Generator states as torch, Python, NumPy and CUDA give them, in the form of capture_rng."""
    version, words, gauss = python
    made: dict[str, Any] = {"torch": _packed(cpu), "python": [version, list(words), gauss]}
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy
        made["numpy"] = [name, keys.tolist(), int(position), int(has_gauss), float(cached)]
    if cuda is not None:
        made["cuda"] = [_packed(item) for item in (cuda if isinstance(cuda, list) else [cuda])]
    return made


def restore_rng(state: Mapping[str, Any] | None, seed: int | None = None) -> None:
    """Puts captured states back; without any, seeds torch and Python if a seed is known."""
    if state is None:
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
        return
    torch.set_rng_state(_unpacked(state["torch"]))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if "cuda" in state and torch.cuda.is_available():
        for index, item in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_unpacked(item), index)
    if "numpy" in state:
        import numpy as np

        name, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), position, has_gauss, cached))


@contextmanager
def kept_rng() -> Iterator[None]:
    """Generators as they were when the block is left: experiments leave no trace."""
    held = capture_rng()
    try:
        yield
    finally:
        restore_rng(held)


def _packed(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _unpacked(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


class Snapshot(Struct, frozen=True):
    """A copy of everything that a step changes; `optimizer` is a deep-copied state dict."""

    tensors: Mapping[str, Tensor]  # parameters and all buffers by name
    optimizer: Mapping[str, Any] | None
    modes: Mapping[str, bool]

    def restore(self, model: nn.Module, optimizer: Optimizer | None) -> None:
        """Puts the copy back in place: the same tensors, no gradients, modes as they were."""
        with torch.no_grad():
            for name, tensor in _tensors(model):
                tensor.copy_(self.tensors[name])
        for parameter in model.parameters():
            parameter.grad = None
        for name, module in model.named_modules():
            module.training = self.modes[name]
        if optimizer is not None and self.optimizer is not None:
            optimizer.load_state_dict(copied(self.optimizer))


def take(model: nn.Module, optimizer: Optimizer | None, device: str | None = None) -> Snapshot:
    """A snapshot, on `device` or where the tensors are."""
    return Snapshot(
        tensors={name: _copy(tensor, device) for name, tensor in _tensors(model)},
        optimizer=None if optimizer is None else copied(optimizer.state_dict(), device),
        modes={name: module.training for name, module in model.named_modules()},
    )


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers, those included that a state dict leaves out."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _copy(tensor: Tensor, device: str | None) -> Tensor:
    return tensor.detach().to(device or tensor.device, copy=True)


def copied(value: Any, device: str | None = None) -> Any:
    """A deep copy of nested containers whose tensors are cloned (onto `device` if given)."""
    if isinstance(value, Tensor):
        return _copy(value, device)
    if isinstance(value, Mapping):
        return {key: copied(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [copied(item, device) for item in value])
    return value


def _like(value: Any, items: list[Any]) -> Any:
    """Items in a list, a tuple or a named tuple, as `value` is."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def digest(tensor: Tensor) -> str:
    """16 hexadecimal digits of a tensor's bytes, shape and type."""
    held = tensor.detach().cpu().contiguous()
    made = blake2b(f"{held.dtype}{tuple(held.shape)}".encode(), digest_size=8)
    made.update(held.reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def digests(model: nn.Module) -> dict[str, str]:
    """The digest of every parameter."""
    return {name: digest(parameter) for name, parameter in model.named_parameters()}


def to_device(value: Any, device: str) -> Any:
    """Nested containers with their tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [to_device(item, device) for item in value])
    return value
