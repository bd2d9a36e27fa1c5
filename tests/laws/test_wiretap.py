"""What a wiretap sees, and what the aggregator can reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenseal

from crypto.homomorphic.he import scheme
from protocols.disclosures.names import Disclosure
from protocols.keys.groups import Group
from protocols.keys.pairs import CommonKey, Pairs
from protocols.messages import Message, MixedMessage, unmixed_of
from protocols.policy.policy import PRESETS
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity, Roster
from secure_fgl.catalogue import algorithm_names
from tests.laws.conftest import Recorded
from tests.laws.runs import (
    ALIKE,
    PROTECTED,
    Parties,
    Recording,
    config,
    pairs,
    quick,
    record,
    spread,
    unlike,
)
from tests.laws.search import found, spellings, telling, travelled
from tests.laws.walk import secrets

NAMES = algorithm_names()


def clear_spellings(recording: Recording) -> list[bytes]:
    """Return the bytes of every message of the algorithm, as floats and as integers."""
    return [
        spelling
        for _, message in recording.payloads()
        if message.disclosure is not Disclosure.PUBLIC
        for value in _values(message)
        for spelling in spellings(value)
    ]


def _values(message: Message) -> list[Any]:
    """Return what a message holds: its fields, or the records that are to be mixed."""
    if isinstance(message, MixedMessage) and (records := unmixed_of(message)) is not None:
        return [records.table, records.index]
    return [getattr(message, field.name) for field in message.fields]


def quantised(twin: Recording) -> list[bytes]:
    """Return the integers that the plaintext twin's clients sent, and the reals they stand for."""
    bodies = [
        (envelope.body, item)
        for envelope in twin.envelopes().values()
        if (item := twin.plan.item(envelope.header.item)).disclosure is Disclosure.SUM
    ]
    assert bodies
    spelled = []
    for body, item in bodies:
        levels = np.frombuffer(body, "<u2").astype(np.float64) - (2**15 - 1)
        steps = {float(f.step) for m in item.messages for f in m.fields if f.step}
        reals = [levels * step for step in steps]
        spelled += [body, *(s for real in reals for s in spellings(real))]
    return spelled


def records(recording: Recording) -> list[bytes]:
    """Return the bytes of the records that clients gave to be mixed."""
    return [
        spelling
        for _, message in recording.payloads()
        if isinstance(message, MixedMessage) and (kept := unmixed_of(message)) is not None
        for spelling in spellings(kept.table)
    ]


def opened_bodies(recording: Recording, *, mixed: bool = False) -> bytes:
    """Return what is inside the seals of uploads: what the aggregator itself gets to see.

    Of mixtures it is to see levels on a grid, shares of labels among them, in which constants of
    other messages (a level of one, beside zeros) are no payload: they are returned apart. Where a
    relay stands between, this is what the relay gets to see.
    """
    relays = recording.parties.roster.names(Role.RELAY) if mixed else ()
    reader = recording.parties.identity(next(iter(relays), "aggregator"))
    plan = recording.plan
    bodies = b""
    for envelope in recording.envelopes().values():
        header, body = envelope.header, bytes(envelope.body)
        if ".up." in header.item and header.item.endswith(".MIXED") == mixed:
            said = header.encode(without_body=True)
            unsafe = plan.item(header.item).unsafe
            bodies += body if unsafe else reader.opening.open(said, body)
    assert bodies or mixed
    return bodies


@pytest.mark.parametrize(("name", "policy"), [*spread(NAMES, PROTECTED, ALIKE), *pairs([])])
def test_a_wiretap_sees_no_clear_payload(name: str, policy: str, recorded: Recorded) -> None:
    protected, twin = recorded(name, policy), recorded(name, "unsafe_plaintext")
    payloads = [*clear_spellings(protected), *clear_spellings(twin), *quantised(twin)]
    wire = travelled(data for _, data in protected.tap.sent)
    assert len(wire) > 100_000
    assert found(payloads, wire) == 0
    assert found(payloads, opened_bodies(protected)) == 0
    assert found(records(protected), opened_bodies(protected, mixed=True)) == 0
    assert (
        found(quantised(twin), travelled(data for _, data in twin.tap.sent)) > 0
    )  # control: the same search finds it in clear


@pytest.mark.parametrize("kind", [Disclosure.WEIGHTED_SUM, Disclosure.SIMILARITY])
def test_the_search_finds_what_is_weighed_and_compared_in_the_twin_s_uploads(
    kind: Disclosure, recorded: Recorded
) -> None:
    """Control: in clear the aggregator is sent every Model and every Portrait as they are."""
    twin = recorded("fed_pub", "unsafe_plaintext")
    # What the clients say; the aggregator's answer is a mean that nobody sent.
    said = [m for who, m in twin.payloads() if m.disclosure is kind and who != AGGREGATOR_NAME]
    bodies = opened_bodies(twin)
    assert said
    for message in said:
        assert all(found(spellings(value), bodies) > 0 for value in _values(message))


