"""On which device clients of a simulation train: the processor, or a GPU.

Sites that run apart train on the processor: their answers are computed in a process to which the
kernel gives no device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from secure_fgl.config import Config
from secure_fgl.errors import UsageError

__all__ = ["chosen", "gpu", "told", "training_on"]


def gpu() -> str:
    """Return the name of the GPU that PyTorch would use; empty if there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def chosen(config: Config) -> str:
    """Return ``cpu`` or ``cuda``.

    Args:
        config: of a run; without ``device`` it is ``cpu``, and nothing is looked at.

    Raises:
        UsageError: a GPU is asked for where there is none, or where answers are isolated.
    """
    if config.device == "cpu":
        return "cpu"
    apart = config.isolated or config.transport.name == "broker"
    if config.device == "cuda" and apart:
        raise UsageError(
            "Isolated answers cannot be computed on a GPU.",
            why="the kernel gives their process no device, neither here nor at sites apart",
            fix="--set device=cpu, or a simulation with isolate=false",
        )
    if apart:
        return "cpu"
    if gpu():
        return "cuda"
    if config.device == "cuda":
        raise UsageError(
            "This machine has no GPU that PyTorch can use, so nothing was started.",
            why="there is none, its driver is missing, or this build of PyTorch is for processors",
            fix="--set device=auto takes a GPU only if there is one; secure-fgl doctor shows it",
        )
    return "cpu"


def told(config: Config) -> str:
    """Say where clients train; raises UsageError as `chosen` does."""
    return "the processor" if chosen(config) == "cpu" else f"a GPU, {gpu()}"


@contextlib.contextmanager
def training_on(device: str) -> Iterator[None]:
    """Let PyTorch compute on a device, ``cpu`` or ``cuda``; nothing is entered for ``cpu``."""
    if device == "cpu":
        yield
        return
    from secure_fgl.placing import Placing

    with Placing(device):
        yield
