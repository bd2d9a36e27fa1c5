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


def rest(envelope):
    return envelope.signature, envelope.body


def test_a_body_of_another_envelope_is_refused(real):
    found = Envelope.decode(real[0])
    for digest in ("ab" * 32, "0" * 64):
        raw = Envelope(dataclasses.replace(found.header, body=digest), *rest(found)).encode()
        with pytest.raises(BadEnvelope, match="digest"):
            Envelope.decode(raw)
