"""What passes the one socket between a session's process and its worker: frames of plain values."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from algorithms.tasks import Site
from protocols.errors import LocalProtocolError, NotInPlan, PolicyError, UnfitMessage
from protocols.messages import (
    Message,
    MixedMessage,
    NoisedMessage,
    RowSumMessage,
    partial_of,
    unmixed_of,
    values,
)
from protocols.privacy.noising import PrivateSteps
from protocols.sessions.store.codec import StateCodec
from protocols.unready import unsummed_of

# --- Frames over the one socket between a session's process and its worker ---
#
# A frame is its length, 8 bytes little-endian, and so many bytes; the first of them is its kind.
# The worker's side reads and writes its descriptor, since it has no call for sockets. The session's
# side believes nothing: every frame has a deadline and a largest size.

LARGEST = 1 << 31
"""The most bytes of a worker's frame: far beyond a large model with its optimiser's moments."""

CLOSED, ANSWER, ERROR, PLANTED = b"C", b"A", b"E", b"P"
"""Kinds: the sandbox is closed and waits; an answer; what went wrong, in a closed form; a client's
canaries are in its data."""

_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20


class FrameError(Exception):
    """The other end is gone, is late, or says too much."""


def read(descriptor: int) -> bytes | None:
    """Return the next frame at the worker; None when the session has gone."""
    head = _exactly(descriptor, _LENGTH.size)
    return None if head is None else _exactly(descriptor, _LENGTH.unpack(head)[0])


def _exactly(descriptor: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(descriptor, min(size - len(data), _PIECE))
        if not piece:
            return None
        data += piece
    return bytes(data)


def write(descriptor: int, kind: bytes, content: bytes) -> None:
    """Write a frame at the worker; raises OSError when the session has gone."""
    for part in (_LENGTH.pack(len(kind) + len(content)) + kind, content):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def ask(channel: socket.socket, content: bytes, seconds: float) -> tuple[bytes, memoryview]:
    """Send a frame to the worker and return its reply: kind and content.

    Args:
        channel: the session's end.
        content: what is sent.
        seconds: until when the whole reply must be here.

    Raises:
        FrameError: it is not, or it is too large, or the worker has gone.
    """
    deadline = time.monotonic() + seconds
    try:
        channel.settimeout(seconds)
        flags = getattr(socket, "MSG_NOSIGNAL", 0)  # a dead worker ends nobody else
        channel.sendall(_LENGTH.pack(len(content)), flags)
        channel.sendall(content, flags)
        (size,) = _LENGTH.unpack(_received(channel, _LENGTH.size, deadline))
        if not 1 <= size <= LARGEST:
            raise FrameError("it said more than an answer can hold, or nothing")
        found = memoryview(_received(channel, size, deadline))
    except TimeoutError as error:
        raise FrameError(f"it did not answer within {seconds:.0f} seconds") from error
    except OSError as error:
        raise FrameError("it ended") from error
    return bytes(found[:1]), found[1:]


def _received(channel: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()  # grows with what came, not with what was promised
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        channel.settimeout(left)
        piece = channel.recv(min(size - len(data), _PIECE))
        if not piece:
            raise FrameError("it ended")
        data += piece
    return bytes(data)


# --- What goes to a worker and comes back: plain values, and messages of declared kinds ---
#
# The codec is the one of kept state without the tags that stand for a party's own things: what a
# worker says can name no key, no document and no session. No pickle.

FAILURES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(ArithmeticError, NotInPlan, UnfitMessage, PolicyError, LocalProtocolError),
        *(AssertionError, AttributeError, ImportError, IndexError, KeyError, MemoryError),
        *(NotImplementedError, OSError, RuntimeError, TypeError, ValueError, Exception),
    )
}
"""What an error is: the first of these. Its text could hold data."""

LONGEST = 300
"""Characters of an error's text, where data are generated and it may be shown."""

_PLAIN = {
    *("array", "bytes", "bytearray", "dict", "flat", "float", "frozenset", "list", "message"),
    *("scalar", "set", "tuple"),
}

_TREE_LIMIT = 1 << 24  # bytes of JSON: names and single numbers; arrays stand beside it
_TIMES, _SLACK = 4, 1 << 24  # a model and its best one may be the same array, named a few times

Said = list[list[Any]]


