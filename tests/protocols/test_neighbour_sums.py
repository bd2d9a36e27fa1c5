"""Sums over neighbours: one client reads each, whole or not at all, and nobody else reads any."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from crypto.homomorphic.he import scheme
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum import disclosure as protect
from protocols.disclosures.neighbour_sum.disclosure import Neighbourly
from protocols.disclosures.neighbour_sum.layout import NeighbourGrid, box_info, grid_of
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR, masked
from protocols.errors import BadEnvelope, LocalProtocolError, NotAdmitted, Refused
from protocols.forms import Exchange
from protocols.keys import pairs
from protocols.keys.pairs import open_box
from protocols.messages import SumMessage, Vector, count, real
from protocols.neighbourhoods import Topology
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.envelope import Envelope
from tests.protocols.killed import Killed
from tests.protocols.test_o5_neighbourhoods import HUB
from tests.protocols.toys import changed_policy, names_of, toy_plan
from tests.protocols.unveiling import looks_uniform
from tests.protocols.wire import World
from tests.toys.neighbours import Go, Mine, neighbours

D, CLIENTS = 3000, 6
UP = "give.up.NEIGHBOUR_SUM"
STEP = 8.0 / (2**20 - 2)
FORM = neighbours(d=D, topology=Topology("regular", 4)).forms[0]
LOPSIDED = Topology("edges", edges=((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5), (5, 1)))
"""Of clients with two, three and four neighbours; some of their sums rest on two."""


def world(kind: type[World] = World, topology: Topology | None = None, **facts: Any) -> World:
    form, policy = FORM, facts.pop("policy", "masks")
    if topology is not None:
        form = neighbours(d=D, topology=topology).forms[0]
        policy = changed_policy("masks", topology_floor="unsafe")
    made = kind(form, policy, clients=CLIENTS, d=D, **facts)
    rng = np.random.default_rng(3)
    for site in made.sites.values():
        site.data = SimpleNamespace(vector=rng.normal(0, 0.3, D).astype(np.float32), got=[])
    made.start()
    return made


def give(made: World, round: int = 1) -> Neighbourly:
    found: Neighbourly = made.round(round, given=Go(step=round), back=Mine).read(Mine)
    return found


def take(made: World, sealed: Any, round: int = 1, members: Any = None) -> None:
    made.round(round, given=sealed, back=(), members=members)


def vector(made: World, name: str) -> np.ndarray:
    return np.asarray(made.sites[name].data.vector, dtype=np.float64)


def wanted(made: World, name: str) -> np.ndarray:
    topology = made.plan.topology
    assert topology is not None
    shares = {**topology.shares[name], name: topology.own(name)}
    return sum(share * vector(made, n) for n, share in shares.items()) / topology.whole


def grid(made: World) -> NeighbourGrid:
    chain = made.policy.chain(Disclosure.NEIGHBOUR_SUM)
    return grid_of(made.plan.topology, (Mine,), chain, made.plan.dims)


@pytest.fixture
def made() -> World:
    return world()


@pytest.mark.parametrize("topology", [None, LOPSIDED, Topology("complete")])
def test_each_client_gets_its_own_weighted_mean(topology: Topology | None) -> None:
    made = world(topology=topology)
    for round in (1, 2):
        take(made, give(made, round), round)
    for name in made.names:
        mixtures = made.sites[name].data.got
        assert len(mixtures) == 2
        for found in mixtures:
            assert np.max(np.abs(found - wanted(made, name))) <= STEP
        assert np.max(np.abs(found - vector(made, name))) > 0.1  # it is not its own


def test_in_clear_the_same_integers_are_mixed() -> None:
    found = []
    for policy in ("masks", "unsafe_plaintext"):
        made = world(policy=policy)
        take(made, give(made))
        found.append([made.sites[n].data.got[0] for n in made.names])
    assert np.array_equal(found[0], found[1])


def test_in_clear_the_plan_promises_nothing_of_sums_or_of_the_coordinator() -> None:
    clear, masked = world(policy="unsafe_plaintext").plan, world().plan
    handed = [plan.item("take.down").learns["client"] for plan in (clear, masked)]
    assert handed[0].startswith("EVERYTHING") and handed[1].startswith("the weighted sum")
    said = ["".join(plan.warnings) for plan in (clear, masked)]
    for text in ("only the addressed clients open", "other clients or more", "within a round"):
        assert [text in warnings for warnings in said] == [False, True]
    assert "leaves in clear" in said[0]


# --- somebody is missing ------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["not asked", "answer lost"])
def test_a_sum_that_lacks_a_neighbour_is_not_opened(made: World, when: str) -> None:
    """Of client-2's neighbours each goes on with its own; client-5, across, is none of them."""
    members = None
    if when == "not asked":
        members = tuple(n for n in made.names if n != "client-2")
        reply = made.round(1, given=Go(step=1), back=Mine, members=members)
    else:
        made.lost = lambda item, sender, to: sender == "client-2"
        reply = made.round(1, given=Go(step=1), back=Mine)
    take(made, reply.read(Mine), members=members)
    for name in set(made.names) - {"client-2"}:
        (found,) = made.sites[name].data.got
        whole = name == "client-5"
        assert np.max(np.abs(found - wanted(made, name))) <= STEP if whole else True
        assert whole or np.array_equal(found, vector(made, name))
        (entry,) = (e for e in made.entries(name) if e["kind"] == "neighbourhood")
        # Who is there sends nothing either, once it is told that one of them is not asked.
        everybody = when == "not asked" and not whole
        assert ("client-2" in entry["absent"]) is not whole
        assert len(entry["absent"]) == (4 if everybody else 0 if whole else 1)
        assert len(entry["commitments"]) == (4 if whole else 0)
    assert made.sites["client-2"].data.got == []


