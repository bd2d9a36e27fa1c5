"""Messages are frozen, mute, declared to the last field, and refuse to be pickled."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from protocols import messages
from protocols.disclosures.names import Disclosure
from protocols.messages import Message, SumMessage, blob, count, equal, names, real
from protocols.wire.control import CONTROL
from protocols.wire.roles import Role
from protocols.wire.roster import Identity
from tests.protocols.toys import Gift, Start, Toy, Update
from tests.protocols.wire import World

PRIVATE = 0.123456789


def sample():
    return Update(delta=np.full(5, PRIVATE), count=987654)


def test_a_message_is_frozen():
    message = sample()
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.count = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del message.count
    with pytest.raises(TypeError):
        Update(np.zeros(5), 1)  # fields are named, always


def test_a_message_says_its_type_and_never_a_value():
    for text in (repr(sample()), str(sample()), f"{sample()}", repr([sample()])):
        assert "Update" in text
        assert "SUM" in text
        assert "0.12345" not in text
        assert "987654" not in text


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_and_copying_are_refused(protocol):
    identity = Identity.generate("bank", Role.CLIENT)
    for secret in (sample(), identity):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(secret, protocol)
        with pytest.raises(TypeError):
            copy.deepcopy(secret)


def test_an_identity_is_mute():
    world = World()
    text = repr(world.identities["client-1"]) + repr(world.context("client-1"))
    assert "SigningKey(" not in text
    assert "signing" not in text
    assert "opening" not in text


def test_a_incoming_does_not_show_what_it_holds():
    world = World(policy="unsafe_plaintext").start()
    delivery = world.ask(1)[0]
    incoming = world.clients["client-1"]._inbox.open(delivery.data)
    assert repr(incoming.body)[2:-1][:20] not in repr(incoming)


def test_an_undeclared_field_is_refused():
    with pytest.raises(TypeError, match="extra"):
        type("Bad", (SumMessage,), {"__annotations__": {"extra": float}, "__module__": __name__})
    with pytest.raises(TypeError, match="extra"):
        facts = {"__annotations__": {"extra": float}, "extra": 1.0, "__module__": __name__}
        type("Bad", (SumMessage,), facts)


def test_a_field_that_was_not_declared_cannot_be_passed():
    with pytest.raises(TypeError):
        Update(delta=np.zeros(5), count=1, secret=2)
    with pytest.raises(TypeError):
        Update(delta=np.zeros(5))


BASES = {
    "SumMessage": Disclosure.SUM,
    "WeightedSumMessage": Disclosure.WEIGHTED_SUM,
    "SimilarityMessage": Disclosure.SIMILARITY,
    "MatchMessage": Disclosure.MATCH,
    "RowSumMessage": Disclosure.ROW_SUM,
    "MixedMessage": Disclosure.MIXED,
    "NoisedMessage": Disclosure.NOISED,
    "SealedMessage": Disclosure.SEALED,
    "ReleasedMessage": Disclosure.RELEASED,
    "PublicMessage": Disclosure.PUBLIC,
}


def test_every_disclosure_has_one_base_and_a_meaning():
    assert set(BASES.values()) == set(Disclosure)
    for name, disclosure in BASES.items():
        assert getattr(messages, name).disclosure is disclosure
        assert disclosure.meaning


def test_fields_carry_unit_and_meaning():
    for kind in (*CONTROL, Update, Start, Gift):
        for field in kind.fields:
            assert field.unit
            assert field.meaning
    assert [f.name for f in Update.fields] == ["delta", "count"]
    assert Update.fields[0].sizes({"d": 7}) == (7,)
    assert Update.fields[1].sizes({}) == ()
    with pytest.raises(KeyError):
        Update.fields[0].sizes({})


def test_declarations():
    assert real("a", 3, unit="u", meaning="m").metadata["field"]["shape"] == ("a", 3)
    assert count(unit="u", meaning="m").metadata["field"]["wire"] == "u8"
    assert blob("k", unit="u", meaning="m").metadata["field"]["wire"] == "bytes"


def test_equal_compares_type_and_every_field():
    assert equal(sample(), sample())
    assert not equal(sample(), Update(delta=np.full(5, PRIVATE), count=1))
    assert not equal(sample(), Update(delta=np.zeros(5), count=987654))
    assert not equal(sample(), Start(weights=np.full(5, PRIVATE)))


def test_names_are_joined():
    assert names((Start, Update)) == "Start+Update"
    assert names(()) == ""


def test_a_site_is_not_a_message():
    assert not issubclass(Toy, Message)
