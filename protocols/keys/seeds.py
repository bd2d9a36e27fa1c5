"""Keys of masks and of locked rows, each derived from a seed that clients share (ADR 0007)."""

from __future__ import annotations

from collections.abc import Sequence

from crypto.aead import OVERHEAD as ROW_OVERHEAD
from crypto.aead import lock
from crypto.samplers import derive
from crypto.signing.canonical import canonical
from protocols.keys.slots import Slot

SEED_BYTES = 32
NOTHING = bytes(SEED_BYTES)


def cuts(joined: bytes) -> list[bytes]:
    """Return the seeds or secrets that were joined, 32 bytes each."""
    return [joined[at : at + SEED_BYTES] for at in range(0, len(joined), SEED_BYTES)]


def row_bytes(degree: int) -> int:
    """Return the size of one locked row."""
    return degree * SEED_BYTES + ROW_OVERHEAD


def row_info(run: str, epoch: int, name: str, slot: Slot) -> bytes:
    """Return what a locked row is bound to."""
    return b"secure-fgl/row\0" + canonical([run, epoch, name, slot.label])


def row_key(seed: bytes) -> bytes:
    """Return the key that locks a row, from the shared seed e."""
    return derive(seed, "row")


def locked_row(
    place: tuple[str, int, str], slot: Slot, seed: bytes, secrets: Sequence[bytes], width: int
) -> bytes:
    """Return one slot's pair secrets of a client, locked under the seed that its holders share.

    Args:
        place: run, epoch, and name of the client.
        slot: whose secrets.
        seed: e.
        secrets: by neighbour, `NOTHING` of who is away.
        width: neighbours for which a row has room.
    """
    padded = b"".join(secrets).ljust(width * SEED_BYTES, b"\0")
    return lock(row_key(seed), row_info(*place, slot), padded)


def self_key(seed: bytes, label: Sequence[str]) -> bytes:
    """Return the key of a self-mask for one vector, from the shared seed b (O6)."""
    return derive(seed, "self-mask", *label)


def pair_key(secret: bytes, label: Sequence[str]) -> bytes:
    """Return the key of a pair's mask for one vector, from the pair's secret of a slot (O6)."""
    return derive(secret, "pair-mask", *label)
