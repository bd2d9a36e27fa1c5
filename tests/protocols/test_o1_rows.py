"""Rows of weighted sums, opened: the authority learns nothing (O1), a row opens for one alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crypto.errors import InvalidSeal
from crypto.homomorphic.weighted import WeightedBfv, flatten
from protocols.disclosures._evaluated import aggregator as results
from protocols.disclosures._evaluated import parties as revealing
from protocols.disclosures._evaluated.uploads import row_info
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum import aggregator as weighing
from protocols.disclosures.weighted_sum.disclosure import ROWS
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    NotAdmitted,
    Refused,
    RoundLost,
    WrongStage,
)
from protocols.forms import Exchange, Form
from protocols.messages import WeightedSumMessage, count
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope, read_signed_header
from tests.protocols.pub import (
    GRID,
    PUB,
    RING,
    Go,
    Model,
    changed,
    even,
    hand_out,
    models,
    packing,
    pub,
    received,
    sent,
    swapped,
    trained,
)
from tests.protocols.rows_tools import softmax
from tests.protocols.toys import toy_algorithm
from tests.protocols.unveiling import looks_uniform


def rows_seen(world) -> list[bytes]:
    """Return the rows that the authority was shown."""
    (request,) = sent(world, "receive.open.WEIGHTED_SUM")
    header = request.header.encode(without_body=True)
    body = world.identities["key-authority"].opening.open(header, bytes(request.body))
    item = world.plan.item("receive.open.WEIGHTED_SUM")
    start = 2 * world.plan.dims["roster_mask"] + item.dims["upload_headers"]
    size = item.dims["results"] // len(world.names)
    return [body[start + i * size : start + (i + 1) * size] for i in range(len(world.names))]


def authoritys_view(world) -> np.ndarray:
    """Return all that its key gives of what it was shown: (receivers, coefficients)."""
    secret = world.authority.keys.held[Disclosure.WEIGHTED_SUM]
    return np.stack([RING.decrypt(secret, row) for row in rows_seen(world)])


def solved(world, view: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Solve K equations for K models, knowing every weight: (K, values) in the models' unit."""
    chosen, length = packing(world)
    used = chosen.coefficients(length)
    mask, slots = (1 << chosen.slot_bits) - 1, []
    for row in view[:, :used].astype(object):
        slots.append([int(c) >> (k * chosen.slot_bits) & mask for c in row for k in range(2)])
    levels = np.linalg.solve(table.astype(float), np.array(slots, dtype=float)[:, :length])
    return (levels - (2**14 - 1)) * GRID


def test_o1_the_authoritys_whole_view_does_not_solve_for_the_models():
    world = pub(d=30)
    mixture = trained(world).weighted(Model, even(6) + np.eye(6) * 0.3 - 0.05)
    hand_out(world, mixture)
    view = authoritys_view(world)
    assert looks_uniform(view.ravel(), RING.plain_modulus)
    assert np.abs(solved(world, view, mixture._table) - models(world)).max() > 1


def test_o1_control_without_the_blind_it_solves_for_every_model(monkeypatch):
    def none(ring, seed, count):
        return np.zeros(count, dtype=np.uint64)

    monkeypatch.setattr(WeightedBfv, "blind", none)
    world = pub(d=30)
    mixture = trained(world).weighted(Model, even(6) + np.eye(6) * 0.3 - 0.05)
    hand_out(world, mixture)
    view = authoritys_view(world)
    assert not looks_uniform(view.ravel(), RING.plain_modulus)
    assert np.abs(solved(world, view, mixture._table) - models(world)).max() < 2 * GRID


def test_o1_a_row_opens_for_its_receiver_and_for_nobody_else():
    world = pub()
    hand_out(world, trained(world).weighted(Model, even(6)))
    for envelope in sent(world, "receive.down"):
        to, header = envelope.header.recipient, envelope.header.encode(without_body=True)
        body = world.identities[to].opening.open(header, bytes(envelope.body))
        box = body[-32 - world.plan.item("receive.down").dims["row_box"] : -32]
        for name, identity in world.identities.items():
            if name != to:
                with pytest.raises(InvalidSeal):
                    identity.opening.open(header, bytes(envelope.body))
        info = row_info(world.run, envelope.header.exchange, "receive", to)
        world.identities[to].opening.open(info, box)
        with pytest.raises(InvalidSeal):
            world.identities["aggregator"].opening.open(info, box)


