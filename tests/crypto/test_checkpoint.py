"""Signed heads of logs."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import CryptoError, InvalidSignature, NotCanonical, OutOfRange
from crypto.merkle import MAX_TEXT, Checkpoint, key_hash, read
from crypto.signing import SigningKey, VerifyKey
from tests.crypto.known import mutations, vectors

KEY = SigningKey.from_seed(bytes(range(32)))
NAME = "fgl.example/client-1"
HEAD = Checkpoint(NAME, 17, bytes(range(32)))
NOTE = HEAD.sign(KEY, NAME)


def test_signed_note_known_answer():
    case = vectors("c2sp_signed_note.json")
    key = VerifyKey(base64.b64decode(case["type_and_key"])[1:])
    raw = base64.b64decode(case["hash_and_signature"])
    assert key_hash(case["name"], key).hex() == case["key_hash"] == raw[:4].hex()
    key.verify_raw(raw[4:], case["text"].encode())


def test_the_text_is_the_published_format():
    lines = NOTE.split("\n")
    assert lines[:4] == [NAME, "17", base64.b64encode(HEAD.root).decode(), ""]
    assert lines[4].startswith(f"\u2014 {NAME} ")
    assert lines[5:] == [""]
    raw = base64.b64decode(lines[4].split(" ")[2])
    assert raw[:4] == key_hash(NAME, KEY.public)
    KEY.public.verify_raw(raw[4:], HEAD.text().encode())


@given(
    st.text("abc/.-é ", min_size=1, max_size=20),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=32, max_size=32),
)
def test_round_trip(origin, size, head):
    made = Checkpoint(origin, size, head)
    assert read(made.sign(KEY, NAME), name=NAME, key=KEY.public) == made


def test_another_signer_is_refused():
    with pytest.raises(InvalidSignature):
        read(NOTE, name=NAME, key=SigningKey.generate().public)
    with pytest.raises(InvalidSignature):
        read(NOTE, name="fgl.example/client-2", key=KEY.public)
    swapped = NOTE.replace(f"\u2014 {NAME}", "\u2014 fgl.example/client-2")
    with pytest.raises(InvalidSignature):
        read(swapped, name="fgl.example/client-2", key=KEY.public)


def test_a_changed_head_is_refused():
    with pytest.raises(InvalidSignature):
        read(NOTE.replace("\n17\n", "\n18\n"), name=NAME, key=KEY.public)
    other = Checkpoint(NAME, 17, bytes(32)).text()
    with pytest.raises(InvalidSignature):
        read(NOTE.replace(HEAD.text(), other), name=NAME, key=KEY.public)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n17\n", "\n017\n"),
        ("\n17\n", "\n+17\n"),
        ("\n17\n", "\n-1\n"),
        ("\n17\n", "\n\u0661\u0667\n"),
        ("\n17\n", "\n" + "9" * 5000 + "\n"),
        ("\n17\n", "\n99999999999999999999\n"),
        ("\n\n", "\nextension\n\n"),
        ("\n\n", "\n"),
        ("\u2014 ", "- "),
        ("Hh8=\n", "Hh8\n"),
        ("Hh8=\n", "Hh9=\n"),
        (f"\n\u2014 {NAME}", "\n"),
        (NAME, ""),
    ],
)
def test_second_spellings_are_refused(old, new):
    assert old in NOTE
    with pytest.raises(NotCanonical):
        read(NOTE.replace(old, new, 1), name=NAME, key=KEY.public)


def test_length_is_bounded_and_lines_are_counted():
    for text in ("", "\n" * 5, NOTE + NOTE, NOTE + "x" * MAX_TEXT, NOTE[:-1], "\n" + NOTE):
        with pytest.raises(NotCanonical):
            read(text, name=NAME, key=KEY.public)


@given(mutations(NOTE.encode()))
def test_mutations_are_refused(data):
    with pytest.raises(CryptoError):
        read(data.decode("utf-8", "surrogateescape"), name=NAME, key=KEY.public)


@pytest.mark.parametrize(
    ("origin", "size", "head"),
    [
        ("", 0, bytes(32)),
        ("a\nb", 0, bytes(32)),
        ("a\0b", 0, bytes(32)),
        ("a", -1, bytes(32)),
        ("a", 2**63, bytes(32)),
        ("a", 0, bytes(31)),
    ],
)
def test_heads_that_cannot_be_written_are_refused(origin, size, head):
    with pytest.raises(OutOfRange):
        Checkpoint(origin, size, head)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\n", "x" * 129])
def test_names_that_cannot_be_read_back_are_refused(name):
    with pytest.raises(OutOfRange):
        HEAD.sign(KEY, name)
    with pytest.raises(OutOfRange):
        read(NOTE, name=name, key=KEY.public)


def test_a_checkpoint_signature_is_no_signature_of_ours():
    raw = base64.b64decode(NOTE.split(" ")[-1])[4:]
    with pytest.raises(InvalidSignature):
        KEY.public.verify("checkpoint", raw, HEAD.text().encode())
