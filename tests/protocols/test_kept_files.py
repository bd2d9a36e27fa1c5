"""What lies in the real files of a party's kept state, and what of it opens for whom."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from crypto.aead import unlock_at_rest, unlock_one
from crypto.errors import CryptoError
from protocols.keys.groups import slot_of
from protocols.sessions.part import Scope
from protocols.sessions.store.journal import _LENGTHS
from protocols.versions import STATE
from secure_fgl.store.state_store import StateStores
from tests.protocols.killed import Killed
from tests.protocols.unveiling import ITEM

RUN = "ab" * 16


class Filed(Killed):
    """Parties whose state lies in files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(policy="masks", rounds=2)
        self.folder, self.keys = folder / "run", folder / "keys"
        self.of_run = StateStores(RUN, self.folder, self.keys)

    def keep(self) -> None:
        self.state_stores = {name: self.of_run.new(name) for name in self.stores}
        for name in self.stores:
            session = self.session(name)
            session.keeper = self.keeper(name, session.context)
            session.commit()

    def files(self, name: str) -> dict[str, bytes]:
        return {f.name: f.read_bytes() for f in (self.folder / "private" / name).iterdir()}

    def journal(self, name: str) -> bytes:
        (found,) = [data for file, data in self.files(name).items() if file.startswith("journal-")]
        return found

    def outside(self, name: str) -> bytes:
        return (self.keys / RUN / f"{name}.key").read_bytes()


@pytest.fixture
def world(tmp_path: Path) -> Filed:
    made = Filed(tmp_path)
    made.keep()
    made.start()
    return made


def opened(world: Filed, name: str, data: bytes, outside: bytes) -> list[bytes]:
    """Return every cell of a journal that opens, replaced ones too, with any 32 bytes outside.

    Not by the journal's own reading, which leaves out what was replaced.
    """
    keeper = world.session(name).keeper
    place, found = keeper._journal._place, []
    keys = {outside[at : at + 32] for at in range(len(outside) - 31)}
    at, first = len(STATE.head), True
    while at < len(data):
        head, cells = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        for key in keys:
            for generation in range(1, 9):
                info = f"{place}/{generation}/{first}".encode()
                try:
                    plain = unlock_at_rest(key, info, data[at : at + head])
                except CryptoError:
                    continue
                found += _cells(place, data, at + head, msgpack.unpackb(plain))
        at, first = at + head + cells, False
    return found


def _cells(place: str, data: bytes, at: int, line: list) -> list[bytes]:
    found = []
    *_, key, names, sizes = line
    for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
        try:
            cell = data[at : at + size]
            found.append(unlock_one(key, number, f"{place}/{name}".encode(), cell))
        except CryptoError:  # overwritten
            assert not any(cell), name
        at += size
    return found


def test_o9_a_slot_s_secrets_are_in_no_file_once_it_was_used(world: Filed) -> None:
    name = world.names[0]
    client = world.clients[name]
    client.commit()
    pairs, slot = client.context.pairs, slot_of(world.plan.item(ITEM), 1, 0)
    held = pairs._held[slot]
    secrets = [pairs._b[slot], held[:32], *pairs._pair[slot].values()]
    before = opened(world, name, world.journal(name), world.outside(name))
    assert all(any(one in cell for cell in before) for one in secrets)  # the control
    pairs.keys(slot, world.names, ("label",))
    pairs.give(slot, world.names, world.names)
    client.commit()
    after = opened(world, name, world.journal(name), world.outside(name))
    assert len(after) > 10, "what is still held opens"
    assert not any(one in cell for cell in after for one in secrets)
    for data in (*world.files(name).values(), world.outside(name)):
        assert not any(one in data for one in secrets), "in clear"


def test_o9_an_ended_epoch_s_journal_opens_for_nobody(world: Filed) -> None:
    name = world.names[0]
    client = world.clients[name]
    client.commit()
    copy, outside = world.journal(name), world.outside(name)
    client.forget(Scope.EPOCH)
    client.commit()
    assert copy not in world.files(name).values()
    assert not opened(world, name, copy, world.outside(name))
    assert opened(world, name, copy, outside)  # the control: the key of before
    assert opened(world, name, world.journal(name), world.outside(name))


def test_files_that_were_put_in_place_of_others_are_not_written_behind_them(world: Filed) -> None:
    """A party's files stay open; what its folder holds is what it writes to nonetheless."""
    name = world.names[0]
    client, key = world.clients[name], world.keys / RUN / f"{world.names[0]}.key"
    client.commit()
    copy = key.read_bytes()
    key.unlink()
    key.write_bytes(copy)
    client.commit()
    assert key.read_bytes() != copy, "the number went to a file that is not there any more"
    world.kill(name)  # what was written is what is found
    key.unlink()
    with pytest.raises(Exception, match="cannot be kept"):
        world.clients[name].commit()
