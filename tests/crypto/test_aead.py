"""One message, one key."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from crypto.aead import OVERHEAD, lock, lock_at_rest, lock_each, unlock, unlock_at_rest, unlock_one
from crypto.errors import InvalidKey, InvalidSeal
from crypto.samplers import entropy
from tests.crypto.known import mutations

KEY = bytes(range(32))


@given(st.binary(max_size=80), st.binary(max_size=20))
def test_what_is_locked_opens_under_its_info_only(plaintext, info):
    locked = lock(KEY, info, plaintext)
    assert len(locked) == len(plaintext) + OVERHEAD
    assert unlock(KEY, info, locked) == plaintext
    with pytest.raises(InvalidSeal):
        unlock(KEY, info + b"\0", locked)
    with pytest.raises(InvalidSeal):
        unlock(KEY[::-1], info, locked)


@given(st.data())
def test_no_altered_message_opens(data):
    locked = lock(KEY, b"info", b"two shares of thirty-two bytes")
    with pytest.raises(InvalidSeal):
        unlock(KEY, b"info", data.draw(mutations(locked)))


def test_it_is_aes_256_gcm_with_a_zero_nonce():
    key = entropy(32)
    assert AESGCM(key).decrypt(bytes(12), lock(key, b"info", b"share"), b"info") == b"share"


def test_the_published_answer_of_aes_256_gcm():
    # McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B, test cases 13 and 14.
    assert lock(bytes(32), b"", b"").hex() == "530f8afbc74536b9a963b4f1c4cb738b"
    assert lock(bytes(32), b"", bytes(16)).hex() == (
        "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    )


@pytest.mark.parametrize("length", [0, 16, 24, 31, 33])
def test_only_256_bit_keys_lock_and_unlock(length):
    with pytest.raises(InvalidKey):
        lock(bytes(length), b"", b"x")
    with pytest.raises(InvalidKey):
        unlock(bytes(length), b"", bytes(OVERHEAD))


def test_two_pieces_at_rest_under_one_key_have_nothing_in_common():
    plaintext = bytes(200)
    one, other = (lock_at_rest(KEY, b"info", plaintext) for _ in range(2))
    assert unlock_at_rest(KEY, b"info", one) == unlock_at_rest(KEY, b"info", other) == plaintext
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 20  # one in 256 is the same


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=80)), max_size=5))
def test_messages_locked_together_open_each_by_itself(messages):
    key = entropy(32)
    locked = lock_each(key, messages)
    for number, (info, data) in enumerate(messages):
        assert unlock_one(key, number, info, locked[number]) == data
        for other in (number + 1, number + 256):
            with pytest.raises(InvalidSeal):
                unlock_one(key, other, info, locked[number])
        with pytest.raises(InvalidSeal):
            unlock_one(key, number, info + b"\0", locked[number])


def test_messages_locked_together_have_nothing_in_common():
    one, other = lock_each(KEY, [(b"info", bytes(200))] * 2)
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 20  # one in 256 is the same
