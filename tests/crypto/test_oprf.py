"""The group ristretto255, and the oblivious function whose key is in two parts."""

import contextlib
import copy
import hashlib
import hmac
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import rbcl
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto import oprf
from crypto.errors import CryptoError, InvalidKey, InvalidPoint, OutOfRange
from crypto.oprf import (
    Blinded,
    KeyShare,
    blind,
    expand_message_xmd,
    joined,
    pointwise,
)
from tests.crypto.known import mutations, unhex, vectors

RFC = vectors("rfc9497_oprf.json")
XMD = vectors("rfc9380_expand_sha512.json")
KEY = KeyShare.from_seed(bytes.fromhex(RFC["seed"]), bytes.fromhex(RFC["info"]))
POINT = KEY.evaluate(blind([b"x"]).points)[0]
PRIME, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
BAD = {
    "identity": bytes(32),
    "the prime, which is the identity unreduced": PRIME.to_bytes(32, "little"),
    "above the prime": b"\xff" * 32,
    "the identity with the top bit": b"\0" * 31 + b"\x80",
    "a point with the top bit": POINT[:-1] + bytes([POINT[-1] | 0x80]),
    "odd, so negative": b"\1" + bytes(31),
    "short": POINT[:-1],
    "long": POINT + b"\0",
}


def fields(case):
    return unhex(*(case[n] for n in ("input", "blind", "blinded", "evaluation", "output")))


@pytest.mark.parametrize("case", XMD["cases"])
def test_rfc9380_messages_expand(case):
    message, length, wanted = case
    found = expand_message_xmd(message.encode(), XMD["dst"].encode(), length)
    assert found.hex() == wanted


@pytest.mark.parametrize("case", RFC["cases"])
def test_rfc9497_known_answers(case):
    given_, r, blinded, evaluation, output = fields(case)
    batch = Blinded([given_], [r], map)
    assert batch.points == [blinded]
    assert KEY.evaluate(batch.points) == [evaluation]
    assert batch.finalize([evaluation]) == [output]


def test_rfc9497_key_derivation():
    (secret,) = unhex(RFC["key"])
    assert KeyShare(secret).evaluate([POINT]) == KEY.evaluate([POINT])


@pytest.mark.parametrize("case", RFC["cases"])
def test_o24_two_shares_give_the_known_answers_and_one_alone_does_not(case):
    given_, r, _, evaluation, output = fields(case)
    one, other = KEY.split()
    batch = Blinded([given_], [r], map)
    for first, second in ((one, other), (other, one)):
        halfway = first.evaluate(batch.points)
        assert halfway not in (batch.points, [evaluation])
        assert second.evaluate(halfway) == [evaluation]
        assert batch.finalize(second.evaluate(halfway)) == [output] != batch.finalize(halfway)


def test_shares_join_to_the_key_that_was_split():
    one, other = KEY.split()
    assert joined(one, other).evaluate([POINT]) == KEY.evaluate([POINT])
    assert one.evaluate([POINT]) != KEY.split()[0].evaluate([POINT])


@given(st.lists(st.binary(max_size=3), max_size=8), st.lists(st.binary(max_size=3), max_size=8))
@settings(max_examples=25, deadline=None)
def test_tags_are_equal_exactly_where_inputs_are(mine, theirs):
    one, other = KEY.split()
    tags = []
    for inputs in (mine, theirs):  # two clients, each with blinds of its own
        batch = blind(inputs)
        tags.append(batch.finalize(other.evaluate(one.evaluate(batch.points))))
    for item, tag in zip(mine, tags[0], strict=True):
        assert [tag == t for t in tags[1]] == [item == i for i in theirs]


def test_a_server_never_sees_the_same_point_twice():
    points = [*blind([b"item"] * 20).points, *blind([b"item"] * 20).points]
    assert len(set(points)) == 40


def test_threads_give_the_same_answers():
    inputs = [b"%d" % i for i in range(600)]  # three chunks
    r = oprf.random_scalars(600)
    alone = Blinded(inputs, r, map)
    with ThreadPoolExecutor(2) as pool:
        together = Blinded(inputs, r, pool.map)
        assert together.points == alone.points
        answers = KEY.evaluate(alone.points, pool.map)
        assert answers == KEY.evaluate(alone.points)
        assert together.finalize(answers, pool.map) == alone.finalize(answers)


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_point_is_refused_everywhere(name):
    batch = blind([b"a", b"b"])
    good = KEY.evaluate(batch.points)
    for place in (0, 1):
        bad = [*good]
        bad[place] = BAD[name]
        with pytest.raises(InvalidPoint) as refusal:
            KEY.evaluate(bad)
        assert str(refusal.value) == InvalidPoint.what
        for look in (oprf.check, batch.finalize):
            with pytest.raises(InvalidPoint):
                look(bad)
    oprf.check(good)


