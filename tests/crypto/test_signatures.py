"""Ed25519 with domain separation."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import InvalidKey, InvalidSignature, OutOfRange
from crypto.signatures import SigningKey, VerifyKey
from tests.crypto.known import mutations, unhex, vectors

KEY = SigningKey.from_seed(bytes(range(32)))
MESSAGE = b"what was said"
SIGNATURE = KEY.sign("header", MESSAGE)


@pytest.mark.parametrize("case", vectors("rfc8032_ed25519.json")["cases"])
def test_rfc8032_known_answers(case):
    seed, public, message, signature = unhex(
        case["seed"], case["public"], case["message"], case["signature"]
    )
    key = SigningKey.from_seed(seed)
    assert key.public.raw == public
    assert key.sign_raw(message) == signature
    VerifyKey(public).verify_raw(signature, message)


def test_the_signed_bytes_are_prefix_domain_nul_message():
    assert KEY.sign_raw(b"secure-fgl/header\0" + MESSAGE) == SIGNATURE


def test_a_good_signature_verifies():
    assert KEY.public.verify("header", SIGNATURE, MESSAGE) is None


@pytest.mark.parametrize(
    ("domain", "signature", "message"),
    [
        ("headers", SIGNATURE, MESSAGE),
        ("heade", SIGNATURE, b"r" + MESSAGE),
        ("header", SIGNATURE, MESSAGE + b"!"),
        ("header", SIGNATURE, b""),
        ("header", SIGNATURE[:-1], MESSAGE),
        ("header", SIGNATURE + b"\0", MESSAGE),
        ("header", b"", MESSAGE),
        ("header", bytes(64), MESSAGE),
        ("header", KEY.sign_raw(MESSAGE), MESSAGE),
        ("header", SigningKey.from_seed(bytes(32)).sign("header", MESSAGE), MESSAGE),
    ],
    ids=lambda value: f"{value[:6]!r}-{len(value)}",
)
def test_anything_else_is_refused(domain, signature, message):
    with pytest.raises(InvalidSignature):
        KEY.public.verify(domain, signature, message)


@given(mutations(SIGNATURE))
def test_mutated_signatures_are_refused(signature):
    with pytest.raises(InvalidSignature):
        KEY.public.verify("header", signature, MESSAGE)


@given(st.binary(max_size=40))
def test_random_bytes_are_a_key_or_an_invalid_key(raw):
    try:
        key = VerifyKey(raw)
    except InvalidKey:
        assert len(raw) != 32
        return
    with pytest.raises(InvalidSignature):
        key.verify("header", SIGNATURE, MESSAGE)


@pytest.mark.parametrize("domain", ["", "a\0b", "a\nb", "größe", "x" * 65])
def test_domains_that_could_be_misread_are_refused(domain):
    with pytest.raises(OutOfRange):
        KEY.sign(domain, MESSAGE)
    with pytest.raises(OutOfRange):
        KEY.public.verify(domain, SIGNATURE, MESSAGE)


def test_keys_compare_by_value_and_print_their_id_only():
    again = VerifyKey(KEY.public.raw)
    assert again == KEY.public
    assert hash(again) == hash(KEY.public)
    assert again != SigningKey.generate().public
    assert len(again.key_id) == 16
    assert repr(again) == f"VerifyKey({again.key_id})"


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_seeds_have_exactly_32_bytes(length):
    with pytest.raises(InvalidKey):
        SigningKey.from_seed(bytes(length))


def test_a_true_signature_is_remembered_for_its_own_bytes_only():
    """A buffer of 64 elements that are no bytes must not stand for signature and message."""
    key = SigningKey.generate()
    tail, message = bytes(64), b"secure-fgl/envelope\0a"
    signature = key.sign_raw(tail + message)
    key.public.verify_raw(signature, tail + message)
    with pytest.raises(InvalidSignature):
        key.public.verify_raw(array("H", signature + tail), message)
