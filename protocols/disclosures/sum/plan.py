"""The plan items of what takes masks off a sum, opens it, and lets clients agree on its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crypto.signatures import SIGNATURE_BYTES
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.ring import Ring
from protocols.keys.groups import planned_degree, planned_voters
from protocols.keys.pairs import pair_box_bytes, row_bytes
from protocols.plan.steps import Service, Step, item_id
from protocols.wire.control import (
    Opened,
    OpenRequest,
    PairBoxes,
    PairCall,
    PairDown,
    PairRows,
    Shares,
    Survivors,
    Vote,
    Votes,
)
from protocols.wire.envelope import header_bytes
from protocols.wire.roster import Role

if TYPE_CHECKING:
    from protocols.plan.planner import Planner

_CLIENT, _AGGREGATOR, _AUTHORITY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def plan_sharing(planner: Planner, name: str, times: tuple[int, int]) -> None:
    """Plan the survivor list and the shares that take the masks off one sum."""
    # With disjoint clusters, a holder is asked for each of them.
    groups = max(1, len(planner.clients) // planner.policy.smallest_cohort)
    often = (times[0] * groups, times[1] * groups)
    holders = {"holders": planned_degree(len(planner.clients), planner.policy) + 1}
    part = Disclosure.SUM
    planner.add(
        name,
        part,
        Step.SURVIVORS,
        (_AGGREGATOR, _CLIENT),
        (Survivors,),
        Disclosure.RELEASED,
        often,
        dims=holders,
        said={"client": "whose uploads are there", "network": "sender, recipient, time"},
    )
    up, down, sealed = (_CLIENT, _AGGREGATOR), (_AGGREGATOR, _CLIENT), Disclosure.SEALED
    said = {"aggregator": "that this client saw the list"}
    planner.add(name, part, Step.VOTE, up, (Vote,), sealed, often, said=said)
    said = {"client": "who saw the same list"}
    shown = {"voters": planned_voters(len(planner.clients), planner.policy)}
    planner.add(name, part, Step.VOTES, down, (Votes,), sealed, often, dims=shown, said=said)
    planner.add(
        name,
        part,
        Step.SHARES,
        (_CLIENT, _AGGREGATOR),
        (Shares,),
        Disclosure.SEALED,
        often,
        dims=holders,
        said={"aggregator": "shares of the masks of this one sum"},
    )


def plan_opening(
    planner: Planner, name: str, ring: Ring, total: int, times: tuple[int, int]
) -> None:
    """Plan the opening of one encrypted sum."""
    # Disjoint clusters may be opened one by one, each at least the smallest cohort.
    groups = max(1, len(planner.clients) // planner.policy.smallest_cohort)
    often = (times[0] * groups, times[1] * groups)
    part = Disclosure.SUM
    upload = item_id(name, part, Step.UP, _CLIENT)
    sender = header_bytes(upload, planner.longest, planner.name(_AGGREGATOR))
    headers = len(planner.clients) * (2 + sender + SIGNATURE_BYTES)
    opened = ring.size * 8
    planner.add(
        name,
        part,
        Step.OPEN,
        (_AGGREGATOR, _AUTHORITY),
        (OpenRequest,),
        Disclosure.SEALED,
        often,
        dims={"he_total": total, "he_headers": headers},
        said={"key_authority": "uniform noise, and who took part when"},
    )
    planner.add(
        name,
        part,
        Step.OPENED,
        (_AUTHORITY, _AGGREGATOR),
        (Opened,),
        Disclosure.SEALED,
        often,
        dims={"he_opened": opened},
        said={"aggregator": "only the cohort's total"},
    )


def plan_pairs(planner: Planner, often: int, places: int) -> None:
    """Plan what clients agree on in every epoch, so that their masks cancel."""
    degree = planned_degree(len(planner.clients), planner.policy)
    boxes = {"pair_boxes": degree * pair_box_bytes(places)}
    rows = {"pair_rows": places * row_bytes(degree)}
    up, down, times = (_CLIENT, _AGGREGATOR), (_AGGREGATOR, _CLIENT), (0, often)
    sealed, part = Disclosure.SEALED, Service.PAIRS
    planner.add("", part, Step.CALL, down, (PairCall,), Disclosure.PUBLIC, times, said={})
    said = {"aggregator": "size only", "addressee": "half of a secret, and shares of seeds"}
    planner.add("", part, Step.BOXES, up, (PairBoxes,), sealed, times, dims=boxes, said=said)
    planner.add("", part, Step.DOWN, down, (PairDown,), sealed, times, dims=boxes, said=said)
    said = {"aggregator": "nothing, until enough holders say that this client vanished"}
    planner.add("", part, Step.ROWS, up, (PairRows,), sealed, times, dims=rows, said=said)
