"""DSSE envelopes: the published answer, one spelling, and no signature that passes unseen."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import CryptoError, InvalidSignature, NotCanonical, OutOfRange
from crypto.signing import MAX_SIGNATURES, Signature, Signed, SigningKey, canonical, pae, read, sign
from tests.crypto.known import mutations, vectors

KNOWN = vectors("dsse.json")
KIND = "application/vnd.in-toto+json"
KEY = SigningKey.from_seed(bytes(range(32)))
OTHER = SigningKey.from_seed(bytes(32))
KEYS = {k.public.key_id: k.public for k in (KEY, OTHER)}
SIGNED = sign(KIND, b'{"a":1}', [KEY])


def test_pae_gives_the_published_bytes():
    assert pae(KNOWN["payload_type"], KNOWN["payload"].encode()) == KNOWN["pae"].encode()


def test_the_published_signature_is_over_our_pae():
    curve = ec.EllipticCurvePublicNumbers(int(KNOWN["x"]), int(KNOWN["y"]), ec.SECP256R1())
    found = KNOWN["envelope"]
    raw = base64.b64decode(found["signatures"][0]["sig"])
    pair = utils.encode_dss_signature(
        int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    )
    body = base64.b64decode(found["payload"])
    signed = pae(found["payloadType"], body)
    curve.public_key().verify(pair, signed, ec.ECDSA(SHA256()))  # raises if not


def test_our_envelope_has_the_published_form():
    ours = json.loads(sign(KNOWN["payload_type"], KNOWN["payload"].encode(), [KEY]).text())
    assert set(ours) == set(KNOWN["envelope"])
    assert ours["payload"] == KNOWN["envelope"]["payload"]
    assert set(ours["signatures"][0]) == {"keyid", "sig"}


def test_what_was_signed_is_read_back_and_verifies():
    found = read(sign(KIND, b"body", [KEY, OTHER]).text(), limit=1000)
    assert found.body == b"body"
    assert found.verify(KIND, KEYS) == (KEY.public, OTHER.public)


@pytest.mark.parametrize("kind", ["", "a b", "é", "x" * 129, "a\n"])
def test_a_type_that_is_not_plain_is_refused(kind):
    with pytest.raises(OutOfRange):
        pae(kind, b"")


def test_one_signature_of_many_that_cannot_be_judged_fails_all():
    (good,) = SIGNED.signatures
    for extra in (
        Signature(OTHER.public.key_id, good.raw),  # another key's name on it
        Signature("0" * 16, good.raw),  # an unknown key
        good,  # the same key twice
        Signature(OTHER.public.key_id, bytes(64)),
    ):
        with pytest.raises(InvalidSignature):
            Signed(KIND, SIGNED.body, (good, extra)).verify(KIND, KEYS)
    with pytest.raises(InvalidSignature):
        Signed(KIND, SIGNED.body, ()).verify(KIND, KEYS)


def test_a_key_under_another_key_s_name_is_not_used():
    with pytest.raises(InvalidSignature):
        SIGNED.verify(KIND, {KEY.public.key_id: OTHER.public})
    renamed = Signed(KIND, SIGNED.body, (Signature("mine", SIGNED.signatures[0].raw),))
    with pytest.raises(InvalidSignature):
        renamed.verify(KIND, {"mine": KEY.public})


def test_type_and_body_are_both_signed():
    with pytest.raises(InvalidSignature):
        Signed(KIND, b'{"a":2}', SIGNED.signatures).verify(KIND, KEYS)
    other = Signed("text/plain", SIGNED.body, SIGNED.signatures)
    with pytest.raises(InvalidSignature):
        other.verify("text/plain", KEYS)
    with pytest.raises(NotCanonical):
        SIGNED.verify("text/plain", KEYS)


def test_signing_needs_different_keys():
    for keys in ([], [KEY, KEY], [SigningKey.generate() for _ in range(MAX_SIGNATURES + 1)]):
        with pytest.raises(OutOfRange):
            sign(KIND, b"", keys)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": 1},
        {"payload": "e30"},  # without padding
        {"payload": "e3-_"},  # URL-safe
        {"payloadType": None},
        {"payloadType": "a b"},
        {"signatures": {}},
        {"signatures": [{"sig": "AAAA", "keyid": "0"}]},
        {"signatures": [{"sig": "A" * 86 + "=="}]},
        {"signatures": [{"sig": "A" * 86 + "==", "keyid": 1}]},
        {"signatures": [None]},
        {"signatures": [{"sig": "A" * 86 + "==", "keyid": "0"}] * (MAX_SIGNATURES + 1)},
        {"more": 1},
    ],
)
def test_another_form_is_refused(change):
    with pytest.raises(NotCanonical):
        read(canonical({**json.loads(SIGNED.text()), **change}), limit=1 << 20)


def test_size_and_spelling_are_checked():
    data = SIGNED.text()
    with pytest.raises(NotCanonical):
        read(data, limit=len(data) - 1)
    with pytest.raises(NotCanonical):
        read(json.dumps(json.loads(data)).encode(), limit=1000)


@given(st.data())
def test_no_changed_byte_verifies(data):
    with pytest.raises(CryptoError):
        read(data.draw(mutations(SIGNED.text())), limit=1000).verify(KIND, KEYS)


def test_an_envelope_prints_no_body():
    assert "qqq" not in repr(sign(KIND, b"qqq", [KEY]))
