"""O4: what an authority and a witness check of what they are shown, each check alone.

Most of these checks stand behind another one in an honest wire, so each is asked for itself: what
an honest aggregator showed is changed in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from protocols.disclosures._evaluated import aggregator as results
from protocols.disclosures._evaluated import parties as revealing
from protocols.disclosures._evaluated import parties as witness
from protocols.disclosures._evaluated.uploads import requested_uploads
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum import aggregator as weighing
from protocols.errors import BadEnvelope, CohortTooSmall, Refused, Replay, WrongStage
from protocols.wire.control import Cosines, RowBoxes
from protocols.wire.envelope import Envelope, Where, read_signed_header, signed_header
from protocols.wire.roster import cohort_digest
from tests.protocols.pub import (
    GRID,
    Go,
    Model,
    changed,
    even,
    hand_out,
    models,
    pub,
    sent,
    swapped,
    trained,
    unwatched,
)
from tests.protocols.wire import World, refused, where_of

LEFT = tuple(f"client-{i}" for i in (1, 2, 3, 4, 6))


def with_one_lost(policy: Any = "pilot") -> World:
    """Return a world of six in which client 5's upload is lost: everything is padded then."""
    world = pub(policy)
    world.lost = lambda item, sender, to: (item, sender) == ("train.up.SIMILARITY", "client-5")
    return world


def played(world: World) -> World:
    """Play one round whose uploads are five."""
    hand_out(world, trained(world).weighted(Model, even(5)), members=LEFT)
    return world


# --- headers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What a witness was shown in an honest round."""

    world: World
    request: Any
    incoming: Any
    name: str
    disclosure: Disclosure
    context: Any

    def check(self, request: dict[str, Any] | None = None, **header: Any) -> Any:
        """Check it with some of it changed."""
        said = {field.name: getattr(self.request, field.name) for field in fields(self.request)}
        given = type(self.request)(**{**said, **(request or {})})
        incoming = replace(self.incoming, header=replace(self.incoming.header, **header))
        return requested_uploads(given, incoming, self.name, self.disclosure, self.context)

    def cut(self) -> list[bytes]:
        """Return the signed headers that were shown."""
        data, found = self.request.headers, []
        while any(data[:2]):
            size = read_signed_header(data)[2]
            found.append(data[:size])
            data = data[size:]
        return found


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    found, world, real = {}, with_one_lost(), requested_uploads

    def watched(*facts: Any) -> Any:
        found[str(facts[3])] = Case(world, *facts)
        return real(*facts)

    with swapped(witness, "requested_uploads", watched):
        played(world)
    return found


@pytest.mark.parametrize("said", ["SIMILARITY", "WEIGHTED_SUM"])
def test_o4_control_what_was_honestly_shown_passes(cases, said):
    assert cases[said].check().names == LEFT


def test_o4_uploads_of_another_ask_are_not_compared(cases):
    case = cases["SIMILARITY"]
    with pytest.raises(BadEnvelope, match="another place in the run"):
        case.check(exchange=case.incoming.header.exchange + 1)


def test_o8_uploads_of_clients_that_were_given_something_else_are_not_compared(cases):
    with pytest.raises(BadEnvelope, match="O8"):
        cases["SIMILARITY"].check(given="0" * 64)


def test_o4_only_those_who_were_asked_are_compared(cases):
    """A result is bound to the cohort that its clients signed, and to no other one."""
    case = cases["SIMILARITY"]
    world, header, some = case.world, case.incoming.header, LEFT[:4]
    digest = cohort_digest(world.run, world.plan.digest, header.round, header.attempt, some)
    mask = {"cohort": world.roster.mask(some)}
    with pytest.raises(BadEnvelope, match="its members signed"):
        case.check(mask, cohort=digest)
    with pytest.raises(BadEnvelope, match="its header names"):
        case.check(mask)


@pytest.mark.parametrize("said", ["SIMILARITY", "WEIGHTED_SUM"])
def test_o4_uploads_are_for_who_shows_them(cases, said):
    with pytest.raises(BadEnvelope, match="addressed to another party"):
        cases[said].check(sender="client-1")


