"""Sealing to one role."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from hypothesis import given, settings

from crypto.errors import InvalidKey, InvalidSeal
from crypto.hpke import KEY_BYTES, SEAL_OVERHEAD, OpeningKey, SealingKey
from tests.crypto.known import mutations, unhex, vectors

KEY = OpeningKey.from_seed(bytes(range(32)))
SEALED = KEY.public.seal(b"header", b"a secret share")


def test_rfc9180_known_answer_opens():
    # The library draws its own ephemeral keys, so a published answer can only be opened. Its
    # public function takes no associated data and every published answer has some: hence the
    # binding itself, which is the code that `OpeningKey.open` runs.
    case = vectors("rfc9180_hpke.json")
    secret, enc, ct, info, aad, pt = unhex(
        *(case[name] for name in ("skRm", "enc", "ct", "info", "aad", "pt"))
    )
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.from_private_bytes(secret)
    assert openssl.hpke._decrypt_with_aad(suite, enc + ct, key, info, aad) == pt


def labelled_extract(suite, salt, label, ikm):
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")


def labelled_expand(suite, prk, label, info, length):
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labelled + b"\1", "sha256")[:length]


def open_by_hand(mlkem, x25519, info, sealed):
    """Open with the KEM combiner of the concrete-hybrid-kems draft and RFC 9180 section 5.1."""
    ct_m, ct_x, ciphertext = sealed[:1088], sealed[1088:1120], sealed[1120:]
    shared = hashlib.sha3_256(
        mlkem.decapsulate(ct_m)
        + x25519.exchange(X25519PublicKey.from_public_bytes(ct_x))
        + ct_x
        + x25519.public_key().public_bytes_raw()
        + b"\\.//^\\"
    ).digest()
    suite = b"HPKE" + bytes.fromhex("647a") + bytes.fromhex("0001") + bytes.fromhex("0002")
    context = b"\0" + b"".join(
        labelled_extract(suite, b"", label, value)
        for label, value in ((b"psk_id_hash", b""), (b"info_hash", info))
    )
    secret = labelled_extract(suite, shared, b"secret", b"")
    key = labelled_expand(suite, secret, b"key", context, 32)
    nonce = labelled_expand(suite, secret, b"base_nonce", context, 12)
    return AESGCM(key).decrypt(nonce, ciphertext, b"")


def test_the_hybrid_suite_agrees_with_a_second_implementation():
    mlkem, x25519 = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
    key = OpeningKey(mlkem, x25519)
    sealed = key.public.seal(b"header", b"a secret share")
    assert open_by_hand(mlkem, x25519, b"header", sealed) == b"a secret share"


@pytest.mark.parametrize("length", [0, 1, 32, 5000])
def test_round_trip_and_exact_overhead(length):
    plaintext = bytes(length)
    sealed = KEY.public.seal(b"header", plaintext)
    assert len(sealed) == length + SEAL_OVERHEAD
    assert KEY.open(b"header", sealed) == plaintext


def test_two_seals_of_one_message_differ_everywhere():
    again = KEY.public.seal(b"header", b"a secret share")
    assert again[:1088] != SEALED[:1088]
    assert again[1088:1120] != SEALED[1088:1120]
    assert again[1120:] != SEALED[1120:]


@pytest.mark.parametrize("info", [b"", b"headers", b"HEADER"])
def test_another_header_does_not_open(info):
    with pytest.raises(InvalidSeal):
        KEY.open(info, SEALED)


def test_another_key_does_not_open():
    with pytest.raises(InvalidSeal):
        OpeningKey.generate().open(b"header", SEALED)


@given(mutations(SEALED))
@settings(max_examples=300)
def test_mutations_do_not_open_and_say_nothing(sealed):
    with pytest.raises(InvalidSeal) as refusal:
        KEY.open(b"header", sealed)
    assert str(refusal.value) == InvalidSeal.what
    assert refusal.value.__cause__ is None


def test_keys_survive_their_bytes_and_their_seed():
    public = SealingKey.from_bytes(KEY.public.raw)
    assert public == KEY.public
    assert len(public.raw) == KEY_BYTES
    assert public.key_id == KEY.public.key_id
    assert repr(public) == f"SealingKey({public.key_id})"
    again = OpeningKey.from_seed(bytes(range(32)))
    assert again.open(b"header", public.seal(b"header", b"x")) == b"x"
    assert OpeningKey.generate().public != KEY.public


def test_o31_both_halves_of_a_key_follow_from_its_seed():
    one, other = (OpeningKey.from_seed(bytes([n]) * 32).public.raw for n in (1, 2))
    assert one[:1184] != other[:1184]  # ML-KEM-768
    assert one[1184:] != other[1184:]  # X25519


def test_malformed_keys_are_refused():
    unreduced = b"\xff" * 1184 + KEY.public.raw[1184:]  # FIPS 203 section 7.2, modulus check
    for raw in (b"", KEY.public.raw[:-1], KEY.public.raw + b"\0", unreduced):
        with pytest.raises(InvalidKey):
            SealingKey.from_bytes(raw)
    with pytest.raises(InvalidKey):
        OpeningKey.from_seed(bytes(31))


def test_nothing_is_sealed_to_a_point_of_low_order():
    low_order = SealingKey(KEY.public.raw[:1184] + bytes(32))
    with pytest.raises(InvalidKey):
        low_order.seal(b"header", b"x")
