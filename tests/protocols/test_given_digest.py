"""The digest of what was given stands in clear headers: nobody can confirm a guess by it (O29)."""

from __future__ import annotations

from protocols.wire.control import Call, Place
from protocols.wire.envelope import Envelope
from protocols.wire.roster import given_digest
from tests.protocols.wire import World


def test_knowing_everything_but_the_nonce_confirms_nothing() -> None:
    world = World().start()
    (first, *_), item = world.ask(1), world.plan.item("train.down")
    seen = Envelope.decode(first.data).header.given
    incoming = world.clients[first.to]._inbox.open(first.data)
    call, _, *given = world.clients[first.to]._inbox.read(
        incoming, (Call, Place, *world.form.exchanges[0].given)
    )
    dims = world.context(first.to).dims(item)
    assert given_digest([call, *given], dims) == seen  # the control: with the nonce it is found
    guess = Call(members=call.members, slot=call.slot, nonce=bytes(16), heads=call.heads)
    assert given_digest([guess, *given], dims) != seen


def test_the_nonce_is_the_same_for_a_cohort_and_fresh_for_each_ask() -> None:
    world, givens = World().start(), []
    for number in (1, 2):
        deliveries = world.ask(number)
        headers = [Envelope.decode(delivery.data).header.given for delivery in deliveries]
        assert len(set(headers)) == 1
        givens.append(headers[0])
        world.pump(deliveries)
    assert len(set(givens)) == 2
