"""Envelopes: one spelling, nothing accepted but what was written."""

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.samplers import Stream
from protocols.errors import BadEnvelope
from protocols.wire import envelope as module
from protocols.wire.envelope import (
    Envelope,
    envelope_bytes,
    header_bytes,
    read_signed_header,
    signed_header,
)
from protocols.wire.header import HEADER_LIMIT, Header
from tests.protocols.wire import World

CASES = 3000


@pytest.fixture(scope="module")
def real():
    world = World().start()
    world.round(1)
    return world.wire


def mutants(data, count, stream):
    """Yield `count` alterations: flips, cuts, insertions, swaps, doubled and zeroed pieces."""
    for number in range(count):
        raw = bytearray(data)
        # Most mutations go to the part that is parsed, some anywhere.
        span = min(len(raw), 900) if number % 4 else len(raw)
        place, other = (int(v) for v in stream.uniform(span, 2))
        kind = number % 7
        if kind == 0:
            raw[place] ^= 1 << (number // 7 % 8)
        elif kind == 1:
            del raw[place:]
        elif kind == 2:
            raw[place:place] = stream.bytes(1 + number % 5)
        elif kind == 3:
            raw[place], raw[other] = raw[other], raw[place]
        elif kind == 4:
            del raw[place : place + 1 + number % 5]
        elif kind == 5:
            raw[place:place] = raw[place : place + 20]
        else:
            raw[place : place + 4] = bytes(len(raw[place : place + 4]))
        yield bytes(raw)


def test_mutants_raise_bad_envelope_or_are_what_was_written(real):
    stream, survivors, seen = Stream(b"\x09" * 32), 0, 0
    world = World()
    kinds = {Envelope.decode(d).header.item: d for d in real}
    for data in kinds.values():
        for raw in mutants(data, CASES // len(kinds) + 1, stream):
            seen += 1
            try:
                found = Envelope.decode(raw)
            except BadEnvelope:
                continue
            assert found.encode() == raw  # one spelling only
            assert found.size == len(raw)
            survivors += raw != data
            if raw != data:  # it decodes, but no party of another world signed it
                with pytest.raises(BadEnvelope):
                    world.aggregator.receive(raw)
    assert seen >= 2000
    assert survivors > 0  # altered signatures decode: the test reaches the signature check


def test_an_altered_envelope_that_decodes_is_never_accepted():
    world = World().start()
    ask, stream, reached = world.ask(1)[0].data, Stream(b"\x0a" * 32), 0
    client = world.clients["client-1"]
    for raw in mutants(ask, 700, stream):
        if raw == ask:
            continue
        with contextlib.suppress(BadEnvelope):
            reached += bool(Envelope.decode(raw))
        with pytest.raises(BadEnvelope):
            client.receive(raw)
    assert reached
    assert world.sites["client-1"].asked == 0


@given(st.binary(max_size=300))
def test_any_bytes_raise_bad_envelope(raw):
    for data in (raw, module.MAGIC + raw, module.MAGIC + b"\0\x02{}" + raw):
        with pytest.raises(BadEnvelope):
            Envelope.decode(data)
        with pytest.raises(BadEnvelope):
            read_signed_header(data)


def test_round_trip(real):
    for data in real:
        found = Envelope.decode(data)
        assert found.encode() == data
        assert found.size == len(data)
        header, signature, size = read_signed_header(signed_header(found) + b"tail")
        assert (header, signature) == (found.header, found.signature)
        assert size == len(signed_header(found))
        route = (header.item, header.sender, header.recipient)
        assert len(data) == envelope_bytes(header_bytes(*route), len(found.body))


def test_an_envelope_is_mute(real):
    found = Envelope.decode(real[-1])
    assert repr(found).startswith("<Envelope ")
    assert len(repr(found)) < 80
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.body = b""


def rebuilt(data, **changes):
    """Return the envelope with a header changed as text, otherwise well-formed."""
    import json
    import struct

    from crypto.signing.canonical import canonical

    found = Envelope.decode(data)
    record = {**json.loads(found.header.encode()), **changes}
    header = canonical({k: v for k, v in record.items() if v is not ...})
    size = struct.pack(">I", len(found.body))
    head = module.MAGIC + struct.pack(">H", len(header))
    return head + header + found.signature + size + found.body


BROKEN = {
    "field missing": {"nonce": ...},
    "field too many": {"extra": "1"},
    "number": {"round": 1},
    "null": {"round": None},
    "list": {"sender": ["a"]},
    "short counter": {"round": "1"},
    "signed counter": {"round": "-0000001"},
    "spaced counter": {"round": " 0000001"},
    "float counter": {"round": "0000001."},
    "digits of another script": {"round": "٠٠٠٠٠٠٠١"},
    "superscript": {"round": "0000000²"},
    "short digest": {"plan": "ab"},
    "wide digest": {"plan": "é" * 64},
    "long name": {"sender": "x" * 121},
    "huge name": {"sender": "x" * HEADER_LIMIT},
    "body of another envelope": {"body": "ab" * 32},
    "body in capitals": {"body": "AB" * 32},
}


@pytest.mark.parametrize("case", BROKEN)
def test_headers_that_are_not_exactly_ours_are_refused(real, case):
    assert rebuilt(real[0]) == real[0]
    with pytest.raises(BadEnvelope):
        Envelope.decode(rebuilt(real[0], **BROKEN[case]))


def test_a_header_in_another_spelling_is_refused(real):
    found = Envelope.decode(real[0])
    text = found.header.encode()
    for other in (text.replace(b":", b": ", 1), text[:-1] + b" }", b" " + text, text + b"\n",
                  text.replace(b"key.call", b"key\\u002ecall", 1)):  # fmt: skip
        assert other != text
        with pytest.raises(BadEnvelope):
            Header.decode(other)


def test_the_header_without_its_body_still_names_everything_else(real):
    header = Envelope.decode(real[0]).header
    assert header.body.encode() not in header.encode(without_body=True)
    for field in dataclasses.fields(header):
        if field.name not in ("body",):
            text = str(getattr(header, field.name))
            changed = dataclasses.replace(
                header,
                **{field.name: 9 if text.isdigit() and len(text) < 8 else text[:-1] + "~"},
            )
            assert changed.encode(without_body=True) != header.encode(without_body=True)


@pytest.mark.parametrize("body", ["ab" * 32, "", "\\" * 64, "a" * 63 + "\\", "a" * 63 + '"', "é"])
def test_a_header_without_its_body_is_the_header_of_an_empty_one(real, body):
    header = dataclasses.replace(Envelope.decode(real[0]).header, body=body)
    empty = dataclasses.replace(header, body="").encode()
    assert header.encode(without_body=True) == empty
    other = dataclasses.replace(header, body="cd" * 32)
    found = header.of_body("cd" * 32)
    assert (found, found.encode()) == (other, other.encode())


def decoded(raw):
    """Return a header and its encoding, or None."""
    with contextlib.suppress(BadEnvelope):
        found = Header.decode(raw)
        return found, found.encode(), found.encode(without_body=True)


def test_usual_headers_are_read_as_all_others_are(real, monkeypatch):
    stream = Stream(b"\x0b" * 32)
    headers = {Envelope.decode(data).header.encode() for data in real[-20:]}
    raws = [raw for header in headers for raw in (header, *mutants(header, 150, stream))]
    raws += [header.replace(b"a", other) for header in headers for other in (b"\x7f", b"\\u0061")]
    quick = [decoded(raw) for raw in raws]
    monkeypatch.setattr("protocols.wire.header._usual", lambda data: None)
    assert quick == [decoded(raw) for raw in raws]
    assert None in quick
    assert len({found[1] for found in quick if found}) > len(headers)


def test_headers_of_one_sum_are_encoded_as_each_of_them(real):
    header = Envelope.decode(real[-1]).header
    said = ("client-2", "12" * 32, "34" * 32, "56" * 16)
    names = ("sender", "body", "head", "nonce")
    each = dataclasses.replace(header, **dict(zip(names, said, strict=True)))
    assert header.siblings()(*said) == each.encode()
    percent = dataclasses.replace(each, given="%s%" * 21 + "%")
    assert dataclasses.replace(header, given=percent.given).siblings()(*said) == percent.encode()
    with pytest.raises(BadEnvelope):
        dataclasses.replace(header, given="@head@").siblings()
