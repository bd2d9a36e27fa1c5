"""Noise of one client's own: planned for a target, applied, and what it comes to in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protocols.errors import NotAdmitted, UnfitMessage
from protocols.messages import Message

__all__ = ["check_useful", "finite", "reals", "silent"]


def finite(message: Message) -> Message:
    """Return a message, or one of zeros where a number of it is not finite."""
    fields = {f.name: np.asarray(getattr(message, f.name)) for f in type(message).fields}
    if all(np.isfinite(value).all() for value in fields.values() if value.dtype.kind == "f"):
        return message
    return type(message)(**{name: np.zeros_like(value) for name, value in fields.items()})


def reals(
    messages: Sequence[Message], kinds: Sequence[type[Message]], dims: Mapping[str, int]
) -> tuple[Message, ...]:
    """Return an answer's messages with all their fields as real arrays of the planned shape.

    Raises:
        UnfitMessage: it is another answer than declared. An answer may be so because of data, as
            what an algorithm raises may be, and is treated alike.
    """
    found = {type(message): message for message in messages}
    if len(messages) != len(kinds) or found.keys() != set(kinds):
        raise UnfitMessage("An answer does not hold the messages that it declares.")
    made: list[Message] = []
    for kind in kinds:
        values: dict[str, Any] = {}
        for field in kind.fields:
            given = np.asarray(getattr(found[kind], field.name))
            if given.shape != field.sizes(dims) or given.dtype.kind not in "fiu":
                raise UnfitMessage(f"{kind.__name__}.{field.name} is not what was planned.")
            with np.errstate(over="ignore"):  # what is no double is infinite, and counts as zero
                values[field.name] = given.astype(np.float64, copy=False)
        made.append(kind(**values))
    return tuple(made)


def silent(kinds: Sequence[type[Message]], dims: Mapping[str, int]) -> tuple[Message, ...]:
    """Return messages of zeros: what a client says that has nothing to say.

    Args:
        kinds: of real numbers.
        dims: of the plan.
    """
    made: list[Message] = []
    for kind in kinds:
        values: dict[str, Any] = {f.name: np.zeros(f.sizes(dims)) for f in kind.fields}
        made.append(kind(**values))
    return tuple(made)


def check_useful(error: float, bound: float, clients: int, *, accepted: bool) -> None:
    """Raise NotAdmitted where a cohort's mean is expected to say nothing.

    Args:
        error: the root of the expected squared error of the smallest cohort's mean.
        bound: the clip norm: no mean is longer.
        clients: of the smallest cohort.
        accepted: the policy says `accept_noise`.
    """
    if accepted or error <= bound:
        return
    needed = math.ceil(clients * (error / bound) ** 2)
    raise NotAdmitted(
        f"The mean of {clients} clients would err by {error / bound:.3g} times the clip.",
        why="each client's own noise has to hide it whoever colludes, and more noise than signal "
        "is left in the mean of the policy's smallest cohort",
        fix=f"set minimum_cohort so that the smallest cohort holds at least {needed} clients, take "
        "fewer weights or rounds or a larger epsilon, or say accept_noise: true",
    )