def test_another_receiver_s_row_or_seed_is_refused():
    world = pub()
    real = weighing.Weighing._rows

    def turned(session, evaluation, opened):
        rows = real(session, evaluation, opened)
        names = list(rows)
        return dict(zip(names, [rows[n] for n in (*names[1:], names[0])], strict=True))

    with (
        swapped(weighing.Weighing, "_rows", turned),
        pytest.raises(Refused, match="stage"),
    ):
        hand_out(world, trained(world).weighted(Model, even(6)))
    world = pub()

    def other_seed(session, evaluation, opened):
        rows = real(session, evaluation, opened)
        first, second, *_ = rows
        return {**rows, first: weighing.Row(box=rows[first].box, seed=rows[second].seed)}

    with (
        swapped(weighing.Weighing, "_rows", other_seed),
        pytest.raises(Refused, match="client-1 refused"),
    ):  # of weights that differ: receivers of one row have one seed
        hand_out(world, trained(world).weighted(Model, even(6) + np.eye(6) * 0.3 - 0.05))
    assert isinstance(world.clients["client-1"].last_error, BadEnvelope)


@pytest.mark.parametrize("part", ["witness", "witnessed", "open", "opened"])
def test_o5_rows_that_are_not_opened_lose_the_round(part):
    world = pub()
    reply = trained(world)
    world.lost = lambda item, sender, to: item == f"receive.{part}.WEIGHTED_SUM"
    with pytest.raises(RoundLost):
        hand_out(world, reply.weighted(Model, even(6)))
    assert world.aggregator.asked._held is None and world.aggregator.rows._uploads is None
    assert not sent(world, "receive.down") and not world.sites["client-1"].got
    world.lost = lambda *_: False
    reply = trained(world, 2)
    hand_out(world, reply.weighted(Model, even(6)), 2)
    assert np.abs(received(world) - flatten(even(6), 3).table / 128 @ models(world)).max() < GRID


def test_o5_a_client_that_vanished_in_between_is_weighed_and_gets_nothing(monkeypatch):
    world, sealed = pub(), []
    reply, real = trained(world), revealing.close_box

    def close_box(content, me, addressee, info):
        sealed.append(addressee.name)
        return real(content, me, addressee, info)

    monkeypatch.setattr(revealing, "close_box", close_box)
    left = [n for n in world.names if n != "client-4"]
    hand_out(world, reply.weighted(Model, even(6)), members=left)
    assert sealed == left  # its row is not even opened
    assert not world.sites["client-4"].got and len(world.sites["client-1"].got) == 1
    (answer,) = sent(world, "receive.opened.WEIGHTED_SUM")
    assert len(answer.encode()) == world.plan.item("receive.opened.WEIGHTED_SUM").bytes


def test_rows_go_to_clients_that_gave_something():
    world = pub()
    left = [n for n in world.names if n != "client-4"]
    reply = trained(world, members=left)
    with pytest.raises(LocalProtocolError, match="gave something"):
        hand_out(world, reply.weighted(Model, even(5)))


def test_planned_bytes_are_sent_bytes():
    world = pub(d=9000)
    hand_out(world, trained(world).weighted(Model, even(6)))
    for part in ("witness", "witnessed", "open", "opened"):
        item = world.plan.item(f"receive.{part}.WEIGHTED_SUM")
        (envelope,) = sent(world, item.id)
        assert len(envelope.encode()) == item.bytes
    for item in ("train.up.WEIGHTED_SUM", "receive.down"):
        sizes = {len(e.encode()) for e in sent(world, item)}
        assert sizes == {world.plan.item(item).bytes}
    assert world.plan.item("train.up.WEIGHTED_SUM").body == 64 + 2 * 61_440


def test_the_plan_says_what_rows_tell():
    plan = pub().plan
    assert ROWS in plan.warnings
    learns = plan.item("train.up.WEIGHTED_SUM").learns
    assert learns["aggregator"].startswith("nothing")
    assert "uniform noise" in learns["key_authority"]
    assert "weights" in learns["witness"]


def test_weights_go_to_aggregator_and_witness_only():
    """What clients and authority get does not hold the table, in any of its encodings."""
    world = pub()
    alpha = softmax(np.random.default_rng(1).normal(size=(6, 6)), 0.6)
    mixture = trained(world).weighted(Model, alpha)
    hand_out(world, mixture)
    table = mixture._table[0].astype("<u8").tobytes()
    seen = {}
    for name in (*world.names, "key-authority", "witness-1"):
        seen[name] = b""
        for data in world.wire:
            envelope = Envelope.decode(data)
            sealed = not envelope.header.item.startswith(("key.", "pair."))
            if sealed and envelope.header.recipient == name:
                header = envelope.header.encode(without_body=True)
                opening = world.identities[name].opening
                seen[name] += opening.open(header, bytes(envelope.body))
    assert table in seen["witness-1"]
    assert not any(table in data for name, data in seen.items() if name != "witness-1")


