"""O4 in the sessions: nothing is opened that a witness did not compute again from signed uploads.

Every attack here is an aggregator's. Each has its control: without witnesses the very same attack
has a single upload opened.
"""

from __future__ import annotations

import numpy as np
import pytest

from crypto.homomorphic.he import SecretKey
from protocols.disclosures._evaluated import aggregator as results
from protocols.disclosures._evaluated import disclosure as protect
from protocols.disclosures._evaluated import parties as witness
from protocols.disclosures._evaluated.ciphers import cosine_ring, weigh_ring
from protocols.disclosures._evaluated.disclosure import UNWITNESSED
from protocols.disclosures._evaluated.uploads import row_info
from protocols.disclosures.names import Disclosure
from protocols.disclosures.similarity import aggregator as comparing
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR
from protocols.disclosures.weighted_sum import aggregator as weighing
from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError, Refused, RoundLost
from protocols.keys.pairs import open_box
from protocols.rounds import Ask, Cohort
from protocols.sessions.part import State
from protocols.wire.codec import decode
from protocols.wire.control import Examine, RowBoxes
from protocols.wire.envelope import Envelope
from tests.protocols.pub import (
    TWICE,
    Go,
    Model,
    changed,
    even,
    hand_out,
    integers,
    packing,
    pub,
    sent,
    swapped,
    trained,
    unwatched,
)
from tests.protocols.toys import FullDisk

VICTIM = 2  # its model is what the aggregator is after


def only_the_victim(key, uploads, table, seeds, policy):
    """Return the victim's upload alone as everybody's row, under the blinds of an honest run."""
    ring = weigh_ring()
    rows = []
    for seed in dict.fromkeys(seeds):  # one for each row
        words = ring.parse(uploads[VICTIM])
        blind = ring.blind(seed, len(words) * ring.degree).reshape(len(words), 1, -1)
        parts = zip(words, blind, strict=True)
        rows.append(b"".join(ring.to_wire(ring.shifted(w[None], b)) for w, b in parts))
    return rows


def signs_anything(session, incoming):
    """Take whatever a witness signed, as an aggregator that lies does."""
    (message,) = session._engine.read(incoming, (results.Witnessed,))
    session._evaluated.signatures[incoming.header.sender] = message.signature


def opened_for(world, client: str) -> np.ndarray:
    """Return what the accomplice reads in its box: the integers under its blind."""
    (answer,) = sent(world, "receive.opened.WEIGHTED_SUM")
    item = world.plan.item("receive.opened.WEIGHTED_SUM")
    header = answer.header.encode(without_body=True)
    body = world.identities["aggregator"].opening.open(header, bytes(answer.body))
    (boxes,) = decode((RowBoxes,), body, world.context("aggregator").dims(item))
    size, place = len(boxes.boxes) // len(world.names), world.names.index(client)
    box = boxes.boxes[place * size : (place + 1) * size]
    info = row_info(world.run, answer.header.exchange, "receive", client)
    me, authority = world.identities[client], world.roster.party("key-authority")
    opened = np.frombuffer(open_box(box, me, authority, info), dtype="<u8")
    down = next(e for e in sent(world, "receive.down") if e.header.recipient == client)
    header = down.header.encode(without_body=True)
    seed = me.opening.open(header, bytes(down.body))[-32:]
    ring = weigh_ring()
    return ring.subtract(opened, ring.blind(seed, opened.size))


def victims_integers(world) -> np.ndarray:
    """Return the levels that the victim's upload stands for."""
    secret = world.authority.keys.held[Disclosure.WEIGHTED_SUM]
    upload = world.aggregator.rows._uploads.uploads[world.names[VICTIM]].body
    return integers(world, weigh_ring().decrypt(secret, upload))


def test_o4_control_without_a_witness_a_single_upload_is_opened():
    world = pub(unwatched())
    assert UNWITNESSED in world.plan.warnings and not world.witnesses
    reply = trained(world)
    wanted = victims_integers(world)
    with swapped(weighing, "rows", only_the_victim):
        request = world.aggregator.ask(_second(world, reply), 1)
    for answer in world.deliver(*request):
        world.aggregator.receive(answer.data)
    world.wire += [delivery.data for delivery in world.aggregator.advance()]
    assert np.array_equal(integers(world, opened_for(world, "client-5")), wanted)


