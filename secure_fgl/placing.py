"""Training on another device without a word of it in tasks, models and algorithms.

On the processor nothing here is entered, so the processor's results are those that they were, bit
for bit. Otherwise every call of PyTorch passes through `Placing`:

- what is made, or is still on the processor, goes to the device;
- what is drawn with a generator is drawn on the processor, from the same stream, and then moved;
- what becomes an array of numpy comes back to the processor first.

So messages are made of arrays on the processor whatever the device, and a run on a GPU takes the
same batches and dropout masks as one on the processor; its sums may round otherwise.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors  # the list behind `torch.set_default_device`

__all__ = ["Placing"]


_TO_NUMPY = (Tensor.numpy, Tensor.__array__)


class Placing(TorchFunctionMode):
    """Within it, PyTorch computes on a device.

    Args:
        device: for example ``cuda``.
    """

    def __init__(self, device: str | torch.device) -> None:
        super().__init__()
        self._device = torch.device(device)
        # cuBLAS sums in a fixed order only with it; deterministic mode refuses to go on without.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of PyTorch with all tensors on the device; see the module."""
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if name == "__get__":  # a shape, a gradient: nothing is computed
            return function(*args, **kwargs)
        if function in _TO_NUMPY:
            return function(args[0].cpu(), *args[1:], **kwargs)
        if function in _device_constructors():
            if kwargs.get("generator") is not None:
                return function(*args, **kwargs).to(self._device)
            kwargs = {"device": self._device, **kwargs}
        # What is written into stays where it is: a copy of it would be changed instead.
        written = bool(args) and isinstance(args[0], Tensor) and _writes(name)
        place = args[0].device if written else self._device
        moved = {key: _moved(value, place) for key, value in kwargs.items()}
        return function(*_moved(args, place), **moved)


def _writes(name: str) -> bool:
    """Tell whether a function changes its first argument."""
    return name in ("__setitem__", "__set__") or (name[-1:] == "_" and name[-2:] != "__")


def _moved(value: Any, place: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value if value.device.type == place.type else value.to(place)
    if type(value) in (list, tuple):
        return type(value)(_moved(one, place) for one in value)
    return value
