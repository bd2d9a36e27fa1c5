"""What every scheme does with bytes that others wrote: keys, secrets, ciphertexts, garbage."""

import struct

import numpy as np
import pytest
import tenseal
import tenseal.sealapi as seal
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import CryptoError, InvalidCiphertext, InvalidKey, SecretKeyRefused
from crypto.homomorphic.bfv import BFV44, BFV48, CKKS26, DEGREE
from crypto.homomorphic.he import NAMES, scheme
from crypto.homomorphic.seal import pack60, unpack60
from tests.crypto.known import mutations

SEAL = (BFV44, BFV48, CKKS26)
SCHEMES = [scheme(name) for name in NAMES]
KEYS = {he.name: he.keygen() for he in SCHEMES}
ROW = np.arange(DEGREE, dtype=np.uint64)
BLOBS = {he.name: he.encrypt(KEYS[he.name][0], ROW) for he in SCHEMES}


@pytest.fixture(params=SCHEMES, ids=lambda he: he.name)
def he(request):
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_o9_secret_keys_are_refused_as_such(he, name):
    with pytest.raises(SecretKeyRefused):
        he.load_public(KEYS[name][1])


@pytest.mark.parametrize("scheme_type", [tenseal.SCHEME_TYPE.BFV, tenseal.SCHEME_TYPE.CKKS])
def test_contexts_of_tenseal_are_no_keys_whatever_they_hold(he, scheme_type):
    modulus = 1032193 if scheme_type == tenseal.SCHEME_TYPE.BFV else None
    context = tenseal.context(scheme_type, 8192, modulus, [40, 40, 40])
    for secret in (True, False):
        body = context.serialize(save_secret_key=secret, save_relin_keys=False)
        head = KEYS[he.name][0].raw[:40]
        framed = (head + body).ljust(he.public_key_bytes, b"\0")[: he.public_key_bytes]
        for raw in (body, head + body, framed):
            with pytest.raises(InvalidKey):
                he.load_public(raw)


@pytest.mark.parametrize("chosen", SEAL, ids=lambda chosen: chosen.name)
def test_o9_a_bare_seal_key_is_refused_as_a_secret(he, chosen, tmp_path):
    kind = seal.SCHEME_TYPE.CKKS if chosen is CKKS26 else seal.SCHEME_TYPE.BFV
    parameters = seal.EncryptionParameters(kind)
    parameters.set_poly_modulus_degree(DEGREE)
    bits = [prime.bit_length() for prime in chosen.primes]
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, bits))
    if chosen is not CKKS26:
        parameters.set_plain_modulus(1 << chosen.plain_bits)
    context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
    seal.KeyGenerator(context).secret_key().save(str(tmp_path / "key"))
    with pytest.raises(SecretKeyRefused):
        he.load_public((tmp_path / "key").read_bytes())


def test_public_keys_survive_their_bytes(he):
    public, secret = KEYS[he.name]
    again = he.load_public(public.raw)
    assert again.raw == public.raw
    assert again.key_id == public.key_id == secret.key_id
    assert again.key_id in repr(again)
    assert np.array_equal(he.decrypt(secret, he.encrypt(again, ROW)), ROW)
    assert he.keygen()[0].key_id != public.key_id


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("chosen", [BFV48, CKKS26], ids=lambda chosen: chosen.name)
def test_a_key_whose_second_half_hides_nothing_encrypts_nothing(chosen, value):
    """Divided by the second prime, noise beside a short polynomial vanishes, and so does c1."""
    he, raw = scheme(chosen.name), KEYS[chosen.name][0].raw
    body = np.frombuffer(raw, dtype="<u8", offset=40).reshape(2, -1).copy()
    body[1] = value  # at all roots: the polynomial that is this constant
    key = he.load_public(raw[:40] + body.tobytes())
    for use in (lambda: he.zeros(key, 1), lambda: he.encrypt(key, ROW)):
        with pytest.raises(InvalidKey):
            use()
    body[1] = np.random.default_rng(1).integers(min(chosen.primes), size=body[1].size)
    assert he.zeros(he.load_public(raw[:40] + body.tobytes()), 1)  # the control


def foreign_keys():
    public = {name: keys[0].raw for name, keys in KEYS.items()}
    yield b""
    yield b"\0" * len(public["bfv-sealapi"])
    for name in NAMES:
        raw = public[name]
        yield raw[:-1]
        yield raw + b"\0"
        yield b"X" + raw[1:]
        yield raw[:8] + bytes(32) + raw[40:]  # another parameter digest
    for chosen in SEAL:  # words above q, at both ends of each prime's share
        raw = public[chosen.name]
        yield raw[:40] + b"\xff" * (len(raw) - 40)
        for prime in range(len(chosen.primes)):
            for place in (prime * DEGREE, (prime + 1) * DEGREE - 1):
                at = 40 + 8 * place
                yield raw[:at] + struct.pack("<Q", chosen.primes[prime]) + raw[at + 8 :]
    yield "text"
    yield None


@pytest.mark.parametrize("raw", list(foreign_keys()), ids=lambda raw: type(raw).__name__)
def test_foreign_and_damaged_public_keys_are_refused(raw):
    for he in SCHEMES:
        with pytest.raises((InvalidKey, SecretKeyRefused)):
            he.load_public(raw)


@pytest.mark.parametrize("other", NAMES)
def test_keys_of_one_scheme_do_not_fit_another(he, other):
    if other == he.name:
        assert he.load_public(KEYS[other][0].raw)  # the control
        return
    public, secret = KEYS[other]
    for misuse in (
        lambda: he.encrypt(public, ROW),
        lambda: he.encrypt(public, ROW, bytes(he.ciphertext_bytes)),
        lambda: he.zeros(public, 1),
        lambda: he.accumulator(public),
        lambda: he.decrypt(secret, BLOBS[he.name]),
        lambda: he.load_public(public.raw),
    ):
        with pytest.raises(InvalidKey):
            misuse()


