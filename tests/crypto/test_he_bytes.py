"""What every scheme does with bytes that others wrote: keys, secrets, ciphertexts, garbage."""

import struct

import numpy as np
import pytest
import tenseal
import tenseal.sealapi as seal
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto import bfv_documented
from crypto.bfv_parts import fields
from crypto.bfv_sealapi import BFV44, BFV48, DEGREE
from crypto.ckks_sealapi import CKKS26
from crypto.errors import CryptoError, InvalidCiphertext, InvalidKey, SecretKeyRefused
from crypto.he import NAMES, scheme
from crypto.words60 import pack60, unpack60
from tests.crypto.known import mutations

SEAL = (BFV44, BFV48, CKKS26)
SCHEMES = [scheme(name) for name in NAMES]
KEYS = {he.name: he.keygen() for he in SCHEMES}
ROW = np.arange(DEGREE, dtype=np.uint64)
BLOBS = {he.name: he.encrypt(KEYS[he.name][0], ROW) for he in SCHEMES}


@pytest.fixture(params=SCHEMES, ids=lambda he: he.name)
def he(request):
    return request.param


def private_context(kind=tenseal.SCHEME_TYPE.BFV):
    sizes = [54, 55] if kind == tenseal.SCHEME_TYPE.BFV else [40, 20, 40]
    modulus = bfv_documented.PLAIN_MODULUS if kind == tenseal.SCHEME_TYPE.BFV else None
    degree = 4096 if kind == tenseal.SCHEME_TYPE.BFV else 8192
    return tenseal.context(kind, degree, modulus, sizes)


def secret_forms():
    context = private_context()
    everything = context.serialize(save_secret_key=True)
    no_public = context.serialize(save_public_key=False, save_secret_key=True)
    head = KEYS["bfv-documented"][0].raw[:40]
    yield "a private BFV context", everything
    yield "a private BFV context without its public part", no_public
    yield (
        "a private CKKS context",
        private_context(tenseal.SCHEME_TYPE.CKKS).serialize(save_secret_key=True),
    )
    yield "a private context in our frame", head + struct.pack("<I", len(everything)) + everything
    for name in NAMES:
        yield f"a handle of {name}", KEYS[name][1]


FORMS = dict(secret_forms())


@pytest.mark.parametrize(("form", "secret"), FORMS.items(), ids=list(FORMS))
def test_o9_secret_keys_are_refused_as_such(he, form, secret):
    if form == "a private context in our frame" and he.name != "bfv-documented":
        secret = secret[44:]
    with pytest.raises(SecretKeyRefused):
        he.load_public(secret)


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


def test_no_secret_hides_in_a_public_key():
    raw = KEYS["bfv-documented"][0].raw
    body = bfv_documented._unpad(raw, 40, InvalidKey)
    assert [number for number, _ in fields(body)] == [1, 2]
    assert not tenseal.context_from(body).is_private()


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
    other = tenseal.context(tenseal.SCHEME_TYPE.BFV, 8192, 1032193, [40, 40, 40])
    body = other.serialize(save_secret_key=False, save_relin_keys=False)
    yield public["bfv-documented"][:40] + struct.pack("<I", len(body)) + body
    yield "text"
    yield None


@pytest.mark.parametrize("raw", list(foreign_keys()), ids=lambda raw: type(raw).__name__)
def test_foreign_and_damaged_public_keys_are_refused(raw):
    for he in SCHEMES:
        with pytest.raises((InvalidKey, SecretKeyRefused)):
            he.load_public(raw)


def test_a_foreign_parameter_set_in_our_frame_is_refused():
    he, raw = scheme("bfv-documented"), KEYS["bfv-documented"][0].raw
    other = tenseal.context(tenseal.SCHEME_TYPE.BFV, 4096, 1032193, [54, 55])
    body = other.serialize(save_secret_key=False, save_relin_keys=False)
    framed = (raw[:40] + struct.pack("<I", len(body)) + body).ljust(len(raw), b"\0")
    assert len(framed) == len(raw)
    with pytest.raises(InvalidKey):
        he.load_public(framed)


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


