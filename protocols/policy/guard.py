"""What a guard is: one typed step between a message and the bytes that leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, TypeVar

from protocols.policy.budget import Budget, Unit
from protocols.strict import Strict

__all__ = ["Guard", "ValueStage", "describe", "find", "guard_of"]


class ValueStage(IntEnum):
    """What a value is between two guards; a chain in a wrong order does not construct."""

    VALUE = 0
    BOUNDED = 1
    INTEGER = 2
    NOISED = 3
    MASKED = 4
    CIPHERTEXT = 5
    ENVELOPE = 6
    UNIT = 7
    MIXED = 8
    BLURRED = 9
    BOXED = 10
    MATCHED = 11


class Guard(Strict):
    """A step of a chain, as data: what the policy asks for. The gateway applies it.

    Attributes:
        takes: stages of the values that it takes.
        gives: stage of the value that it gives.
        guard: its name in policies; each subclass fixes it.
    """

    takes: ClassVar[tuple[ValueStage, ...]]
    gives: ClassVar[ValueStage]
    guard: str

    def within(self) -> tuple[Guard, ...]:
        """Return guards that this one is made of, which kept state may refer to."""
        return ()

    def budgets(self) -> Mapping[Unit, Budget]:
        """Return what its noise may spend over all runs, by unit; empty where others say so."""
        return {}


G = TypeVar("G", bound=Guard)


def find(chain: Sequence[Guard], name: str) -> Guard | None:
    """Return the guard called `name`, or None."""
    for guard in chain:
        if guard.guard == name:
            return guard
    return None


def guard_of(chain: Sequence[Guard], kind: type[G]) -> G | None:
    """Return the guard of a class, or None."""
    for guard in chain:
        if isinstance(guard, kind):
            return guard
    return None


def describe(guard: Guard) -> str:
    """Return a guard and its parameters as plans, ledgers and reports print it."""
    facts = guard.model_dump(exclude={"guard"})
    listed = ", ".join(f"{key}={value}" for key, value in facts.items())
    return f"{guard.guard}({listed})" if listed else guard.guard
