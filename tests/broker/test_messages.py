"""Messages cross in parts; what is no message of ours is refused as such, and nothing else."""

from __future__ import annotations

import contextlib
import json
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fgl.transports.broker import messages
from secure_fgl.transports.broker.messages import (
    HEAD_BYTES,
    Assembly,
    Kind,
    Malformed,
    Part,
    decode,
    encode,
    split,
)

NAME = bytes(range(16))
SMALL = 64
"""Bytes of a part here; `messages.PART` would make examples of megabytes."""


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "PART", SMALL)
        yield


def assembled(parts: list[Part], limit: int = 1 << 20) -> bytes | None:
    """Return what a receiver makes of parts that crossed as bytes."""
    first, *rest = [Part.decode(part.encode()) for part in parts]
    whole = Assembly(first, limit)
    message = whole.add(first)
    for part in rest:
        assert message is None
        message = whole.add(part)
    return message


@given(st.binary(max_size=4 * SMALL + 2), st.sampled_from(Kind))
def test_a_message_comes_back_as_it_was_in_parts_of_at_most_their_size(
    message: bytes, kind: Kind
) -> None:
    parts = split(kind, NAME, message, hold=7)
    assert assembled(parts) == message
    assert [part.index for part in parts] == [*range(len(parts))]
    assert all(len(part.encode()) <= HEAD_BYTES + SMALL for part in parts)
    assert len(parts) == max(1, -(-len(message) // SMALL))
    assert {(part.kind, part.name, part.hold) for part in parts} == {(kind, NAME, 7)}


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL, 2 * SMALL + 1])
def test_around_the_size_of_a_part(size: int) -> None:
    message = bytes(range(256)) * 2
    assert assembled(split(Kind.PUT, NAME, message[:size])) == message[:size]


def test_the_size_of_a_part_as_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PART", 4 << 20)
    for size in ((4 << 20) - 1, 4 << 20, (4 << 20) + 1):
        parts = split(Kind.REPLY, NAME, bytes(size))
        assert len(parts) == 1 + (size > 4 << 20)
        assert assembled(parts, limit=size) == bytes(size)


@given(st.permutations(range(4)).filter(lambda order: order != [0, 1, 2, 3]))
def test_parts_out_of_their_order_are_refused(order: list[int]) -> None:
    parts = split(Kind.PUT, NAME, bytes(3 * SMALL + 1))
    with pytest.raises(Malformed):
        assembled([parts[i] for i in order])


WRONG = [
    {"index": 0}, {"index": 2}, {"name": bytes(16)}, {"count": 4}, {"size": 3 * SMALL - 1},
    {"digest": bytes(32)}, {"data": bytes(SMALL - 1)}, {"data": b""},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{next(iter(wrong))}")
def test_a_part_that_is_not_the_one_due_is_refused(wrong: dict[str, object]) -> None:
    first, second, _ = split(Kind.PUT, NAME, bytes(3 * SMALL))
    whole = Assembly(first, 1 << 10)
    whole.add(first)
    with pytest.raises(Malformed):
        whole.add(replace(second, **wrong))  # type: ignore[arg-type]


def test_a_byte_that_changed_on_the_way_is_noticed() -> None:
    first, second = split(Kind.PUT, NAME, bytes(SMALL + 1))
    whole = Assembly(first, 1 << 10)
    whole.add(first)
    with pytest.raises(Malformed, match="digest"):
        whole.add(replace(second, data=b"\x01"))


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 30))
def test_a_size_above_the_limit_is_refused_before_a_byte_is_kept(limit: int, beyond: int) -> None:
    size = limit + 1 + beyond
    first = Part(Kind.PUT, NAME, 0, min(-(-size // SMALL), (1 << 32) - 1), size)
    with pytest.raises(Malformed, match="large"):
        Assembly(first, limit)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
def test_numbers_that_contradict_each_other_are_refused(count: int, index: int, of: int) -> None:
    size = count * SMALL - 1
    first = Part(Kind.PUT, NAME, index, of, size)
    if (index, of) == (0, count):
        assert Assembly(first, size).next == 0
        return
    with pytest.raises(Malformed):
        Assembly(first, size)


@given(st.binary(max_size=HEAD_BYTES + 2 * SMALL))
def test_any_bytes_are_a_part_or_malformed(data: bytes) -> None:
    for tried in (data, b"FGL1" + data):
        try:
            part = Part.decode(tried)
        except Malformed:
            continue
        assert part.encode() == tried
        with contextlib.suppress(Malformed):
            Assembly(part, 1 << 10).add(part)


@given(st.data())
def test_a_part_that_is_cut_or_changed_is_malformed_or_another_part(data: st.DataObject) -> None:
    whole = split(Kind.PUT, NAME, b"x" * SMALL)[0].encode()
    cut = whole[: data.draw(st.integers(0, HEAD_BYTES - 1))]
    with pytest.raises(Malformed):
        Part.decode(cut)
    at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    changed = bytearray(whole)
    changed[at] ^= value
    try:
        part = Part.decode(bytes(changed))
        result = Assembly(part, 1 << 10).add(part)
    except Malformed:
        return
    # The kind, the name, and how long to hold are not under the digest of the message.
    assert result == b"x" * SMALL
    assert 4 <= at < 21 or 37 <= at < 41


@given(st.lists(st.binary(max_size=40), max_size=5), st.text('ab"\u00e9', max_size=20))
def test_a_head_and_envelopes_come_back(envelopes: list[bytes], word: str) -> None:
    head = {"do": word, "seconds": 3.5}
    assert decode(encode(head, envelopes)) == (head, envelopes)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    for tried in (data, struct.pack(">I", len(data)) + data):
        with contextlib.suppress(Malformed):
            decode(tried)


HEADS = [
    {}, {"sizes": 3}, {"sizes": [-1, 4]}, {"sizes": [True, 2]}, {"sizes": ["3"]}, {"sizes": [1, 1]},
    {"sizes": [4]}, {"sizes": [3.0]}, {"sizes": {"0": 3}}, {"sizes": [0] * ((1 << 17) + 1)},
    {"sizes": [3], "x": "a" * (1 << 20)}, [3], "sizes", 3,
]  # fmt: skip


@pytest.mark.parametrize("head", HEADS, ids=lambda head: str(head)[:20])
def test_a_list_of_sizes_that_is_not_the_envelopes_is_refused(head: object) -> None:
    text = json.dumps(head).encode()
    with pytest.raises(Malformed):
        decode(struct.pack(">I", len(text)) + text + b"abc")
