"""Chains: which guards, in which order, protect each disclosure. Any other is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from protocols.disclosures._base.rules import rules_of
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.policy.guard import Guard, ValueStage, find, guard_of
from protocols.policy.guards import Clip, OwnNoise


def check_chain(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Raise ValueError unless `chain` is a complete, ordered protection of `disclosure`."""
    if not chain:
        raise ValueError(f"the chain for {disclosure} is empty; an empty chain protects nothing")
    rules, present = rules_of(disclosure), {guard.guard for guard in chain}
    if strange := sorted(present - rules.applied):
        raise ValueError(
            f"{disclosure}: '{strange[0]}' would not be applied to it; possible: {rules.order}"
        )
    try:  # first: it says what this disclosure needs, where the order only says what is wrong
        rules.check(chain)
    except ValueError as error:
        raise ValueError(f"{disclosure}: {error}") from None
    clip = guard_of(chain, Clip)
    if clip and clip.norm == "l1" and not find(chain, "own_noise"):
        raise ValueError(f"{disclosure}: 'clip' with norm l1 serves 'own_noise' alone")
    stage = ValueStage.VALUE
    for guard in chain:
        if stage not in guard.takes:
            raise ValueError(
                f"{disclosure}: '{guard.guard}' cannot follow a value of stage {stage.name}; "
                f"possible: {rules.order}"
            )
        stage = guard.gives
    if stage is not ValueStage.ENVELOPE:
        raise ValueError(f"{disclosure}: the chain must end in 'seal', 'sign' or 'unsafe_clear'")
    if not present & rules.protecting:
        raise ValueError(
            f"{disclosure}: nothing in the chain keeps the receiver to '{disclosure.meaning}'; "
            f"needed: one of {', '.join(sorted(rules.protecting))}"
        )


# --- Why a policy refuses a form: rows of too few clients (O12), more than noised gradients ---


class Holders(Protocol):
    """What a policy asks of rows; see `PrivacyPolicy`."""

    @property
    def holders(self) -> int:
        """Clients that must hold a row, besides colluders; 1 asks for nothing."""

    @property
    def colluders(self) -> int:
        """They know their own rows, so a row must rest on so many more."""


def asked_holders(policy: Holders) -> str:
    """Return, in words, on how many clients a policy wants rows to rest; empty: on any."""
    if policy.holders < 2:
        return ""
    more = f", and {policy.colluders} colluders" if policy.colluders else ""
    return f"it asks for {policy.holders + policy.colluders} (holders{more})"


def has_weights(kind: type[Message], exchanges: Sequence[Exchange]) -> bool:
    """Tell whether a message has vectors of real numbers, and is no score."""
    scored = any(kind in exchange.held_out for exchange in exchanges)
    return not scored and any(f.shape and f.wire in ("f4", "f8") for f in kind.fields)


def bounded(kind: type[Message]) -> bool:
    """Tell whether a message says of every field by how much one record moves it."""
    return bool(kind.fields) and all(field.moves > 0 for field in kind.fields)


def counted_objection(form: Form[Any]) -> str | None:
    """Say what of a form noise on counts of single records does not bound; None if nothing.

    What is computed from noised gradients needs none (`private_objection`); the rest is scores.
    """
    for kind in (kind for exchange in form.exchanges for kind in exchange.held_out):
        if not bounded(kind):
            bare = ", ".join(field.name for field in kind.fields if not field.moves)
            return (
                f"message {kind.__name__} does not say by how much one record moves its fields "
                f"({bare}), so no noise hides a record; declare it (`moves`), or take a form that "
                "is not scored"
            )
    return None


def private_objection(form: Form[Any], of_records: Sequence[type[Message]]) -> str | None:
    """Say what of a form is not computed from noised gradients alone; None if nothing.

    Args:
        form: that is to train so that single records stay hidden.
        of_records: its messages that are made of records themselves.
    """
    for exchange in form.exchanges:
        for kind in exchange.back:
            if kind in exchange.held_out:
                continue
            if not form.by_gradients:
                return f"message {kind.__name__} may say more than noised gradients do"
            if kind in of_records:
                return f"message {kind.__name__} is mixed from records, which no noise hides"
            if any(field.wire == "u8" or field.scale for field in kind.fields):
                return f"message {kind.__name__} tells how many records train"
    return None


# --- What a policy refuses of noise that one client adds alone, with the nearest lawful setting
# ---

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
