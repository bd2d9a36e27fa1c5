"""What a policy refuses of noise that one client adds alone, with the nearest lawful setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import OwnNoise

__all__ = [
    "bare_objection",
    "check_one_target",
    "check_own_noise",
    "check_records",
    "own_objection",
]

Chains = Mapping[Disclosure, tuple[Guard, ...]]


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


def check_one_target(chains: Chains) -> None:
    """Raise ValueError where two disclosures name two targets: a client's run has one."""
    found = {name: guard_of(chain, OwnNoise) for name, chain in chains.items()}
    named = {str(name): (own.epsilon, own.delta) for name, own in found.items() if own is not None}
    if len(set(named.values())) < 2:
        return
    said = ", ".join(f"{name} ({e:g}, {d:g})" for name, (e, d) in named.items())
    epsilon = min(e for e, _ in named.values())
    delta = min(d for _, d in named.values())
    raise ValueError(
        f"own_noise: {said} are different targets, and all that a client sends in a run has one; "
        f"set epsilon to {epsilon:g} and delta to {delta:g} in each"
    )


def check_records(trained: bool, *, captured: bool) -> None:
    """Raise ValueError where noise on counts of single records could not bound what one does.

    Args:
        trained: training hides single records.
        captured: parties keep their own rounds.
    """
    if not trained:
        raise ValueError(
            "record_noise hides the records that are counted, and what is counted depends on a "
            "model that other records trained; say how they are hidden (training)"
        )
    if captured:
        raise ValueError(
            "record_noise: a captured answer holds the counts without their noise; leave 'capture' "
            "out"
        )


def bare_objection(form: Form[Any], chains: Chains) -> str | None:
    """Say which message would leave a client without noise under a policy with own noise.

    The policy's epsilon is of all that a client sends, so one message without noise makes it
    infinite while the budget is charged a finite number. None if all have noise, or none needs any.

    Args:
        form: of an algorithm, perhaps a plug-in's.
        chains: the policy's.
    """
    own = [str(name) for name, chain in chains.items() if find(chain, "own_noise")]
    if not own:
        return None
    said = [k for exchange in form.exchanges for k in exchange.back if k not in exchange.follows]
    for kind in said:
        for disclosure in form.disclosures(kind):
            if disclosure in chains and not find(chains[disclosure], "own_noise"):
                return (
                    f"message {kind.__name__} ({disclosure}) would leave a client without noise, "
                    "and the epsilon of 'own_noise' is of all that a client sends; "
                    f"{_instead(disclosure, own)}"
                )
    return None


def _instead(disclosure: Disclosure, own: Sequence[str]) -> str:
    """Say what would be lawful in the place of a message without noise."""
    if disclosure in (Disclosure.SUM, Disclosure.NOISED):
        return f"put 'own_noise' into the chain of {disclosure}"
    return f"say it as {' or '.join(own)}, or take a form without it"
