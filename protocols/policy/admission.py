"""Why a policy refuses a form: rows of too few clients (O12), more than noised gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from protocols.forms import Exchange, Form
from protocols.messages import Message

__all__ = [
    "Holders", "asked_holders", "bounded", "counted_objection", "has_weights", "private_objection",
]  # fmt: skip


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
