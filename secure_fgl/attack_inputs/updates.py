"""Which messages of a run hold a change of the model, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.messages import Message, SumMessage
from protocols.plan.steps import Step

Arrays = Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]


def says_updates(case: Case) -> bool:
    """Tell whether any planned message holds a change of the model."""
    fields = (f for item in case.plan.items for m in item.messages for f in m.fields)
    return any(field.name == "delta" for field in fields) or weighs(case)


def weighs(case: Case) -> bool:
    """Tell whether clients send vectors to be weighed: less what they were given, an update."""
    return any(
        field.shape and field.dtype in ("f4", "f8")
        for item in case.plan.all_of(Disclosure.WEIGHTED_SUM, Step.UP)
        for message in item.messages
        for field in message.fields
    )


def updates(exchange: Exchange) -> list[type[SumMessage]]:
    """Return the message of an exchange that holds a change of the model."""
    sums = (kind for kind in exchange.back if issubclass(kind, SumMessage))
    return [kind for kind in sums if any(f.name == "delta" for f in kind.fields)][:1]


def fields(*messages: Message) -> Arrays:
    """Return the fields of messages by name, as float64."""
    return {
        field.name: np.asarray(getattr(message, field.name), dtype=np.float64)
        for message in messages
        for field in message.fields
        if field.wire != "bytes"
    }