def refused_everywhere(he, blob):
    public, secret = KEYS[he.name]
    total = he.accumulator(public)
    total.add(BLOBS[he.name])
    with pytest.raises(InvalidCiphertext):
        total.add(blob)
    with pytest.raises(InvalidCiphertext):
        he.decrypt(secret, blob)
    assert total.count == 1


def words_of(chosen, blob):
    return np.frombuffer(blob, dtype="<u8").copy() if chosen is CKKS26 else unpack60(blob)


def bytes_of(chosen, words):
    return words.tobytes() if chosen is CKKS26 else pack60(words)


@pytest.mark.parametrize("chosen", SEAL, ids=lambda chosen: chosen.name)
def test_ciphertexts_that_need_no_key_are_refused(chosen):
    words = words_of(chosen, BLOBS[chosen.name])
    words[DEGREE:] = 0
    refused_everywhere(scheme(chosen.name), bytes_of(chosen, words))
    refused_everywhere(scheme(chosen.name), bytes(len(BLOBS[chosen.name])))
    for place in (DEGREE, 2 * DEGREE - 1):  # the control: one word of c1 is enough
        words[DEGREE:], words[place] = 0, 1
        scheme(chosen.name).accumulator(KEYS[chosen.name][0]).add(bytes_of(chosen, words))


@pytest.mark.parametrize("chosen", SEAL, ids=lambda chosen: chosen.name)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_ciphertext_among_many_that_breaks_a_rule_is_enough(chosen, place):
    he, (public, _) = scheme(chosen.name), KEYS[chosen.name]
    good = he.encrypt(public, np.zeros(3 * DEGREE, dtype=np.uint64))
    for first, last, value in ((DEGREE, 2 * DEGREE, 0), (7, 8, chosen.primes[0])):
        words = words_of(chosen, good).reshape(3, 2 * DEGREE)
        words[place, first:last] = value
        total = he.accumulator(public)
        with pytest.raises(InvalidCiphertext):
            total.add(bytes_of(chosen, words))
        assert total.count == total.coefficients == 0
        total.add(good)  # the control


@pytest.mark.parametrize("chosen", SEAL, ids=lambda chosen: chosen.name)
@pytest.mark.parametrize("above", [0, 1, None])
@pytest.mark.parametrize("place", [0, DEGREE - 1, DEGREE, 2 * DEGREE - 1])
def test_words_at_or_above_q_never_reach_seal(chosen, above, place):
    he, prime = scheme(chosen.name), chosen.primes[0]
    words = words_of(chosen, BLOBS[chosen.name])
    words[place] = prime - 1
    he.accumulator(KEYS[chosen.name][0]).add(bytes_of(chosen, words))  # the control
    top = 2 ** (64 if chosen is CKKS26 else 60) - 1  # the largest that the wire form holds
    words[place] = top if above is None else prime + above
    refused_everywhere(he, bytes_of(chosen, words))


@pytest.mark.parametrize("chosen", [BFV44, BFV48], ids=lambda chosen: chosen.name)
def test_words_of_64_bits_are_refused(chosen):
    refused_everywhere(scheme(chosen.name), words_of(chosen, BLOBS[chosen.name]).tobytes())


@pytest.mark.parametrize("chosen", SEAL, ids=lambda chosen: chosen.name)
@settings(max_examples=100)
@given(data=st.data())
def test_whatever_is_taken_has_one_encoding(chosen, data):
    he = scheme(chosen.name)
    blob = data.draw(st.just(BLOBS[chosen.name]) | mutations(BLOBS[chosen.name]))
    try:
        words = he.parse(blob)
    except InvalidCiphertext:
        return
    assert words.shape == (1, 2 * DEGREE)
    assert he.to_wire(words) == blob
    assert np.array_equal(words[0], words_of(chosen, blob))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150)
@given(data=st.data())
def test_mutated_ciphertexts_never_crash(name, data):
    he, (public, secret) = scheme(name), KEYS[name]
    blob = data.draw(mutations(BLOBS[name]))
    for use in (lambda: he.accumulator(public).add(blob), lambda: he.decrypt(secret, blob)):
        try:
            use()
        except CryptoError as refusal:
            assert isinstance(refusal, InvalidCiphertext)
            assert str(refusal) == InvalidCiphertext.what


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100)
@given(data=st.data())
def test_mutated_public_keys_never_crash(name, data):
    he, (public, _) = scheme(name), KEYS[name]
    raw = data.draw(mutations(public.raw))
    try:
        key = he.load_public(raw)
    except CryptoError as refusal:
        assert isinstance(refusal, (InvalidKey, SecretKeyRefused))
        return
    # Other words below q are another key, and so is another spelling: both have another name.
    assert key.key_id != public.key_id
    assert len(he.encrypt(key, ROW)) == he.ciphertext_bytes


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_random_bytes_are_no_key(raw):
    for he in SCHEMES:
        with pytest.raises((InvalidKey, SecretKeyRefused)):
            he.load_public(raw)


def test_nothing_is_written_to_standard_output(capfd):
    he, (public, secret) = scheme("bfv-sealapi"), KEYS["bfv-sealapi"]
    long = np.zeros(3 * DEGREE + 1, dtype=np.uint64)
    total = he.accumulator(public)
    total.add(he.encrypt(public, long))
    total.add_plain(he.blind(bytes(32), total.coefficients))
    he.decrypt(secret, total.to_bytes())
    assert capfd.readouterr() == ("", "")
