"""Canonical JSON: one value, one encoding."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import CryptoError, NotCanonical
from crypto.signing import MAX_DEPTH, MAX_INTEGER, _again, canonical, parse
from tests.crypto.known import mutations, vectors

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
SAMPLE = canonical({"round": 3, "cohort": ["a", "b"], "nested": {"x": [True, None, "\u20ac"]}})


@pytest.mark.parametrize("case", vectors("rfc8785_jcs.json")["cases"])
def test_rfc8785_reference_data(case):
    encoded = case["canonical"].encode()
    assert canonical(case["value"]) == encoded
    assert parse(encoded, limit=1000) == case["value"]


@given(VALUES)
def test_round_trip(value):
    encoded = canonical(value)
    assert parse(encoded, limit=len(encoded)) == value
    assert canonical(parse(encoded, limit=len(encoded))) == encoded


@given(st.dictionaries(TEXT, st.integers(0, 9), max_size=6))
def test_the_order_of_insertion_does_not_matter(members):
    assert canonical(members) == canonical(dict(reversed(members.items())))


def test_members_are_sorted_by_utf16_units_not_by_code_points():
    # U+FB33 is below U+1F602 as a code point and above its first surrogate as a UTF-16 unit.
    assert canonical({"\ufb33": 1, "\U0001f602": 2}).index("\U0001f602".encode()) == 2


def nested(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        2**53,
        -(2**53),
        (1, 2),
        {1: 2},
        {"a": {None: 1}},
        b"bytes",
        {"x": {1, 2}},
        "\ud800",
        {"\udfff": 1},
        nested(MAX_DEPTH + 1),
    ],
)
def test_values_outside_the_subset_are_refused(value):
    with pytest.raises(NotCanonical):
        canonical(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" 1",
        b"1 ",
        b"-0",
        b"01",
        b"1.0",
        b"1e3",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"9007199254740992",
        b"9" * 5000,
        b'{"a":1,"a":1}',
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'"\\u0041"',
        b'"\\/"',
        b'"\\ud800"',
        b'"\x00"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b"{'a':1}",
        b"[1,]",
        b"nul",
        b"[" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"0" + b"]" * (MAX_DEPTH + 1),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_second_spellings_and_garbage_are_refused(data):
    with pytest.raises(NotCanonical) as refusal:
        parse(data, limit=200_000)
    assert refusal.value.__cause__ is None


def test_the_deepest_accepted_value_is_accepted():
    assert parse(canonical(nested(MAX_DEPTH)), limit=100) == nested(MAX_DEPTH)


def test_size_is_checked_before_parsing():
    assert parse(b"[1,2]", limit=5) == [1, 2]
    with pytest.raises(NotCanonical, match="longer than the limit"):
        parse(b"[1,2]", limit=4)


def test_equal_texts_of_two_documents_are_held_once():
    """Evidence of a thousand clients is read as a whole; most of its texts are the same."""
    one, other = (parse(b'{"cohort":"abcdef","items":["xyz"]}', limit=99) for _ in range(2))
    assert one == other and one is not other
    assert all(a is b for a, b in zip(one, other, strict=True))
    assert one["cohort"] is other["cohort"]


def test_a_repeated_key_is_called_so():
    with pytest.raises(NotCanonical, match="repeats a key"):
        parse(b'{"a":1,"a":1}', limit=100)


def test_a_refusal_quotes_no_input():
    with pytest.raises(NotCanonical) as refusal:
        parse(b'{"patient": 4711}', limit=100)
    assert "4711" not in str(refusal.value)
    assert "patient" not in str(refusal.value)


@given(mutations(SAMPLE))
def test_mutations_are_refused_or_are_another_canonical_value(data):
    try:
        value = parse(data, limit=500)
    except CryptoError:
        return
    assert canonical(value) == data != SAMPLE


@given(st.binary(max_size=60))
def test_random_bytes_never_crash(data):
    with contextlib.suppress(NotCanonical):
        assert canonical(parse(data, limit=60)) == data


ASCII = st.text(st.characters(max_codepoint=127), max_size=12)
ASCII_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | ASCII,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ASCII, inner, max_size=4),
    max_leaves=20,
)


@given(ASCII_VALUES)
def test_what_the_fast_writer_writes_is_canonical(value):
    data = canonical(value)
    assert _again(value, data) == data and parse(data, limit=1 << 20) == value


@pytest.mark.parametrize("text", [b"9007199254740992", b"-9007199254740992", b"-0", b"01", b"1e3"])
def test_the_fast_writer_takes_no_other_numbers(text):
    for data in (text, b"[" + text + b"]", b'{"a":' + text + b"}"):
        with pytest.raises(NotCanonical):
            parse(data, limit=100)
