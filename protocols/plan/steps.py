"""What an item of the plan is for: which part of the layer plans it, and which step of it.

Sessions hand an envelope to the code of its part and step by looking both up in a table; audits
find both in the plan, under the id that a ledger states. Ids are made here and nowhere else, and
nobody reads any meaning out of their text; scripts/house_rules.py sees to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from protocols.disclosures.names import Disclosure
from protocols.errors import NotInPlan
from protocols.wire.roles import Role

__all__ = ["Part", "Service", "Step", "Way", "item_id", "not_planned"]


class Service(StrEnum):
    """A part of the layer that serves all disclosures."""

    KEYS = "keys"  # an epoch's public keys
    PAIRS = "pairs"  # an epoch's pair secrets
    DRAW = "draw"  # the seed of the run's cohorts, which nobody chooses alone
    HEADS = "heads"  # the farewell with the last root over all clients' heads
    BUDGET = "budget"  # heads of the clients' budgets, cosigned at the end of the run
    TOTALS = "totals"  # that moved the model while a client was away
    REFUSAL = "refusal"
    ASK = "ask"  # what an Ask hands out, and the receipt where nothing comes back


Part = Service | Disclosure | Role
"""A service, the disclosure whose messages and openings an item carries, or the role that it is for
where only that role's file knows of it."""


def check_names(*kinds: Iterable[str]) -> None:
    """Hold all parts of a plan apart: as keys of a table, two of one name would be one.

    Raises:
        TypeError: a role's file or a disclosure's folder has a name that is taken, in small
            letters or capitals.
    """
    seen: set[str] = set()
    for name in (one.lower() for kind in kinds for one in kind):
        if name in seen:
            raise TypeError(
                f"Two parts of the plan are called {name!r}: a role's file or a disclosure's folder"
                " has the name of a service or of each other. Give it another name."
            )
        seen.add(name)


check_names(Service, Disclosure, Role)


class Step(StrEnum):
    """One kind of envelope of a part."""

    CALL = "call"
    OFFER = "offer"
    BOXES = "boxes"
    ROWS = "rows"
    COMMIT = "commit"
    COMMITS = "commits"
    LOT = "lot"
    LOTS = "lots"
    DOWN = "down"
    ACK = "ack"
    REFUSE = "refuse"
    UP = "up"
    SURVIVORS = "survivors"
    VOTE = "vote"
    VOTES = "votes"
    SHARES = "shares"
    ALL_HERE = "all_here"
    SELF_SHARES = "self_shares"
    OPEN = "open"
    OPENED = "opened"
    WITNESS = "witness"
    WITNESSED = "witnessed"
    RELAY = "relay"
    RELAYED = "relayed"
    POINTS = "points"
    ANSWERS = "answers"
    HALFWAY = "halfway"
    ONWARD = "onward"
    SECOND_POINTS = "second_points"
    SECOND_ANSWERS = "second_answers"
    TAGGED = "tagged"
    TAGS = "tags"
    COMPARE = "compare"
    COMPARED = "compared"
    TOLD = "told"
    TAKEN = "taken"
    SPLIT = "split"
    MATES = "mates"
    PART = "part"


class Way(StrEnum):
    """How the masks of one sum come off; of each sum, items of one way alone leave (ADR 0035)."""

    ONE_ANSWER = "one answer"  # where nobody is missing and all pairs hold shares
    TWO_STEPS = "two steps"


_OUTSIDE: dict[Part, str] = {
    Service.KEYS: "key",
    Service.PAIRS: "pair",
    Service.DRAW: "draw",
    Service.HEADS: "heads",
    Service.BUDGET: "budget",
    Service.TOTALS: "totals",
}


def item_id(exchange: str, part: Part, step: Step, sender: str) -> str:
    """Return the id under which plans, ledgers and reports name an item.

    Args:
        exchange: name of the Ask; empty for what belongs to none.
        part: which part plans it.
        step: what it is for.
        sender: role; refusals of several roles are told apart by it.
    """
    if part is Service.REFUSAL:
        return f"refusal.{sender}"
    if part in _OUTSIDE:
        return f"{_OUTSIDE[part]}.{step}"
    if step is Step.UP:
        return f"{exchange}.up.{part}"
    if part in (Service.ASK, Disclosure.SUM):
        return f"{exchange}.{step}"
    return f"{exchange}.match.{step}" if part is Disclosure.MATCH else f"{exchange}.{step}.{part}"


def not_planned(what: str) -> NotInPlan:
    """Return the error for an item that a plan does not hold."""
    return NotInPlan(
        f"The plan holds no item {what[:60]!r}.",
        why="the run asks for something that was not planned or not approved",
        fix="make a new plan, compare it with --against, and have it approved",
    )