def test_why_points_are_looked_at():
    # The binding takes what is none for points; see crypto.oprf.
    assert rbcl.crypto_core_ristretto255_is_valid_point(bytes(32))
    assert rbcl.crypto_core_ristretto255_is_valid_point(BAD["a point with the top bit"])


@given(mutations(POINT))
@settings(max_examples=200)
def test_mutated_points_never_pass_as_the_point(mutated):
    with contextlib.suppress(InvalidPoint):
        assert KEY.evaluate([mutated]) != KEY.evaluate([POINT])


@pytest.mark.parametrize("answers", [[], [POINT], [POINT] * 3])
def test_an_answer_of_another_length_is_refused(answers):
    with pytest.raises(OutOfRange):
        blind([b"a", b"b"]).finalize(answers)
    with pytest.raises(OutOfRange):
        oprf.multiply(oprf.random_scalars(2), [POINT] * 3)


@pytest.mark.parametrize(
    "scalar", [bytes(32), ORDER.to_bytes(32, "little"), b"\xff" * 32, b"\1" * 31, b"\1" * 33]
)
def test_keys_that_are_none_are_refused(scalar):
    with pytest.raises(CryptoError):
        KeyShare(scalar)


def test_a_batch_inverts_as_one():
    scalars = oprf.random_scalars(50)
    for scalar, inverse in zip(scalars, oprf.inverses(scalars), strict=True):
        assert inverse == rbcl.crypto_core_ristretto255_scalar_invert(scalar)
    assert oprf.inverses([]) == []
    for place in (0, 3, 6):  # one zero would make all of them zero
        with pytest.raises(InvalidKey):
            oprf.inverses([*scalars[:place], bytes(32), *scalars[place:6]])


def test_scalars_multiply_and_zero_is_refused():
    one, other = oprf.random_scalars(2)
    product = int.from_bytes(one, "little") * int.from_bytes(other, "little") % ORDER
    assert oprf.multiply_scalars(one, other) == product.to_bytes(32, "little")
    for pair in ((one, bytes(32)), (bytes(32), one), (one, other[:31])):
        with pytest.raises(InvalidKey):
            oprf.multiply_scalars(*pair)


def test_random_scalars_fill_the_field_and_do_not_repeat():
    drawn = [int.from_bytes(s, "little") for s in oprf.random_scalars(4000)]
    assert len(set(drawn)) == 4000
    assert max(drawn) < ORDER
    counts = [0] * 16
    for value in drawn:
        counts[16 * value // ORDER] += 1
    assert sum((c - 250) ** 2 / 250 for c in counts) < 45  # chi2, 15 degrees, 1e-4
    assert oprf.random_scalars(0) == []


def test_a_map_that_gives_the_identity_is_refused(monkeypatch):
    monkeypatch.setattr(rbcl, "crypto_core_ristretto255_from_hash", lambda _: bytes(32))
    with pytest.raises(InvalidPoint):
        blind([b"x"])


def test_lengths_are_part_of_what_is_hashed():
    with pytest.raises(OutOfRange):
        blind([bytes(1 << 16)])
    with pytest.raises(OutOfRange):
        pointwise(bytes(33))
    assert pointwise(bytes(32) + POINT) == [bytes(32), POINT]
    for length, dst in ((0, b"x"), (64 * 255 + 1, b"x"), (32, b""), (32, bytes(256))):
        with pytest.raises(OutOfRange):
            expand_message_xmd(b"", dst, length)


@pytest.mark.parametrize("secret", [KEY, blind([b"item"])])
def test_secrets_are_mute(secret):
    assert repr(secret) == f"<{type(secret).__name__}>"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(secret)


def test_no_copy_of_libsodium_is_left_behind():
    from pathlib import Path

    assert not Path(rbcl.rbcl._sodium._name).exists()


def test_output_is_rfc_9497_by_hand():
    """Unblinded by the whole key: H(len | input | len | k H(input) | Finalize)."""
    uniform = expand_message_xmd(b"item", b"HashToGroup-OPRFV1-\0-ristretto255-SHA512", 64)
    point = rbcl.crypto_core_ristretto255_from_hash(uniform)
    (product,) = KEY.evaluate([point])
    wanted = hashlib.sha512(b"\0\4item\0\x20" + product + b"Finalize").digest()
    batch = blind([b"item"])
    assert hmac.compare_digest(batch.finalize(KEY.evaluate(batch.points))[0], wanted)
