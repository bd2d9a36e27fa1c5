"""What is left of a value that a party used up, for whoever has all files and all keys."""

from __future__ import annotations

import threading
from typing import Any

import msgpack
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from crypto.aead import new_key, unlock_at_rest
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.journal import _LENGTHS
from protocols.versions import STATE
from tests.protocols.killed import Drawer
from tests.protocols.pub import Portrait
from tests.protocols.test_kept_journal import LONG, PLACE, Keeping

MARK = b"used up once for all"
CLEAR = MARK * (2 * LONG // len(MARK))


def keys(found: object) -> list[bytes]:
    """Return all bytes in a line's head that may be a key."""
    if isinstance(found, bytes):
        return [found] if len(found) == 32 else []
    inner = found.values() if isinstance(found, dict) else found
    return [key for one in inner for key in keys(one)] if isinstance(found, dict | list) else []


def decrypted(key: bytes, locked: bytes, number: int = 0) -> bytes:
    """Return what AES-GCM hid under the nonce of a number, without asking for its tag."""
    counter = number.to_bytes(12, "big") + bytes(3) + b"\2"
    return Cipher(algorithms.AES(key), modes.CTR(counter)).decryptor().update(locked)


def readable(drawer: Drawer) -> bytes:
    """Return all that any key in any line opens in any file, whole or not."""
    standing = drawer.standing()
    data = bytes(drawer.pieces[f"journal-{standing.generation}"])
    at, held, spans = len(STATE.head), [], []
    while at < len(data):
        head, cells = _LENGTHS.unpack_from(data, at)
        start = at + _LENGTHS.size
        info = f"{PLACE}/journal/{standing.generation}/{at == len(STATE.head)}".encode()
        line = msgpack.unpackb(unlock_at_rest(standing.key, info, data[start : start + head]))
        held += keys(line)
        *_, key, names, sizes = line
        place = start + head
        for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
            if any(locked := data[place : place + size]):  # else it was overwritten
                spans.append((name, decrypted(key, locked, number)))
            place += size
        at = start + head + cells
    found = [clear for _, clear in spans]
    for name, clear in spans:  # a cell may hold keys, too
        held += keys(msgpack.unpackb(clear[:-16])) if name.startswith("#") else []
    parts = [bytes(drawer.pieces[name]) for name in drawer.names() if name.startswith("part-")]
    return b"".join([*found, *(decrypted(key, part) for key in held for part in parts)])


@pytest.fixture
def keeping() -> Keeping:
    return Keeping(Drawer())


@pytest.mark.parametrize("clear", [MARK, CLEAR], ids=["short", "long"])
def test_o9_what_was_used_up_is_in_no_file_after_the_commit(keeping: Keeping, clear: bytes) -> None:
    model = np.zeros(3 * LONG)
    keeping.save({"model": model, "upload": {1: clear}, "n": 0})
    assert MARK in readable(keeping.drawer), "the control: as long as it is held it can be read"
    keeping.save({"model": model, "upload": {}, "n": 1})
    assert MARK not in readable(keeping.drawer)


def test_o9_nor_behind_a_shorter_value_in_the_same_file(keeping: Keeping) -> None:
    model = np.zeros(3 * LONG)
    keeping.save({"model": model, "upload": {1: CLEAR}})
    keeping.save({"model": model, "upload": {}})
    keeping.save({"model": model, "upload": {2: bytes(len(CLEAR) * 3 // 4)}})
    files = [name for name in keeping.drawer.names() if name.startswith("part-")]
    assert len(files) == 2, "the control: the file was used again"
    assert MARK not in readable(keeping.drawer)


def test_an_array_of_a_message_that_changes_in_place_is_noticed(keeping: Keeping) -> None:
    keeping.codec = StateCodec({}, (Portrait,), None, new_key())
    model = np.zeros(8)
    said = Portrait(outputs=model)
    keeping.save({"s/said": said, "s/bare": model})
    model += 1
    changed = keeping.save({"s/said": said, "s/bare": model})
    assert "s/bare" in changed  # the control: outside a message it is
    assert (keeping.read()["s"]["said"].outputs == said.outputs).all()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["the control: before", "meanwhile"])
def test_two_parties_in_two_threads_keep_what_is_theirs(keeping: Keeping, elsewhere: bool) -> None:
    """One party's thread waits for the disk while another's locks a value."""
    other, patch = Keeping(Drawer()), keeping.drawer.patch
    thread = threading.Thread(target=other.save, args=({"model": np.ones(LONG)},))

    def waiting(name: str, writes: Any) -> None:
        if name.startswith("part-") and elsewhere:
            thread.start()
            thread.join()
        patch(name, writes)

    keeping.drawer.patch = waiting
    if not elsewhere:
        thread.start()
        thread.join()
    keeping.save({"model": np.zeros(LONG)})
    assert not keeping.read()["model"].any() and other.read()["model"].all()
