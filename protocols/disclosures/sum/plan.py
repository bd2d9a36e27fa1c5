"""The plan items of what takes masks off a sum, opens it, and lets clients agree on its secrets."""

from __future__ import annotations

from collections.abc import Sequence

from crypto.errors import OutOfRange
from crypto.homomorphic.he import Scheme
from crypto.masks import container
from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._checked.checks import width_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import RecordNoise, encryption
from protocols.disclosures.sum.layout import SumLayout, sum_layout, sum_ring
from protocols.disclosures.sum.messages import (
    AllHere,
    BlindTotal,
    Opened,
    OpenRequest,
    SelfShares,
    Shares,
    Survivors,
    Vote,
    Votes,
)
from protocols.disclosures.sum.ring import Ring
from protocols.disclosures.sum.words import handed_to_one, read_by_one
from protocols.errors import PolicyError
from protocols.forms import Exchange
from protocols.keys.groups import planned_degree, planned_voters
from protocols.keys.one_answer import planned_one_answer
from protocols.keys.pairs import pair_box_bytes
from protocols.keys.seeds import row_bytes
from protocols.keys.slots import epochs, slots
from protocols.messages import Message, addressed
from protocols.plan.builder import DOWN, UP, PlanBuilder, Times
from protocols.plan.learns import learns
from protocols.plan.noise import CountPlan, NoisePlan
from protocols.plan.plan import Item
from protocols.plan.schema import message_plan
from protocols.plan.steps import Service, Step, Way, item_id
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import OwnNoise
from protocols.privacy.noising import noise_for, noise_in
from protocols.privacy.own_target import of_exchanges, own_noises
from protocols.privacy.record_noise import counted_of, plan_counted
from protocols.wire.control import PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.envelope import header_bytes
from protocols.wire.roles import Role

_CLIENT, _AGGREGATOR, _AUTHORITY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def _plan_sharing(planner: PlanBuilder, name: str, times: Times) -> None:
    """Plan what takes the masks off one sum in two steps: the survivor list, and the shares."""
    often = planner.held(times)  # with disjoint clusters, a holder is asked for each of them
    part, way = Disclosure.SUM, Way.TWO_STEPS
    holders = {"holders": planned_degree(*planner.group) + 1}
    kinds, told, sealed = (Survivors,), Disclosure.RELEASED, Disclosure.SEALED
    said = {"client": "whose uploads are there", "network": "sender, recipient, time"}
    planner.add(
        name, part, Step.SURVIVORS, DOWN, kinds, told, often, dims=holders, said=said, way=way
    )
    said = {"aggregator": "that this client saw the list"}
    planner.add(name, part, Step.VOTE, UP, (Vote,), sealed, often, said=said, way=way)
    said = {"client": "who saw the same list"}
    shown = {"voters": planned_voters(*planner.group)}
    planner.add(
        name, part, Step.VOTES, DOWN, (Votes,), sealed, often, dims=shown, said=said, way=way
    )
    said = {"aggregator": "shares of the masks of this one sum"}
    planner.add(
        name, part, Step.SHARES, UP, (Shares,), sealed, often, dims=holders, said=said, way=way
    )


def _plan_one_answer(planner: PlanBuilder, name: str, times: Times) -> None:
    """Plan what takes them off in one answer, where nobody is missing (ADR 0035)."""
    if not planned_one_answer(*planner.group):
        return
    often, part, way = planner.held(times), Disclosure.SUM, Way.ONE_ANSWER
    holders = {"holders": planned_degree(*planner.group) + 1}
    kinds, told, sealed = (AllHere,), Disclosure.RELEASED, Disclosure.SEALED
    said = {"client": "that all uploads are there", "network": "sender, recipient, time"}
    planner.add(
        name, part, Step.ALL_HERE, DOWN, kinds, told, often, dims=holders, said=said, way=way
    )
    said = {"aggregator": "that this client saw the list, and shares of self-masks of this sum"}
    planner.add(
        name,
        part,
        Step.SELF_SHARES,
        UP,
        (SelfShares,),
        sealed,
        often,
        dims=holders,
        said=said,
        way=way,
    )


def _plan_opening(
    planner: PlanBuilder, name: str, ring: Ring, total: int, times: tuple[int, int], *, read: bool
) -> None:
    """Plan the opening of one encrypted sum; `read`: by one client, under its blind."""
    often = planner.often(times)
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
        said={"aggregator": "uniform noise" if read else "only the cohort's total"},
    )


def _plan_pairs(planner: PlanBuilder, often: int, places: int) -> None:
    """Plan what clients agree on in every epoch, so that their masks cancel."""
    degree = planned_degree(*planner.group)
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