class Tally(WeightedSumMessage):
    number: int = count(unit="record", meaning="records")


def test_counts_cannot_be_weighed():
    def answer(site, given):
        return Tally(number=1)

    form = Form("tally", PUB.round, (Exchange("train", (Go,), (Tally,), answer),))
    with pytest.raises(NotAdmitted) as error:
        PrivacyPolicy.preset("pilot").admit(toy_algorithm(form))
    assert "counts" in error.value.why


def test_o9_keys_of_one_epoch_serve_that_epoch_only():
    world = pub(changed(rekey_rounds=1), rounds=3)
    ids = []
    for number in (1, 2):
        hand_out(world, trained(world, number).weighted(Model, even(6)), number)
        ids.append({d: k.key_id for d, k in world.authority.context.keys.items()})
        for session in (world.aggregator, world.witnesses["witness-1"], *world.clients.values()):
            assert {d: k.key_id for d, k in session.context.keys.items()} == ids[-1]
    assert not set(ids[0].values()) & set(ids[1].values()) and len(ids[0]) == 2
    made = [e for e in world.entries("key-authority") if e["kind"] == "key"]
    assert [e["event"] for e in made] == ["made"] * 3 + ["destroyed"] * 3 + ["made"] * 3
    world.authority.close()
    assert world.authority.keys.held == {}


@pytest.mark.parametrize(
    ("to", "check", "uploads"), [("client-1", None, 6), ("witness-1", lambda round: None, 12)]
)
def test_o9_an_ask_under_the_keys_of_another_epoch_is_turned_down(to, check, uploads):
    """Nothing is trained or witnessed under an old key, and nobody's session ends of it."""
    world = pub(changed(rekey_rounds=1), rounds=3)
    aggregator, session = world.aggregator, world.session(to)
    trained(world, 1)
    for client in world.clients.values():
        client.keys.check = check or client.keys.check
    size = session.ledger.size
    with (
        swapped(aggregator.keys, "check", lambda round: None),
        swapped(aggregator.survivors, "present", lambda cohort, round: tuple(cohort)),
        pytest.raises(WrongStage, match="another epoch"),
    ):
        back = PUB.exchanges[0].back
        world.pump(aggregator.ask(Ask(Cohort(world.names), Go(step=2), back), 2))
    assert len(sent(world, "train.up.WEIGHTED_SUM")) == uploads
    assert session.state is State.READY and session.ledger.size == size


def test_a_row_for_what_was_not_given_is_refused_by_its_receiver():
    world = pub()
    reply = trained(world)
    world.clients["client-2"].rows._weighed = -1
    with pytest.raises(Refused, match="client-2 refused"):
        hand_out(world, reply.weighted(Model, even(6)))
    assert not world.sites["client-2"].got


def reordered(world, change):
    """Return a request to open whose upload headers were changed."""
    real = results.Reveal

    def lying(**facts):
        data, cut = facts["headers"], []
        while any(data[:2]):
            _, _, size = read_signed_header(data)
            cut.append(data[:size])
            data = data[size:]
        headers = b"".join(change(cut)).ljust(len(facts["headers"]), b"\0")
        return real(**{**facts, "headers": headers})

    return lying


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda cut: [cut[1], cut[0], *cut[2:]], "not shown in their order"),
        (lambda cut: cut[:-1], "gave nothing"),
        (lambda cut: [*cut[:-1], cut[0]], "there twice"),
    ],
)
def test_o4_the_authority_opens_rows_of_the_uploads_that_are_shown(change, what):
    world = pub(changed(witnesses=0))
    reply = trained(world)
    with (
        swapped(results, "Reveal", reordered(world, change)),
        pytest.raises(Refused, match="key-authority refused"),
    ):
        hand_out(world, reply.weighted(Model, even(6)))
    assert what in world.authority.last_error.what


@pytest.mark.parametrize("witnesses", [0, 1])
def test_uploads_of_another_round_are_not_weighed(witnesses):
    world = pub(changed(witnesses=witnesses))
    reply, kept = trained(world), world.aggregator.rows._uploads
    kept.where = replace(kept.where, round=2)
    world.aggregator._round, world.aggregator.survivors._vanished = 2, (2, frozenset())
    refuser = "witness-1" if witnesses else "key-authority"
    with pytest.raises(Refused, match=f"{refuser} refused"):
        hand_out(world, reply.weighted(Model, even(6)), 2)
    session = world.witnesses["witness-1"] if witnesses else world.authority
    assert "in the round that brought them" in session.last_error.what