def _second(world, reply):
    return Ask(Cohort(world.names), reply.weighted(Model, even(len(world.names))))


def test_o4_a_single_upload_is_not_opened_with_a_witness():
    world = pub()
    assert not {ACTIVE_AGGREGATOR, UNWITNESSED} & set(world.plan.warnings)
    reply = trained(world)
    with (
        swapped(weighing, "rows", only_the_victim),
        swapped(results.Results, "_take_witnessed", signs_anything),
        pytest.raises(Refused, match="key-authority refused"),
    ):
        world.pump(world.aggregator.ask(_second(world, reply), 1))
    assert "O4" in world.authority.last_error.what
    opened = [e for e in world.entries("key-authority") if e["kind"] == "open"]
    assert [e["disclosure"] for e in opened] == ["SIMILARITY"]
    assert world.authority.keys.held == {}  # the run is over


def test_o4_an_honest_aggregator_notices_a_witness_that_signs_something_else():
    world = pub()
    with (
        swapped(witness, "products", lambda *_: [b""]),
        pytest.raises(BadEnvelope, match="signed another result"),
    ):
        trained(world)
    assert "open" not in world.kinds("key-authority")


def test_o4_products_of_other_ciphertexts_are_not_opened():
    """A product of the victim's upload and one that the aggregator made itself."""

    def crafted(key, uploads, secret, label):
        ring = cosine_ring()
        own = ring.operand(ring.upload(key, np.eye(1, 5).ravel()))
        known = ring.operand(list(uploads.values())[VICTIM])
        return [ring.product(key, known, own, bytes([n]) * 32) for n in range(21)]

    bare = pub(unwatched())
    with swapped(comparing, "products", crafted), pytest.raises(Refused):
        trained(bare)  # opened, and its self-products are not 1
    assert [e["disclosure"] for e in bare.entries("key-authority") if e["kind"] == "open"]
    world = pub()
    with (
        swapped(comparing, "products", crafted),
        swapped(results.Results, "_take_witnessed", signs_anything),
        pytest.raises(Refused),
    ):
        trained(world)
    assert "open" not in world.kinds("key-authority")


@pytest.mark.parametrize("trick", ["another's ciphertext", "unsigned", "two in one", "headers"])
def test_o4_a_witness_looks_at_signed_uploads_only(trick):
    """What is shown in a client's name is what that client signed, for this very Ask."""
    world = pub()
    real = Examine

    def lying(**facts):
        size = len(facts["uploads"]) // 6
        cut = [facts["uploads"][i * size : (i + 1) * size] for i in range(6)]
        if trick == "another's ciphertext":
            cut[0] = cut[VICTIM]
        elif trick == "unsigned":
            ring, key = cosine_ring(), world.aggregator.context.keys[Disclosure.SIMILARITY]
            cut[0] = ring.upload(key, np.ones(5))
        elif trick == "two in one":
            facts["headers"] = facts["headers"][: len(facts["headers"]) // 2].ljust(
                len(facts["headers"]), b"\0"
            )
        else:
            facts["members"] = world.roster.mask(world.names[:5])
        return real(**{**facts, "uploads": b"".join(cut)})

    with swapped(results, "Examine", lying), pytest.raises(Refused, match="witness-1 refused"):
        trained(world)
    assert "witness" not in world.kinds("witness-1")
    assert "open" not in world.kinds("key-authority")


def test_o4_uploads_are_weighed_once():
    """A second table over the same uploads would give every receiver a second equation."""
    for policy, refuser in (("pilot", "witness-1"), (unwatched(), "key-authority")):
        world = pub(policy, form=TWICE)
        reply = trained(world)
        kept = world.aggregator.rows._uploads
        hand_out(world, reply.weighted(Model, even(6)))
        assert world.aggregator.rows._uploads is None
        world.aggregator.rows._uploads = kept  # an aggregator that kept what it should have dropped
        with pytest.raises(Refused, match=f"{refuser} refused"):
            hand_out(world, reply.weighted(Model, np.eye(6) * 0.4 + 0.1))
        assert len(world.sites["client-1"].got) == 1