class SumPlanning(Planning):
    """Integers in a ring; masks and encryption add what takes them off."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the summands of an Ask, and what opening their total takes."""
        chain = plan.policy.chain(self.disclosure)
        layout, noise = sum_layout(kinds, chain, plan.dims), _noise(plan)
        checked = _checked(plan) if plan.models.checked_kinds(name) else 0
        counted = _counted(plan) if any(True for _ in layout.noised()) else None
        margin = max(added.margin if added else 0 for added in (noise, counted))
        ring = _ring(plan, layout, margin, checked=checked > 0)
        size = ring.wire_bytes
        if encryption(chain):
            scheme = _scheme(plan)
            size = ring.size // scheme.degree * scheme.ciphertext_bytes
        place = (name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)
        said = _readers(plan, chain) if checked else None
        read = any(map(addressed, kinds))
        if read and not find(chain, "unsafe_clear"):
            said = read_by_one(plan.clients, encrypted=encryption(chain) is not None)
        plan.add(
            *place,
            body=size,
            layout=layout,
            noise=noise,
            counted=counted,
            checked=checked,
            reader="client" if read else "",
            said=said,
        )
        if find(chain, "mask"):
            _plan_sharing(plan, name, times)
            _plan_one_answer(plan, name, times)
        if encryption(chain):
            _plan_opening(plan, name, ring, size, times, read=read)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds a total under its reader's blind."""
        return BlindTotal if addressed(kind) else kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the size of a total that an Ask hands to the client that reads it."""
        (kind,) = (kind for kind in exchange.given if kind.disclosure is self.disclosure)
        chain = plan.policy.chain(self.disclosure)
        layout, noise = sum_layout((kind,), chain, plan.dims), _noise(plan)
        counted = _counted(plan) if any(True for _ in layout.noised()) else None
        margin = max(added.margin if added else 0 for added in (noise, counted))
        ring = _ring(plan, layout, margin, checked=False)
        masked = find(chain, "mask") is not None
        return {"blind_total": ring.wire_bytes if masked else 8 * ring.length}

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what where an Ask hands totals to the clients that read them."""
        return handed_to_one(plan.clients)

    def epoch(self, plan: PlanBuilder, planned: Sequence[Item]) -> None:
        """Add what clients agree on, so that their masks cancel."""
        places = len(slots(planned, plan.rounds, plan.policy, 0))
        masked = find(plan.policy.rules.get(self.disclosure, ()), "mask") is not None
        if (places and masked) or plan.between_neighbours:
            _plan_pairs(plan, epochs(plan.rounds, plan.policy), places)


def total_sizes(plan: PlanBuilder) -> dict[str, int]:
    """Return the sizes of a total that a client computes the model from, and of its check."""
    chain, length = plan.policy.chain(Disclosure.SUM), _checked(plan)
    layout = sum_layout(plan.models.totals, chain, plan.dims)
    noise, counted = _noise(plan), _counted(plan)
    margin = max(added.margin if added else 0 for added in (noise, counted))
    ring = _ring(plan, layout, margin, checked=True)
    one = container(ring.modulus).itemsize
    return {"model_total": length * width_of(ring), "model_check": ring.words * one}


def _readers(plan: PlanBuilder, chain: tuple[Guard, ...]) -> dict[str, str]:
    """Return who learns what of a sum whose total all clients are handed."""
    names = ", ".join(kind.__name__ for kind in plan.models.totals)
    known = learns(Disclosure.SUM, chain, up=True)
    return {**known, "other clients": f"the cohort's total of {names}, to compute the model"}


def _checked(plan: PlanBuilder) -> int:
    """Return how many integers of the sum that moves the model have a check."""
    chain = plan.policy.chain(Disclosure.SUM)
    return sum_layout(plan.models.totals, chain, plan.dims).length


def _scheme(plan: PlanBuilder) -> Scheme:
    if plan.scheme is None:
        raise ValueError("an encrypting chain needs an encryption scheme")
    return plan.scheme


def _noise(plan: PlanBuilder) -> NoisePlan | None:
    """Return the noise of every sum of the run: each spends its share of one target."""
    chain = plan.policy.rules.get(Disclosure.SUM, ())
    if not noise_in(chain):
        return None
    if guard_of(chain, OwnNoise):
        sent = of_exchanges(plan.exchanges, plan.dims, plan.rounds)
        return own_noises(plan.policy, sent, len(plan.clients)).get(Disclosure.SUM)
    found = []
    for exchange in plan.exchanges:
        kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
        if kinds:
            found.append((sum_layout(kinds, chain, plan.dims), exchange.times(plan.rounds)))
    read = any(exchange.addressed for exchange in plan.exchanges)
    return noise_for(found, plan.policy, len(plan.clients), read=read)


def _counted(plan: PlanBuilder) -> CountPlan | None:
    """Return the noise of every count of single records: all of the run share one target."""
    guard = guard_of(plan.policy.rules.get(Disclosure.SUM, ()), RecordNoise)
    if guard is None:
        return None
    sent = []
    for exchange in plan.exchanges:
        kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
        said = [message_plan(kind, plan.dims) for kind in kinds]
        sent.append((counted_of(said), exchange.times(plan.rounds)))
    return plan_counted(guard, tuple(sent), len(plan.clients))


def _ring(plan: PlanBuilder, layout: SumLayout, margin: int, *, checked: bool) -> Ring:
    chain = plan.policy.chain(Disclosure.SUM)
    try:
        return sum_ring(layout, chain, len(plan.clients), plan.scheme, margin, checked=checked)
    except OutOfRange as error:
        raise PolicyError(
            "The sum of this cohort does not fit into the encryption's plaintext.",
            why=str(error),
            fix="use fewer bits in 'quantise', fewer clients, or another scheme",
        ) from error


PLAN = SumPlanning(Disclosure.SUM)