def test_one_box_of_zeros_keeps_its_receiver_from_mixing_and_nobody_else() -> None:
    """A neighbour or the coordinator can do so in every round; `audit verify` finds the zeros."""
    made = world(topology=Topology("complete"))
    sealed = give(made)
    boxes = boxes_of(made, sealed, "client-1")
    boxes["client-6"] = bytes(len(boxes["client-6"]))
    take(made, Neighbourly(Mine, {**sealed._deliveries, "client-1": b"".join(boxes.values())}))
    for name in made.names:
        (found,) = made.sites[name].data.got
        own = np.array_equal(found, vector(made, name))
        assert own is (name == "client-1")


def test_towards_a_sum_that_lacks_somebody_nothing_is_sent(made: World) -> None:
    members = tuple(n for n in made.names if n != "client-2")
    sealed = made.round(1, given=Go(step=1), back=Mine, members=members).read(Mine)
    for name, boxes in sealed._deliveries.items():
        assert any(boxes) is (name == "client-5")
    # Control: with everybody there, all boxes are full.
    assert all(any(boxes) for boxes in give(made, 2)._deliveries.values())


class Whole(SumMessage):
    """The same vector, for everybody's total."""

    weights: Vector = real("d", unit="weight", meaning="the vector", wire="f4")


class Rows(SumMessage):
    """A count, which no model is."""

    rows: int = count(unit="record", meaning="records")


@pytest.mark.parametrize("apart", [True, False])
def test_o5_no_total_of_models_is_asked_beside_sums_over_neighbours(apart: bool) -> None:
    """On `regular` 4 of six: the total, less one's own and one's sum, is the one's across."""
    policy, algorithm = PrivacyPolicy.preset("masks"), neighbours(d=D, topology=FORM.topology)
    for kind, admitted in ((Whole, False), (Rows, True)):
        first, *rest = FORM.exchanges
        if apart:
            more = Exchange("whole", (Go,), (kind,), first.answer)
            found = replace(FORM, exchanges=(first, *rest, more))
        else:
            both = replace(first, back=(*first.back, kind))
            found = replace(FORM, exchanges=(both, *rest))
        asked = replace(algorithm, forms=(found,))
        if admitted:
            assert policy.admit(asked) is found
            continue
        with pytest.raises(NotAdmitted) as refused:
            policy.admit(asked)
        assert "Whole holds real numbers beside" in str(refused.value)


def test_o4_masks_between_neighbours_are_no_masks_of_sums() -> None:
    """A run whose sums are encrypted and not masked agrees on pairs' secrets for neighbours."""
    more = Exchange("rows", (Go,), (Rows,), FORM.exchanges[0].answer)
    form, known = replace(FORM, exchanges=(*FORM.exchanges, more)), []
    rules = changed_policy("he").document()["rules"]
    bare = [guard for guard in rules["SUM"] if guard["guard"] != "mask"]
    for chain in (rules["SUM"], bare):
        policy = changed_policy("he", rules={**rules, "SUM": chain})
        plan = toy_plan(form, policy, clients=names_of(6), rounds=1, d=D, bfv=scheme())
        assert plan.all_of(Service.PAIRS, Step.CALL)
        known.append((ACTIVE_AGGREGATOR in plan.warnings, masked(plan.items)))
    assert known == [(False, True), (True, False)]


