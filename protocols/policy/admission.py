"""Why a policy refuses a form: rows of too few clients (O12), more than noised gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import SENT
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.policy.guards import Guard, evaluated, find

__all__ = ["form_objection", "private_objection", "rows_objection"]

_SUMS = (Disclosure.SUM, Disclosure.WEIGHTED_SUM)


def rows_objection(
    kind: type[Message], form: Form[Any], chain: Sequence[Guard], holders: int, colluders: int
) -> str | None:
    """Say why rows of a message rest on too few clients; None if none do.

    Args:
        kind: of the form.
        form: how many hold each of its rows, and whether its weights have rows of items.
        chain: of the message's disclosure.
        holders: the policy's; 1 asks for nothing.
        colluders: the policy's; they know their own rows, so a row must rest on so many more.
    """
    needed = holders + colluders
    if holders < 2 or find(tuple(chain), "noise") is not None:
        return None
    asks = f"it asks for {needed} (holders{f', and {colluders} colluders' if colluders else ''})"
    if kind.disclosure is Disclosure.NOISED and any(SENT in field.shape for field in kind.fields):
        return f"rows of message {kind.__name__} are one client's, and {asks}"
    if kind.disclosure is Disclosure.SUM and any(field.held for field in kind.fields):
        if form.holders >= needed:
            return None
        return (
            f"rows of message {kind.__name__} may rest on {form.holders} of the clients, and {asks}"
        )
    if form.rows and kind.disclosure in _SUMS and _weights(kind, form.exchanges):
        return f"message {kind.__name__} has weights of items that one client may hold, and {asks}"
    return None


def _weights(kind: type[Message], exchanges: Sequence[Exchange]) -> bool:
    """Tell whether a message has vectors of real numbers, and is no score."""
    scored = any(kind in exchange.held_out for exchange in exchanges)
    return not scored and any(f.shape and f.wire in ("f4", "f8") for f in kind.fields)


def form_objection(form: Form[Any], rules: Mapping[Disclosure, tuple[Guard, ...]]) -> str | None:
    """Say which messages of a form cannot stand side by side; None if all can."""
    for exchange in form.exchanges:
        for kinds in (exchange.back, exchange.given):
            said = [kind.disclosure for kind in kinds]
            for disclosure in dict.fromkeys(said):
                one = evaluated(rules.get(disclosure, ())) is not None
                if (one or disclosure is Disclosure.MIXED) and said.count(disclosure) > 1:
                    return f"{exchange.name} holds two {disclosure} messages; one is possible"
    return _match_objection(form) if find(rules.get(Disclosure.MATCH, ()), "match") else None


def _match_objection(form: Form[Any]) -> str | None:
    """Say what of a form cannot be matched by tags; None if all can, or nothing is to be."""
    asked = [e for e in form.exchanges if any(k.disclosure is Disclosure.MATCH for k in e.back)]
    if len(asked) > 1:
        return "two exchanges bring back what is matched; one is possible"
    for exchange in asked:
        if len(exchange.back) > 1 or exchange.per_round > 1 or exchange.outside:
            return f"{exchange.name} must bring back one matched message, once a round at most"
        (kind,) = exchange.back
        keys = [f for f in kind.fields if f.key and len(f.shape) == 1]
        reals = [f for f in kind.fields if f.wire in ("f4", "f8")]
        if (len(keys), len(reals), len(kind.fields)) != (1, 1, 2):
            return f"message {kind.__name__} needs one key field and one real field to be matched"
    for exchange in form.exchanges:
        for kind in exchange.given:
            names = [f.name for f in kind.fields if f.wire == "u8"]
            whole = len(kind.fields) == 2 and names == ["row"]
            if kind.disclosure is Disclosure.MATCH and not (asked and whole):
                return f"message {kind.__name__} needs the field 'row' and one real field"
    return None


def private_objection(form: Form[Any]) -> str | None:
    """Say what of a form is not computed from noised gradients alone; None if nothing."""
    for exchange in form.exchanges:
        for kind in exchange.back:
            if kind in exchange.held_out:
                continue
            if not form.by_gradients:
                return f"message {kind.__name__} may say more than noised gradients do"
            if kind.disclosure is Disclosure.MIXED:
                return f"message {kind.__name__} is mixed from records, which no noise hides"
            if any(field.wire == "u8" or field.scale for field in kind.fields):
                return f"message {kind.__name__} tells how many records train"
    return None
