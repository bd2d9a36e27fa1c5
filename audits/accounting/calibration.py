"""What clients' own noise leaves of a mean, as planned without data, beside what happened."""

from __future__ import annotations

import math
from collections import defaultdict

from audits.accounting import rows
from audits.accounting.engines import false_noise
from audits.accounting.models import Epsilon
from audits.accounting.rows import Tally
from protocols.plan.plan import Item
from protocols.privacy.own_target import clients_needed, error_of_one
from protocols.strict import Strict

__all__ = ["Calibrated", "calibrated"]

NONE = "none"
"""In the place of a mean's error where nobody answered."""


class Calibrated(Strict):
    """One item under its clients' own noise: what its mean is worth, planned and as it went.

    Attributes:
        item: of the plan.
        entries: numbers that are noised.
        planned: clients on the plan.
        ratio: noise to signal: the root of the expected squared error of the mean of so many
            clients, in units of the clip norm; decimal text.
        needed: clients from which the mean's error falls below the clip.
        asks: that were answered.
        answered: clients that answered, in the Ask that fewest did.
        answered_ratio: `ratio` for so many; ``none`` if nobody did.
        spent: by the ledger of whoever spent most, on this item alone.
    """

    item: str
    entries: int
    planned: int
    ratio: str
    needed: int
    asks: int
    answered: int
    answered_ratio: str
    spent: Epsilon


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