@pytest.mark.parametrize("name", unlike(NAMES))
def test_the_search_finds_each_spelling_that_is_planted(name: str, recorded: Recorded) -> None:
    protected = recorded(name, "he")
    wire = travelled(data for _, data in protected.tap.sent)[:5000]
    said = [*clear_spellings(protected), *quantised(recorded(name, "unsafe_plaintext"))]
    payloads = [spelling for spelling in said if telling(bytes(spelling[:64])).size]
    assert payloads
    for spelling in payloads[:: max(1, len(payloads) // 20)]:
        assert found([spelling], wire) == 0
        assert found([spelling], wire[:1001] + spelling[:64] + wire[1001:]) > 0


@pytest.mark.parametrize(("name", "policy"), quick(pairs(PROTECTED)))
def test_o27_sizes_and_headers_tell_nothing_of_the_data(
    name: str, policy: str, recorded: Recorded
) -> None:
    """Two clients' traffic differs in names, digests and ciphertext only."""
    recording = recorded(name, policy)
    shapes: dict[str, list[Any]] = {}
    for data, envelope in recording.envelopes().items():
        header = envelope.header
        if header.sender.startswith("client"):
            shapes.setdefault(header.sender, []).append(
                (header.item, header.round, header.exchange, len(data))
            )
    assert len(shapes) == 5 and len({tuple(rows) for rows in shapes.values()}) == 1


# --- the aggregator's object graph --------------------------------------------------------------


STAGES = {
    "he": {"opening", "waiting", "serving"},
    "masks": {"waiting", "serving"},
}


@pytest.mark.parametrize(("name", "policy"), spread(NAMES, sorted(STAGES)))
def test_o9_the_aggregator_reaches_no_secret_of_others(
    name: str, policy: str, tmp_path: Path
) -> None:
    looked: list[str] = []

    def watch(parties: Parties) -> None:
        at = [part.stage for part in parties.aggregator.parts.values() if part.stage]
        looked.extend(at or [str(parties.aggregator.state)])
        own = parties.identity("aggregator")
        assert secrets(parties.aggregator, own) == []

    recording = record(config(name, policy), tmp_path / "run", watch=watch)
    assert len(looked) == recording.result["exchanges"] and STAGES[policy] <= set(looked)
    parties = recording.parties
    assert secrets(parties.aggregator, parties.identity("aggregator")) == []


def _private_context() -> tenseal.Context:
    return tenseal.context(tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=4096, plain_modulus=1032193)


def _pairs() -> Pairs:
    policy, people = PRESETS["masks"], [Identity.generate(f"c{n}", Role.CLIENT) for n in range(4)]
    aggregator = Identity.generate("aggregator", Role.AGGREGATOR)
    roster = Roster(person.party for person in (*people, aggregator))
    group = Group.of("ab" * 16, 0, roster.clients, policy)
    return Pairs(people[0], roster, group, (), 3, CommonKey())


PLANTED = {
    "SecretKey": lambda: scheme().keygen()[1],
    "OpeningKey": lambda: Identity.generate("client-1", Role.CLIENT).opening,
    "SigningKey": lambda: Identity.generate("client-1", Role.CLIENT).signing,
    "Context": _private_context,
    "Pairs": _pairs,
}


@pytest.mark.parametrize("policy", ["masks"])
def test_o6_clients_hold_pair_secrets_while_the_run_goes_on(policy: str, tmp_path: Path) -> None:
    """Control of the walk: the same search finds them at a client, in every exchange."""
    seen: list[bool] = []

    def watch(parties: Parties) -> None:
        own = parties.identity("client-1")
        seen.append("Pairs" in secrets(parties.others["client-1"], own))

    record(config("fed_avg", policy), tmp_path / "run", watch=watch)
    assert seen and all(seen)


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_the_walk_finds_a_planted_secret(kind: str, recorded: Recorded) -> None:
    parties = recorded("fed_avg", "he").parties
    aggregator, own = parties.aggregator, parties.identity("aggregator")
    secret = PLANTED[kind]()

    def closure() -> Any:
        return secret

    assert secrets(aggregator, own) == []
    for holder in ({"deep": [secret]}, closure, lambda x=secret: x):
        aggregator.__dict__["planted"] = holder
        try:
            assert kind in secrets(aggregator, own)
        finally:
            del aggregator.__dict__["planted"]


def test_the_walk_finds_the_secrets_of_the_parties_that_have_them(recorded: Recorded) -> None:
    parties = recorded("fed_avg", "he").parties
    client = parties.others["client-1"]
    assert "Site" in secrets(client, parties.identity("client-1"))
    assert client.context.pairs is None  # forgotten with the last round
    assert "OpeningKey" in secrets(client, parties.identity("client-2"))


@pytest.mark.parametrize("policy", PROTECTED)
def test_every_envelope_but_what_is_public_is_sealed(policy: str, recorded: Recorded) -> None:
    """The bodies of a protected run look like noise: no byte value stands out."""
    recording = recorded("fed_avg", policy)
    bodies: dict[bool, bytes] = {True: b"", False: b""}
    for envelope in recording.envelopes().values():
        public = envelope.header.item in ("key.call", "key.offer", "pair.call")
        bodies[public] += envelope.body
    counts = np.bincount(np.frombuffer(bodies[False], np.uint8), minlength=256)
    expected = counts.sum() / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 255 + 8 * np.sqrt(2 * 255)  # chi-square, 255 degrees of freedom
    clear = b"".join(
        Envelope.decode(data).body for _, data in recorded("fed_avg", "unsafe_plaintext").tap.sent
    )
    counts = np.bincount(np.frombuffer(clear, np.uint8), minlength=256)
    expected = counts.sum() / 256
    assert float(((counts - expected) ** 2 / expected).sum()) > 255 + 8 * np.sqrt(2 * 255)