@pytest.mark.parametrize("later", [0, 1])
def test_o5_rows_are_of_uploads_that_came_before(cases, later):
    case = cases["WEIGHTED_SUM"]
    (source, *_) = (read_signed_header(data)[0] for data in case.cut())
    with pytest.raises(BadEnvelope, match="and afterwards"):
        case.check(exchange=source.exchange - later)


@pytest.mark.parametrize("said", ["SIMILARITY", "WEIGHTED_SUM"])
def test_o10_every_party_counts_for_itself(cases, said):
    """Three uploads: too few, whoever shows them and whoever else counted."""
    case = cases[said]
    few = b"".join(case.cut()[:3]).ljust(len(case.request.headers), b"\0")
    with pytest.raises(CohortTooSmall):
        case.check({"headers": few})


def test_o4_a_header_that_no_client_signed_is_refused(cases):
    """Who was asked is a mask over the roster's clients, so no other party can be among them."""
    case = cases["SIMILARITY"]
    world, first = case.world, read_signed_header(case.cut()[0])[0]
    where = Where(first.round, first.exchange, tuple(world.names), first.given, first.attempt)
    item, kind = first.item, world.plan.item(first.item)
    forged = world.forge("witness-1", item, "aggregator", bytes(kind.body), where)
    headers = [*case.cut()[:4], signed_header(Envelope.decode(forged))]
    whole = b"".join(headers).ljust(len(case.request.headers), b"\0")
    with pytest.raises(BadEnvelope, match="not from the cohort"):
        case.check({"headers": whole})


# --- what stands behind -------------------------------------------------------------------------


def lying(kind: str, field: str, change: Any) -> Any:
    """Return a message type whose one field an aggregator changes."""
    module = next(one for one in (results, weighing) if hasattr(one, kind))
    real = getattr(module, kind)

    def made(**facts: Any) -> Any:
        return real(**{**facts, field: change(facts[field])})

    return swapped(module, kind, made)


def last_byte(data: bytes) -> bytes:
    assert not any(data[-1000:])  # padding, as one upload is missing
    return data[:-1] + b"\1"


def test_o4_a_witness_is_shown_nothing_behind_the_uploads():
    world = with_one_lost()
    with (
        lying("Examine", "uploads", last_byte),
        pytest.raises(Refused, match="witness-1 refused"),
    ):
        trained(world)
    assert "behind the uploads" in world.witnesses["witness-1"].last_error.what


def test_o4_an_authority_is_shown_nothing_behind_the_results():
    world = with_one_lost(unwatched())
    with lying("Reveal", "results", last_byte), pytest.raises(Refused, match="key-authority"):
        trained(world)
    assert "behind the results" in world.authority.last_error.what
    assert not sent(world, "train.opened.SIMILARITY")


@pytest.mark.parametrize("place", [(5, 0), (0, 5)])
def test_o10_no_weights_are_shown_for_uploads_that_are_not(place):
    world = with_one_lost()

    def more(table: np.ndarray) -> np.ndarray:
        assert not table[5].any() and not table[:, 5].any()
        changed_table = table.copy()
        changed_table[place] = 1
        return changed_table

    with lying("RowSeeds", "weights", more), pytest.raises(Refused, match="witness-1 refused"):
        played(world)
    assert "whose uploads are not" in world.witnesses["witness-1"].last_error.what
    assert [e["disclosure"] for e in world.entries("key-authority") if e["kind"] == "open"] == [
        "SIMILARITY"
    ]


# --- what the authority returns -----------------------------------------------------------------


def test_o3_a_number_above_one_is_no_cosine():
    world = pub()
    with (
        swapped(revealing, "COSINE_LEVELS", 1 << 16),
        pytest.raises(BadEnvelope, match="no cosine"),
    ):
        trained(world)


def test_o3_an_authority_returns_as_many_cosines_as_pairs():
    world = with_one_lost()

    honest = revealing.Revealing._cosines

    def more(*asked: Any) -> Any:
        cosines = honest(*asked).cosines
        assert cosines[-1] == 0
        return Cosines(cosines=np.append(cosines[:-1], 1))

    with (
        swapped(revealing.Revealing, "_cosines", more),
        pytest.raises(BadEnvelope, match="behind the cosines"),
    ):
        trained(world)


