"""What a policy refuses of noise that one client adds alone, with the nearest lawful setting."""

from __future__ import annotations

from protocols.messages import Message
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import OwnNoise

__all__ = ["check_own_noise", "own_objection"]


def check_own_noise(guard: OwnNoise | None, clients: int) -> None:
    """Raise ValueError for a delta at which a mechanism may publish whole clients.

    Args:
        guard: of the chain; None asks for nothing.
        clients: of the smallest cohort, or of a plan.
    """
    if guard is not None and not guard.delta < 1.0 / clients:
        raise ValueError(
            f"own_noise: delta {guard.delta:g} is not below 1/{clients}: one of {clients} clients "
            f"could send its data in clear; set delta to {0.1 / clients:.1g} or less"
        )


def own_objection(kind: type[Message], chain: tuple[Guard, ...]) -> str | None:
    """Say what of a message one client's own noise cannot cover; None if nothing.

    Args:
        kind: the message.
        chain: that protects it.
    """
    guard = guard_of(chain, OwnNoise)
    if guard is None:
        return None
    scaled = [field.name for field in kind.fields if field.scale]
    if scaled:
        return (
            f"message {kind.__name__} is weighted by a private count ({', '.join(scaled)}), "
            "and so is its clip; take a form that counts all clients alike"
        )
    if any(field.wire not in ("f4", "f8") for field in kind.fields):
        return f"message {kind.__name__} holds more than real numbers, which 'own_noise' covers"
    told = {bool(field.told) for field in kind.fields}
    if len(told) > 1:
        return (
            f"message {kind.__name__} holds a vector beside what is told by itself; say them in "
            "answer to two Asks"
        )
    if told == {True} and guard.mechanism == "discrete_gaussian":
        return (
            f"message {kind.__name__} is told at delta 0, and discrete_gaussian has none; take "
            "own_noise with mechanism sqkr or discrete_laplace"
        )
    return None