# --- who can read -------------------------------------------------------------------------------


def boxes_of(made: World, sealed: Any, receiver: str) -> dict[str, bytes]:
    size, topology = grid(made).box_bytes, made.plan.topology
    assert topology is not None
    cut = sealed._deliveries[receiver]
    senders = topology.neighbours(receiver)
    return {s: cut[at * size : (at + 1) * size] for at, s in enumerate(senders)}


def contents(made: World, sealed: Any, receiver: str, reader: str = "") -> dict[str, np.ndarray]:
    me = made.identities[reader or receiver]
    found = {}
    for sender, box in boxes_of(made, sealed, receiver).items():
        info = box_info(made.run, 1, UP, sender, receiver)
        opened = open_box(box, me, made.roster.party(sender), info)
        found[sender] = grid(made).words(opened)
    return found


def added(words: list[np.ndarray]) -> np.ndarray:
    found: np.ndarray = np.add.reduce(words, dtype=words[0].dtype)
    return found


def test_the_coordinator_opens_nothing_and_a_receiver_reads_the_sum_alone(made: World) -> None:
    sealed, modulus = give(made), grid(made).ring.modulus
    for reader in ("aggregator", "client-2", "client-4"):
        with pytest.raises(BadEnvelope):
            contents(made, sealed, "client-1", reader)
    words = contents(made, sealed, "client-1")
    for some in (list(words)[:1], list(words)[:2], list(words)[1:]):
        part = added([words[sender] for sender in some])
        assert looks_uniform(part, modulus)
    whole = added(list(words.values()))
    assert not looks_uniform(whole, modulus)  # the control: nothing is missing
    assert whole.max() < 5 * 2**20


def test_control_without_masks_a_receiver_reads_each_neighbour() -> None:
    with patch.object(protect, "_masked", lambda residues, *_: residues):
        made = world()
        sealed = give(made)
    words = contents(made, sealed, "client-1")["client-2"]
    assert not looks_uniform(words, grid(made).ring.modulus)
    assert np.max(np.abs((words - (2**19 - 1.0)) * STEP - vector(made, "client-2"))) < 1e-4


def test_what_travels_is_of_one_size_and_holds_no_vector(made: World) -> None:
    sealed = give(made)
    take(made, sealed)
    wire = b"".join(made.wire)
    for name in made.names:
        assert made.sites[name].data.vector[:4].tobytes() not in wire
    ups = [e for e in map(Envelope.decode, made.wire) if e.header.item == UP]
    assert len({len(e.body) for e in ups}) == 1


def test_o5_whole_numbers_tell_a_receiver_one_neighbour_s_remainders() -> None:
    """What the floor refuses in the topology of a hub: each sum rests on three, and yet."""
    made = world(topology=HUB)
    topology = made.plan.topology
    assert topology is not None and topology.floor == "unsafe"
    with patch.object(protect, "commitment", wraps=protect.commitment) as known:
        sealed = give(made)
    integers = known.call_args_list[made.names.index("client-1")].args[1]  # only it knows them
    row = topology.shares["client-2"]
    common, neighbour = math.gcd(*row.values()), "client-1"
    assert {n: share // common for n, share in row.items()} == {
        **dict.fromkeys(("client-3", "client-4", "client-5"), 6),
        neighbour: 5,
    }
    total = added(list(contents(made, sealed, "client-2").values())).astype(np.int64) // common
    assert np.array_equal(total * pow(5, -1, 6) % 6, integers % 6)


# --- masks are used once ------------------------------------------------------------------------


Keys = Counter[bytes]


@pytest.fixture
def keys() -> Iterator[Keys]:
    """Count every key from which a mask is made."""
    used: Keys = Counter()
    make = protect._masked

    def masked(residues: Any, modulus: int, plus: list[bytes], minus: list[bytes]) -> Any:
        used.update([*plus, *minus])
        return make(residues, modulus, plus, minus)

    with patch.object(protect, "_masked", masked):
        yield used