class PlainCodec(StateCodec):
    """Packs and unpacks numbers, texts, bytes, arrays, containers and messages, nothing else.

    Args:
        kinds: every message type that may occur.
    """

    def __init__(self, kinds: Iterable[type[Message]]) -> None:
        super().__init__({}, kinds, None, b"")
        self._left = 0  # bytes that the value under way may still take

    def unpack(
        self,
        data: bytes,
        fetch: Callable[[str], bytes] | None = None,
        only: Sequence[str] = (),
    ) -> Any:
        """Return the value of these bytes, whoever wrote them.

        Raises:
            LocalProtocolError: it is none that an answer may hold, or would take far more room
                than its bytes: one array may be named many times.
            Exception: whatever else damaged bytes bring about.
        """
        if int.from_bytes(data[:8], "little") > _TREE_LIMIT:
            raise LocalProtocolError("A value has more parts than an answer can have.")
        self._left = _SLACK + _TIMES * len(data)
        return super().unpack(data, fetch, only)

    def _read(self, tree: Any, blobs: list[bytes]) -> Any:
        if isinstance(tree, dict) and not _PLAIN.issuperset(tree):
            raise LocalProtocolError("A value is none of those that an answer may hold.")
        found = super()._read(tree, blobs)
        if isinstance(found, np.ndarray) and (found.dtype.hasobject or found.dtype.fields):
            raise LocalProtocolError("An array holds something else than numbers.")
        if isinstance(found, np.ndarray | bytes | bytearray):
            self._left -= found.nbytes if isinstance(found, np.ndarray) else len(found)
            if self._left < 0:
                raise LocalProtocolError("A value takes far more room than its bytes.")
        return found


def steps_of(site: Site) -> PrivateSteps | None:
    """Return what draws a site's private training; None where training is not private."""
    found = site.training
    return found if isinstance(found, PrivateSteps) else None


def said(messages: Iterable[Message]) -> Said:
    """Return what an answer says as plain values: of each message its kind's name and content."""
    rows: Said = []
    for message in messages:
        name = _name(type(message))
        if (whole := unmixed_of(message)) is not None:
            fields = {n: getattr(whole, n) for n in ("table", "index", "label")}
            rows.append([name, "unmixed", fields])
        elif (rest := partial_of(message)) is not None:
            rows.append([name, "partial", {"catalogue": rest.catalogue, "fields": rest.fields}])
        elif (terms := unsummed_of(message)) is not None:
            fields = {n: getattr(terms, n) for n in ("own", "links", "wanted")}
            rows.append([name, "unsummed", {**fields, **_parts(terms.terms)}])
        else:
            rows.append([name, "fields", values(message)])
    return rows


def _parts(terms: Any) -> dict[str, Any]:
    """Return a matrix's arrays: itself, or those of a CSR."""
    if isinstance(terms, np.ndarray):
        return {"terms": terms}
    parts = {name: getattr(terms, name) for name in ("data", "indices", "indptr")}
    return {**parts, "shape": np.array(terms.shape)}


def _whole(parts: Mapping[str, Any]) -> Any:
    """Return the matrix of these arrays; raises ValueError if they are none of one."""
    import scipy.sparse as sp

    if "terms" in parts:
        return parts["terms"]
    rows, width = (int(size) for size in parts["shape"])
    content = (parts["data"], parts["indices"], parts["indptr"])
    found = sp.csr_array(content, shape=(rows, width))
    found.check_format(full_check=True)
    return found


def _name(kind: type[Message]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def messages(rows: Said, kinds: Iterable[type[Message]]) -> tuple[Message, ...]:
    """Return the messages that `said` wrote down.

    Args:
        rows: what came from the worker.
        kinds: what the exchange declares; one of each must be there, in any order.

    Raises:
        LocalProtocolError: other kinds, other fields, or values that are no numbers.
    """
    known = {_name(kind): kind for kind in kinds}
    if not isinstance(rows, list) or sorted(row[0] for row in rows) != sorted(known):
        raise LocalProtocolError("An answer does not hold the kinds of messages it declares.")
    return tuple(_message(known[name], form, content) for name, form, content in rows)


def _message(kind: type[Message], form: str, content: Mapping[str, Any]) -> Message:
    names = {field.name for field in kind.fields}
    if form == "fields" and set(content) == names:
        return kind(**_numbers(content))
    if form == "unmixed" and issubclass(kind, MixedMessage):
        label = content["label"]
        rest = _numbers({"table": content["table"], "index": content["index"]})
        return kind.unmixed(**rest, label=None if label is None else _numbers({"": label})[""])
    if form == "partial" and issubclass(kind, NoisedMessage):
        catalogue, fields = content["catalogue"], content["fields"]
        if type(catalogue) is int and names.issuperset(fields):
            return kind.partial(catalogue, **_numbers(fields))
    if form == "unsummed" and issubclass(kind, RowSumMessage):
        rest = _numbers(content)
        links = {name: rest.pop(name) for name in ("own", "links", "wanted")}
        return kind.unsummed(**links, terms=_whole(rest))
    raise LocalProtocolError("A message of an answer does not hold the fields it declares.")


def _numbers(content: Mapping[str, Any]) -> dict[str, Any]:
    for value in content.values():
        if not isinstance(value, bool | int | float | bytes | np.ndarray | np.generic):
            raise LocalProtocolError("A field of an answer's message is no number and no bytes.")
    return dict(content)