def reframed(**changes):
    """The documented road's ciphertext with fields of its inner SEAL object changed."""
    import zstandard

    names = ["p0", "p1", "p2", "p3", "ntt", "size", "degree", "primes", "scale", "correction"]
    layout = struct.Struct("<4QB3QdQ")
    body = bfv_documented._unpad(BLOBS["bfv-documented"], 8, InvalidCiphertext)
    saved = dict(fields(body))[2]
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(saved[16:])
    values = dict(zip(names, layout.unpack_from(raw), strict=True))
    words = changes.pop("words", raw[layout.size + 24 :])
    header = raw[layout.size : layout.size + 8]
    values.update(changes)
    array = header + struct.pack("<QQ", 24 + len(words), len(words) // 8) + words
    packed = zstandard.ZstdCompressor().compress(layout.pack(*values.values()) + array)
    saved = saved[:8] + struct.pack("<Q", 16 + len(packed)) + packed
    size = bfv_documented._varint_bytes(len(saved))
    return bfv_documented._pad(
        b"SFGLBFV2", b"\x0a\x02\x80\x20\x12" + size + saved, len(BLOBS["bfv-documented"])
    )


def test_the_documented_frame_can_be_rebuilt():
    he, (_, secret) = scheme("bfv-documented"), KEYS["bfv-documented"]
    assert np.array_equal(he.decrypt(secret, reframed()), ROW)  # the control of the next test


@pytest.mark.parametrize(
    "changes",
    [
        {"words": bytes(16 * DEGREE)},
        {"size": 0, "words": b""},
        {"size": 1, "words": bytes(8 * DEGREE)},
        {"size": 3, "words": bytes(24 * DEGREE)},
        {"size": 16, "words": bytes(128 * DEGREE)},
        {"degree": 1 << 20, "words": bytes(1 << 24)},
        {"ntt": 1},
        {"scale": 1e300},
        {"correction": 7},
        {"p0": 0},
        {"words": b"\xff" * 16 * DEGREE},
        {"words": b""},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_hostile_seal_objects_are_refused(changes):
    refused_everywhere(scheme("bfv-documented"), reframed(**changes))


def test_hostile_frames_are_refused():
    blob = BLOBS["bfv-documented"]
    body = bfv_documented._unpad(blob, 8, InvalidCiphertext)
    frames = [
        b"SFGLBFV1" + blob[8:],
        blob[:8] + struct.pack("<I", 2**32 - 1) + blob[12:],
        blob[:-1] + b"\1",
        bfv_documented._pad(b"SFGLBFV2", b"", len(blob)),
        bfv_documented._pad(b"SFGLBFV2", body[:4], len(blob)),
        bfv_documented._pad(b"SFGLBFV2", b"\x0a\x02\x81\x20" + body[4:], len(blob)),
        bfv_documented._pad(b"SFGLBFV2", body + b"\x12\x00", len(blob)),
        bfv_documented._pad(b"SFGLBFV2", body[4:], len(blob)),
        bfv_documented._pad(b"SFGLBFV2", b"\x0b" + body[1:], len(blob)),
        bfv_documented._pad(b"SFGLBFV2", b"\xff" * 30, len(blob)),
    ]
    for frame in frames:
        refused_everywhere(scheme("bfv-documented"), frame)


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
    he, (public, secret) = scheme("bfv-documented"), KEYS["bfv-documented"]
    long = np.zeros(3 * DEGREE + 1, dtype=np.uint64)
    total = he.accumulator(public)
    total.add(he.encrypt(public, long))
    total.add_plain(he.blind(bytes(32), total.coefficients))
    he.decrypt(secret, total.to_bytes())
    assert capfd.readouterr() == ("", "")