def test_what_is_of_another_type_is_no_result():
    """Not a matrix of zeros, and no empty boxes."""
    session, held = pub().aggregator, results.Evaluation
    nothing = held(Disclosure.SIMILARITY, "train", Where(), (), LEFT, 1, b"", b"")
    for found, message in (
        (session.comparing._cosines, RowBoxes(boxes=b"")),
        (session.rows._rows, Cosines(cosines=np.zeros(15, dtype=np.int64))),
    ):
        with pytest.raises(BadEnvelope, match="something that is no"):
            found(nothing, message)


def witnessed(world: World) -> tuple[bytes, bytes, Where]:
    """Return a witness's answer on its way to the aggregator, what is in it, and its place."""
    asked = world.ask(1, given=Go(step=1), back=world.form.exchanges[0].back)
    *_, shown = world.pump(asked, until="witness.SIMILARITY")  # behind the keys
    (answer,) = world.deliver(shown)
    envelope = Envelope.decode(answer.data)
    header = envelope.header.encode(without_body=True)
    body = world.identities["aggregator"].opening.open(header, bytes(envelope.body))
    return answer.data, body, where_of(answer.data, world.names)


ITEM = "train.witnessed.SIMILARITY"


@pytest.mark.parametrize(
    ("change", "error", "what"),
    [
        ({"cohort": "0" * 64}, BadEnvelope, "another cohort"),
        ({"attempt": 2}, WrongStage, "another round"),
        ({"round": 2}, WrongStage, "another round"),
    ],
    ids=["cohort", "attempt", "round"],
)
def test_o4_a_witness_answers_for_the_place_and_the_cohort_it_was_asked_for(change, error, what):
    world = pub()
    _, body, where = witnessed(world)
    data = world.forge("witness-1", ITEM, "aggregator", body, where, **change)
    with pytest.raises(error, match=what):
        world.aggregator.receive(data)
    control = pub()
    _, body, where = witnessed(control)
    control.aggregator.receive(control.forge("witness-1", ITEM, "aggregator", body, where))
    assert list(control.aggregator.results._evaluated.signatures) == ["witness-1"]


def test_o4_a_witness_answers_once():
    """The inbox sees to it: one envelope of a sender for an item and an exchange."""
    world = pub()
    answer, body, where = witnessed(world)
    world.aggregator.receive(answer)
    for again in (answer, world.forge("witness-1", ITEM, "aggregator", body, where)):
        with pytest.raises(Replay):
            world.aggregator.receive(again)


@pytest.mark.parametrize("round", [0, 1, 2])
def test_o9_a_witness_takes_no_second_keys_of_an_epoch(round):
    world = pub(changed(rekey_rounds=2), rounds=4)
    session = world.witnesses["witness-1"]
    (offer,) = {e.encode(): e for e in sent(world, "key.offer")}.values()
    again = Where(round, 9)
    data = world.forge("key-authority", "key.offer", "roster", bytes(offer.body), again)
    assert refused(session.receive(data))
    assert isinstance(session.last_error, BadEnvelope) and "O9" in session.last_error.what


def test_o9_control_a_witness_takes_the_keys_of_the_next_epoch():
    world = pub(changed(rekey_rounds=2), rounds=4)
    session = world.witnesses["witness-1"]
    (offer,) = {e.encode(): e for e in sent(world, "key.offer")}.values()
    next_one = Where(3, 9)
    data = world.forge("key-authority", "key.offer", "roster", bytes(offer.body), next_one)
    assert session.receive(data) == []


def test_a_round_with_a_lost_upload_gives_what_it_should():
    """The control of everything here that is padded."""
    world = with_one_lost()
    mixture = trained(world).weighted(Model, even(5))
    hand_out(world, mixture, members=LEFT)
    rows = [world.names.index(name) for name in LEFT]
    last = (world.sites[name].got[-1] for name in LEFT)
    found = np.array([[*model.weights, model.bias] for model in last])
    assert np.abs(found - mixture._table / 128 @ models(world)[rows]).max() < GRID