def test_o9_an_aggregator_that_dropped_the_uploads_cannot_weigh_them_again():
    world = pub(form=TWICE)
    reply = trained(world)
    hand_out(world, reply.weighted(Model, even(6)))
    with pytest.raises(LocalProtocolError, match="weighed before"):
        hand_out(world, reply.weighted(Model, even(6)))


def test_o9_uploads_are_dropped_in_the_next_round_whether_or_not_they_were_weighed():
    world = pub()
    reply = trained(world)
    assert world.aggregator.rows._uploads is not None
    world.ask(2, given=Go(step=2), back=world.form.exchanges[0].back)
    assert world.aggregator.rows._uploads is None
    world = pub()
    reply = trained(world)
    trained(world, 2)
    assert world.aggregator.rows._uploads.where.round == 2
    with pytest.raises(LocalProtocolError, match="weighed before"):
        hand_out(world, reply.weighted(Model, even(6)), 2)


@pytest.mark.parametrize("disclosure", ["SIMILARITY", "WEIGHTED_SUM"])
def test_o4_what_is_opened_stands_in_the_ledger_first(disclosure, monkeypatch):
    disk, calls = FullDisk(100), []
    world = pub(stores={"key-authority": disk})
    ring = cosine_ring() if disclosure == "SIMILARITY" else weigh_ring()
    verb = "cosine" if disclosure == "SIMILARITY" else "decrypt"
    if disclosure == "WEIGHTED_SUM":
        reply = trained(world)
    disk.left = 0
    monkeypatch.setattr(type(ring), verb, lambda *a: calls.append(a))
    with pytest.raises(LedgerError):
        trained(world) if disclosure == "SIMILARITY" else hand_out(
            world, reply.weighted(Model, even(6))
        )
    assert calls == [] and world.authority.state is State.DEAD


def test_o4_fewer_witnesses_than_the_policy_asks_for_open_nothing():
    world = pub(changed(witnesses=2))
    world.lost = lambda item, sender, to: sender == "witness-2" and "witnessed" in item
    with pytest.raises(RoundLost, match="did not witness"):
        trained(world)
    assert "open" not in world.kinds("key-authority")


def test_o4_one_witness_does_not_stand_for_two():
    world = pub(changed(witnesses=2))
    world.lost = lambda item, sender, to: sender == "witness-2" and "witnessed" in item

    def twice(session, incoming):
        signs_anything(session, incoming)
        session._evaluated.signatures["witness-2"] = session._evaluated.signatures["witness-1"]

    with (
        swapped(results.Results, "_take_witnessed", twice),
        pytest.raises(Refused, match="key-authority refused"),
    ):
        trained(world)


def test_o4_what_witness_and_authority_wrote_down_is_the_same():
    world = pub()
    hand_out(world, trained(world).weighted(Model, even(6)))
    facts = [
        [
            {
                k: e[k]
                for k in ("digest", "disclosure", "exchange", "uploads", "cohort", "survivors")
            }
            for e in world.entries(name)
            if e["kind"] == kind
        ]
        for name, kind in (("witness-1", "witness"), ("key-authority", "open"))
    ]
    assert facts[0] == facts[1] and len(facts[0]) == 2


def test_a_witness_holds_no_secret_key_and_learns_no_value():
    world = pub()
    hand_out(world, trained(world).weighted(Model, even(6)))
    witness_session = world.witnesses["witness-1"]

    def holds(thing, depth=5):
        if isinstance(thing, SecretKey):
            return True
        if isinstance(thing, dict):
            return any(holds(v, depth - 1) for v in thing.values())
        return (
            depth > 0
            and hasattr(thing, "__dict__")
            and any(holds(v, depth - 1) for v in vars(thing).values())
        )

    assert not holds(witness_session) and not holds(world.aggregator) and holds(world.authority)
    kinds = {Envelope.decode(d).header.item for d in world.wire if _to(d) == "witness-1"}
    assert kinds == {"train.witness.SIMILARITY", "receive.witness.WEIGHTED_SUM"}