PAIRS = CLIENTS * 6  # four neighbours of each receiver, so six pairs


@pytest.mark.parametrize("kind", [World, Killed])
def test_o6_masks_are_never_used_again_over_receivers_rounds_or_a_kill(
    kind: type[World], keys: Keys
) -> None:
    """Each key is made by its two clients once: for one receiver, in one round."""
    made = world(kind)
    if isinstance(made, Killed):
        made.keep()
    for round in (1, 2):
        for site in made.sites.values():
            site.memory = {}
        give(made, round)
    assert len(keys) == 2 * PAIRS and set(keys.values()) == {2}
    assert getattr(made, "kills", 1) > 0


def test_o6_control_masks_that_are_not_bound_to_a_receiver_come_again(keys: Keys) -> None:
    make = pairs.pair_key
    with patch.object(pairs, "pair_key", lambda secret, label: make(secret, label[:-1])):
        give(world())
    assert max(keys.values()) > 2


def test_o6_a_second_vector_in_one_round_is_refused_whatever_the_gateway_remembers(
    made: World,
) -> None:
    message, where = Mine(weights=np.zeros(D, np.float32)), made.where()
    made.twin("client-1").release(UP, [message], "aggregator", where)
    for again in (where, made.where(exchange=2)):
        with pytest.raises(LocalProtocolError, match="slot"):
            made.twin("client-1").release(UP, [message], "aggregator", again)
    made.twin("client-1").release(UP, [message], "aggregator", made.where(round=2, exchange=3))


def test_no_seed_of_a_neighbours_slot_is_shared_or_locked(made: World) -> None:
    """So nobody rebuilds a mask: what the others and the coordinator hold is of other slots."""
    held = made.clients["client-1"].context.pairs
    assert held is not None and len(held.alone._secrets) == 4 and held.slots == ()
    assert not held._b and not held._e and not held._held
    assert made.plan.item("pair.rows").dims == {"pair_rows": 0}


# --- a coordinator that lies --------------------------------------------------------------------


def tampered(made: World, sealed: Any, how: str) -> Neighbourly:
    boxes = boxes_of(made, sealed, "client-1")
    first, second, *rest = boxes
    if how == "two senders swapped":
        boxes[first], boxes[second] = boxes[second], boxes[first]
    elif how == "a flipped bit":
        boxes[first] = boxes[first][:-1] + bytes([boxes[first][-1] ^ 1])
    elif how == "another client's box":
        boxes[rest[0]] = next(iter(boxes_of(made, sealed, "client-2").values()))
    elif how == "the box of an earlier round":
        take(made, sealed)
        sealed = give(made, 2)
        boxes = {**boxes_of(made, sealed, "client-1"), first: boxes[first]}
    return Neighbourly(Mine, {**sealed._deliveries, "client-1": b"".join(boxes.values())})


@pytest.mark.parametrize(
    ("how", "round"),
    [
        ("two senders swapped", 1),
        ("a flipped bit", 1),
        ("another client's box", 1),
        ("the box of an earlier round", 2),
    ],
)
def test_a_coordinator_that_hands_on_other_boxes_is_found_out(
    made: World, how: str, round: int
) -> None:
    sealed = tampered(made, give(made), how)
    before = len(made.sites["client-1"].data.got)
    with pytest.raises(Refused) as refused:
        take(made, sealed, round)
    assert refused.value.sender == "client-1"
    assert len(made.sites["client-1"].data.got) == before


def test_boxes_are_opened_once_and_only_after_giving(made: World) -> None:
    sealed = give(made)
    take(made, sealed)
    with pytest.raises((Refused, LocalProtocolError)):
        take(made, sealed, 2)
    assert all(len(site.data.got) == 1 for site in made.sites.values())


def test_o8_masks_of_clients_that_were_told_other_things_do_not_cancel(made: World) -> None:
    """A coordinator that tells one neighbour another cohort: the sum is refused, not opened."""
    label = made.clients["client-2"].context.mask_label
    made.clients["client-2"].context.mask_label = lambda *facts: (*label(*facts), "another")  # type: ignore[method-assign]
    sealed = give(made)
    with pytest.raises(Refused):
        take(made, sealed)
    assert all(site.data.got == [] for name, site in made.sites.items() if name == "client-1")
