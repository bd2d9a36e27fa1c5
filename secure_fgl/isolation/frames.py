"""Frames over the one socket between a session's process and its worker.

A frame is its length, 8 bytes little-endian, and so many bytes; the first of them is its kind.
The worker's side reads and writes its descriptor, since it has no call for sockets. The session's
side believes nothing: every frame has a deadline and a largest size.
"""

from __future__ import annotations

import os
import socket
import struct
import time

__all__ = ["ANSWER", "CLOSED", "ERROR", "LARGEST", "PLANTED", "FrameError", "ask", "read", "write"]

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