def _to(data: bytes) -> str:
    return Envelope.decode(data).header.recipient


def test_a_client_s_upload_cannot_be_shown_in_another_s_name():
    """A client that sends another's ciphertext needs it first; the aggregator refuses its own."""
    world = pub()
    deliveries = world.ask(1, given=Go(step=1), back=world.form.exchanges[0].back)
    answers = [world.deliver(p) for p in deliveries]
    incoming = Envelope.decode(answers[0][1].data)
    assert incoming.header.item == "train.up.SIMILARITY"
    header = incoming.header.encode(without_body=True)
    inner = world.identities["aggregator"].opening.open(header, bytes(incoming.body))
    where = world.aggregator.asked._collection.where
    forged = world.forge("client-2", "train.up.SIMILARITY", "aggregator", inner, where)
    with pytest.raises(BadEnvelope, match="did not sign the ciphertexts"):
        world.aggregator.receive(forged)


def test_the_limit_a_crafted_upload_brings_the_key_out(monkeypatch):
    """A client and the aggregator together: what LIMITATIONS.md says a witness does not prevent."""
    world, ring = pub(), weigh_ring()
    real = protect.enciphered

    def crafted(message, shape, *facts):
        body, clipped = real(message, shape, *facts)
        if isinstance(message, Model) and message.bias == world.sites["client-1"].index / 4:
            words = np.zeros((1, 2, ring.degree), dtype=np.uint64)
            words[0, 1, 0] = ring.prime // ring.plain_modulus  # opens as the secret key
            return ring.to_wire(words), clipped
        return body, clipped

    monkeypatch.setattr(protect, "enciphered", crafted)
    mixture = trained(world).weighted(Model, even(6))
    with pytest.raises(Refused, match="client-1 refused"):  # honest code sees the padding
        hand_out(world, mixture)
    found = opened_for(world, "client-1").astype(np.int64)
    found[found > ring.plain_modulus // 2] -= ring.plain_modulus
    key = found[8:] // mixture._table[0, 0]
    assert set(key.tolist()) == {-1, 0, 1}  # all but the eight coefficients that hold values


def test_the_limit_a_crafted_upload_without_unused_places_is_noticed_by_nobody(monkeypatch):
    """The same in the first of two ciphertexts: nobody refuses, and the run goes on."""
    world, ring = pub(d=9000), weigh_ring()
    for site in world.sites.values():
        site.model = np.clip(site.model, -0.05, 0.05)
    chosen, length = packing(world)
    assert chosen.coefficients(length) % ring.degree  # the last ciphertext has unused places
    real, middle, factor = protect.enciphered, 2**14 - 1, 2**13
    levels = np.full((1, ring.degree), (middle << chosen.slot_bits) + middle, dtype=np.uint64)

    def crafted(message, shape, *facts):
        body, clipped = real(message, shape, *facts)
        if isinstance(message, Model) and message.bias == world.sites["client-1"].index / 4:
            words = np.zeros((1, 2, ring.degree), dtype=np.uint64)
            words[0, 1, 0] = factor * (ring.prime // ring.plain_modulus)
            words[0, 0] = ring.lifted(levels)[0]
            return ring.to_wire(words) + body[ring.ciphertext_bytes :], clipped
        return body, clipped

    monkeypatch.setattr(protect, "enciphered", crafted)
    mixture = trained(world).weighted(Model, even(6))
    hand_out(world, mixture)
    assert all(len(site.got) == 1 for site in world.sites.values())
    low = opened_for(world, "client-1")[: ring.degree] & np.uint64((1 << chosen.slot_bits) - 1)
    share = int(mixture._table[0, 0]) * factor
    found = np.rint((low.astype(float) - 128 * middle) / share)
    secret = world.authority.keys.held[Disclosure.WEIGHTED_SUM]
    one = np.zeros((1, 2, ring.degree), dtype=np.uint64)
    one[0, 1, 0] = ring.prime // ring.plain_modulus
    key = ring.decrypt(secret, ring.to_wire(one)).astype(np.int64)
    key[key > ring.plain_modulus // 2] -= ring.plain_modulus
    assert np.array_equal(found, key)
