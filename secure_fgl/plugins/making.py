"""The surroundings in which a plug-in's module is built: a stream of its own, memory of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["making"]


@contextmanager
def making(seed: int) -> Iterator[None]:
    """Let modules draw from a stream of this seed, and what they leave open be NaN.

    torch's deterministic mode fills what `torch.empty` leaves open with NaN. The process's own
    stream and mode are as before when the context ends.
    """
    import torch

    before = torch.get_deterministic_debug_mode()
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
