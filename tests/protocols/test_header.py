"""Headers of envelopes: a fixed layout, one encoding a header, and nothing else is read."""

import contextlib
import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import BadEnvelope
from protocols.versions import ENVELOPE
from protocols.wire.envelope import (
    COUNTERS,
    HEADER_LIMIT,
    LONGEST_NAME,
    MAGIC,
    NAMES,
    OWN_BYTES,
    SIGNED,
    WIDTH,
    Envelope,
    Header,
)
from protocols.wire.inbox import check_signature
from tests.protocols.wire import World


@pytest.fixture(scope="module")
def real():
    world = World().start()
    world.round(1)
    return world.wire


def framed(header, found):
    """Return an envelope around any bytes in a header's place."""
    head = MAGIC + struct.pack(">H", len(header))
    return head + header + found.signature + struct.pack(">I", len(found.body)) + found.body


def named(header, **names):
    """Return a header's bytes with other names in it, each with the length that it is given."""
    raw = header.encode()
    facts = {name: getattr(header, name).encode() for name in NAMES}
    start = len(raw) - sum(1 + len(text) for text in facts.values())
    spelt = {name: (len(text), text) for name, text in {**facts, **names}.items()}
    spelt |= {name: text for name, text in names.items() if isinstance(text, tuple)}
    return raw[:start] + b"".join(bytes((size,)) + text for size, text in spelt.values())


NAMED = {
    "empty": b"",
    "too long": b"x" * (LONGEST_NAME + 1),
    "as long as a length can say": b"x" * 255,
    "of another script": "é".encode(),
    "no text": b"\xff\xfe",
    "with a space": b"a b",
    "with a NUL": b"a\0",
    "with a line's end": b"a\n",
    "with DEL": b"a\x7f",
    "longer than it says": (1, b"ab"),
    "shorter than it says": (9, b"ab"),
}


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize("case", NAMED)
def test_names_that_are_no_short_printable_ascii_are_refused(real, case, field):
    found = Envelope.decode(real[0])
    assert named(found.header) == found.header.encode()
    assert framed(named(found.header), found) == real[0]
    other = named(found.header, **{field: NAMED[case]})
    for read in (lambda: Header.decode(other), lambda: Envelope.decode(framed(other, found))):
        with pytest.raises(BadEnvelope):
            read()


def test_a_header_is_refused_at_every_other_length(real):
    raw = Envelope.decode(real[0]).header.encode()
    for size in range(len(raw)):
        with pytest.raises(BadEnvelope):
            Header.decode(raw[:size])
    for more in (1, 2, 60, HEADER_LIMIT):
        with pytest.raises(BadEnvelope):
            Header.decode(raw + bytes(more))
        with pytest.raises(BadEnvelope):
            Header.decode(raw + b"x" * more)


def test_an_envelope_with_any_flipped_bit_of_its_header_is_refused():
    world = World().start()
    data = world.ask(1)[0].data
    start, size = len(MAGIC) + 2, len(Envelope.decode(data).header.encode())
    client, decoded = world.clients["client-1"], 0
    for place in range(start - 2, start + size):
        for bit in range(8):
            raw = bytearray(data)
            raw[place] ^= 1 << bit
            with contextlib.suppress(BadEnvelope):
                Header.decode(bytes(raw[start : start + size]))
                decoded += place >= start
            with pytest.raises(BadEnvelope):
                client.receive(bytes(raw))
    assert decoded > 4 * size  # what decodes is refused by the body's digest or the signature
    assert world.sites["client-1"].asked == 0
    assert client.receive(data)  # control: as it was, it is answered


@pytest.mark.parametrize("version", [2, ENVELOPE.version - 1, ENVELOPE.version + 1])
def test_a_signature_over_a_header_of_another_version_holds_for_none_of_this(real, version):
    world = World()
    header = Envelope.decode(world.start().wire[0]).header
    key = world.identities[header.sender].signing
    check_signature(header, key.sign(SIGNED, header.encode()), world.roster)
    with pytest.raises(BadEnvelope):
        check_signature(header, key.sign(f"envelope/{version}", header.encode()), world.roster)


DIGESTS = st.sampled_from(sorted(WIDTH)).flatmap(
    lambda name: st.tuples(st.just(name), st.text("0123456789abcdef", min_size=WIDTH[name],
                                                  max_size=WIDTH[name])))  # fmt: skip
