"""What clients' own noise leaves of a mean, as planned without data, beside what happened."""

from __future__ import annotations

import math
from collections import defaultdict

from audits.accounting import rows
from audits.accounting.engines import false_noise
from audits.accounting.models import Calibrated
from audits.accounting.tally import Tally
from protocols.plan.plan import Item
from protocols.privacy.own_error import clients_needed, error_of_one

__all__ = ["calibrated"]

NONE = "none"
"""In the place of a mean's error where nobody answered."""


def calibrated(tally: Tally) -> tuple[Calibrated, ...]:
    """Return one row for each item under its client's own noise; empty without such noise.

    A plan whose noise is false has none: the account says what is false.
    """
    if not tally.own or false_noise(tally.plan, tally.policy):
        return ()
    make = rows.labels(tally)
    return tuple(_row(tally, item, make) for item in tally.items)


def _row(tally: Tally, item: Item, make: rows.Labels) -> Calibrated:
    one, clients = error_of_one(item, tally.policy), len(tally.plan.clients)
    answered = _answered(tally, item)
    fewest = min(answered, default=0)
    spent = tally.recorded([spend for spend in tally.worst if spend.item == item.id])
    noise = item.noise
    return Calibrated(
        item=item.id,
        entries=noise.coordinates if noise is not None else 0,
        planned=clients,
        ratio=_text(one / math.sqrt(clients)),
        needed=clients_needed(one),
        asks=len(answered),
        answered=fewest,
        answered_ratio=_text(one / math.sqrt(fewest)) if fewest else NONE,
        spent=make.epsilon(spent, "covered messages", f"messages of {item.id} alone"),
    )


def _answered(tally: Tally, item: Item) -> list[int]:
    """Return how many clients answered each Ask, by their ledgers."""
    told: dict[int, set[str]] = defaultdict(set)
    for sent in tally.case.ledger_index.releases():
        if sent.item == item.id:
            told[sent.exchange].add(sent.party)
    return [len(parties) for parties in told.values()]


def _text(ratio: float) -> str:
    return f"{ratio:.3g}"
