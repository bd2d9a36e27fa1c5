"""Tags by one key, and the tags that can be turned back."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from crypto.errors import InvalidKey
from crypto.oprf import keyed_tags, unsafe_public_tags, unsafe_signature_tags


def test_rfc4231_case_with_a_key_of_32_bytes_by_hand():
    # RFC 2104 written out: no published case has a key of exactly 32 bytes.
    key, inner, outer = bytes(range(32)), bytearray(b"\x36" * 64), bytearray(b"\x5c" * 64)
    for at, byte in enumerate(key):
        inner[at] ^= byte
        outer[at] ^= byte
    hashed = hashlib.sha256(inner + b"item").digest()
    assert keyed_tags(key, [b"item"]) == [hashlib.sha256(outer + hashed).digest()]


def test_equal_items_have_equal_tags_under_one_key_only():
    one, other = bytes(32), b"\1" * 32
    tags = keyed_tags(one, [b"a", b"b", b"a"])
    assert tags[0] == tags[2] != tags[1]
    assert not set(tags) & set(keyed_tags(other, [b"a", b"b"]))


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_keys_of_another_length_are_refused(length):
    with pytest.raises(InvalidKey):
        keyed_tags(bytes(length), [b"a"])


def test_the_public_key_alone_turns_signatures_back():
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_numbers()
    catalogue = {hashlib.sha256(b"%d" % i).digest(): i for i in range(500)}
    tags = unsafe_signature_tags(key, [b"%d" % i for i in (3, 77, 3, 499)])
    found = [pow(int.from_bytes(t, "big"), public.e, public.n).to_bytes(256, "big") for t in tags]
    assert [catalogue[f[-32:]] for f in found] == [3, 77, 3, 499]


def test_the_public_key_alone_makes_every_deterministic_tag():
    private = X25519PrivateKey.generate()
    key = private.public_key().public_bytes_raw()
    texts = [b"%d" % i for i in range(50)]
    tags = unsafe_public_tags(key, [texts[3], texts[7], texts[3]])
    assert tags[0] == tags[2] != tags[1]
    table = dict(zip(unsafe_public_tags(key, texts), texts, strict=True))
    assert [table[tag] for tag in tags] == [texts[3], texts[7], texts[3]]
    other = X25519PrivateKey.generate().public_key().public_bytes_raw()
    assert not set(tags) & set(unsafe_public_tags(other, texts))
    for wrong in (bytes(32), key[:31], b""):
        with pytest.raises(InvalidKey):
            unsafe_public_tags(wrong, texts)