COUNTS = st.tuples(st.sampled_from(COUNTERS), st.integers(0, (1 << 32) - 1))
TEXTS = st.tuples(
    st.sampled_from(NAMES),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=120),
)
PLAIN = Header(
    **{name: "0" * width for name, width in WIDTH.items()},
    **dict.fromkeys(COUNTERS, 0),
    **dict.fromkeys(NAMES, "a"),
)
HEADERS = st.lists(st.one_of(DIGESTS, COUNTS, TEXTS), max_size=12).map(
    lambda changes: dataclasses.replace(PLAIN, **dict(changes))
)


@given(HEADERS, HEADERS)
def test_headers_and_their_encodings_are_one_to_one(one, other):
    assert Header.decode(one.encode()) == one
    assert Header.decode(one.encode()).encode() == one.encode()
    assert (one == other) == (one.encode() == other.encode())
    bare = one.encode(without_body=True) == other.encode(without_body=True)
    assert bare == (dataclasses.replace(one, body=other.body) == other)


@given(HEADERS, st.integers(0, HEADER_LIMIT), st.binary(min_size=1, max_size=4))
def test_bytes_that_decode_are_what_that_header_encodes_to(header, place, piece):
    raw = header.encode()
    place %= len(raw)
    changed = raw[:place] + piece + raw[place + len(piece) :]
    with contextlib.suppress(BadEnvelope):
        found = Header.decode(changed)
        assert dataclasses.replace(found).encode() == changed  # encoded anew, not remembered
        assert (found == header) == (changed == raw)


UNFIT = [
    *({name: value} for name in ("plan", "body") for value in (
        "ab" * 31, "ab" * 33, "AB" * 32, "ab" * 31 + "  ", " " + "ab" * 31 + " ", "é" * 64,
        "٠" * 64, "0x" + "ab" * 31, "\\" * 64, None, b"ab" * 32, 7)),
    {"key": "0" * 15}, {"nonce": "0" * 64}, {"run": "0" * 64, "plan": "0" * 32},
    *({name: value} for name in COUNTERS for value in (-1, 1 << 32, "1", None, 1.5)),
    *({name: value} for name in NAMES for value in (
        "", "x" * 121, "é", "a b", "a\n", "\0", "\x7f", "\ud800", None, b"a")),
]  # fmt: skip


@pytest.mark.parametrize("facts", UNFIT, ids=repr)
def test_facts_that_have_no_place_in_a_header_are_not_written(facts):
    assert PLAIN.encode()
    with pytest.raises(BadEnvelope):
        dataclasses.replace(PLAIN, **facts).encode()


def test_the_header_without_its_body_still_names_everything_else(real):
    header = Envelope.decode(real[0]).header
    assert bytes.fromhex(header.body) not in header.encode(without_body=True)
    changes = {name: "1" * width for name, width in WIDTH.items()}
    changes |= {**dict.fromkeys(COUNTERS, 9), **dict.fromkeys(NAMES, "other")}
    assert set(changes) == {field.name for field in dataclasses.fields(header)}
    for name, value in changes.items():
        changed = dataclasses.replace(header, **{name: value}).encode(without_body=True)
        assert (changed == header.encode(without_body=True)) == (name == "body")


def test_a_header_of_another_body_is_that_header(real):
    header = Envelope.decode(real[0]).header
    other = dataclasses.replace(header, body="cd" * 32)
    found = header.of_body(b"\xcd" * 32)
    assert (found, found.encode()) == (other, other.encode())
    for wrong in (b"", b"\xcd" * 31, b"\xcd" * 33):
        with pytest.raises(BadEnvelope):
            header.of_body(wrong)


def test_headers_of_one_sum_are_encoded_as_each_of_them(real):
    header = Envelope.decode(real[-1]).header
    said = {"body": "12" * 32, "head": "34" * 32, "nonce": "56" * 16}
    for sender in ("client-2", "a", "x" * LONGEST_NAME):
        each = dataclasses.replace(header, sender=sender, **said)
        own = bytes.fromhex("".join(said.values()))
        assert header.siblings()(sender, own) == each.encode()
        assert len(own) == OWN_BYTES
        assert each.encode()[:OWN_BYTES] == own
