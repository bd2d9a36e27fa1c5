"""Ed25519 with domain separation."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import InvalidKey, InvalidSignature, OutOfRange
from crypto.signing import SigningKey, VerifyKey
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


def test_a_signature_found_true_is_true_of_its_key_domain_and_message_alone():
    key, other = SigningKey.generate(), SigningKey.generate()
    signature = key.sign("header", MESSAGE)
    key.public.verify("header", signature, MESSAGE)
    for who, domain, message in (
        (key, "header", MESSAGE + b"!"),
        (key, "heade", b"r" + MESSAGE),
        (other, "header", MESSAGE),
    ):
        with pytest.raises(InvalidSignature):
            who.public.verify(domain, signature, message)
    key.public.verify("header", signature, MESSAGE)


def _torsion() -> list[tuple[int, int]]:
    """Return the eight points of small order, from the curve's equation (RFC 8032, 5.1)."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p

    def add(one, two):
        (x1, y1), (x2, y2) = one, two
        k = d * x1 * x2 * y1 * y2 % p
        x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, p) % p
        return x, (y1 * y2 + x1 * x2) * pow(1 - k, -1, p) % p

    y = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
    square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
    x = pow(square, (p + 3) // 8, p)
    x = x if (x * x - square) % p == 0 else x * pow(2, (p - 1) // 4, p) % p
    assert (x * x - square) % p == 0  # it is on the curve
    found = [(0, 1)]
    for _ in range(7):
        found.append(add(found[-1], (x, y)))
    assert add(found[-1], (x, y)) == (0, 1) and len(set(found)) == 8
    return found


def test_keys_of_small_order_are_refused_however_they_are_spelt():
    p = 2**255 - 19
    for x, y in _torsion():
        for sign in (x & 1, 1 - (x & 1)):
            with pytest.raises(InvalidKey):
                VerifyKey((y | sign << 255).to_bytes(32, "little"))
    for y in range(19):  # y + p is y again; 2^255 - 1 is the largest
        for sign in (0, 1):
            with pytest.raises(InvalidKey):
                VerifyKey((y + p | sign << 255).to_bytes(32, "little"))


def test_control_the_library_takes_a_key_under_which_one_signature_holds_for_all():
    """Why: for the neutral point S = 0 and R = (0, 1) satisfy the equation for every message."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    neutral = (1).to_bytes(32, "little")
    key = Ed25519PublicKey.from_public_bytes(neutral)
    for message in (b"yes", b"no"):
        key.verify(neutral + bytes(32), message)
