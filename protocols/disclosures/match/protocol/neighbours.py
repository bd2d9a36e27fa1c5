"""The form ``published``: others' vectors, one by one, under the items that they share (O24).

As the field has it, but for who reads what: a client locks its vector, clipped and noised, under
the group's key, so that the matcher carries it and reads nothing. It hands each client some of
those who hold its tags, without names. What is left open is what the form is: strangers read single
vectors, the same one under every item they share; and the matcher, with any client, reads all.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crypto.aead import OVERHEAD, lock, unlock
from crypto.errors import CryptoError
from crypto.samplers import Stream, derive, entropy
from crypto.signing.canonical import canonical
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.cells import incidence, same_canary
from protocols.disclosures.match.protocol.tagging import Bytes, Tags
from protocols.errors import BadEnvelope, UnfitMessage

__all__ = ["Neighbours", "check_neighbours", "locked", "locked_bytes", "neighbours", "unlocked"]

_SALT: Final = 32
_WORD: Final = np.dtype("<i4")


def locked_bytes(size: int) -> int:
    """Return how long a locked vector of `size` integers is."""
    return _SALT + 4 * size + OVERHEAD


def _info(run: str, epoch: int) -> bytes:
    return b"secure-fgl/neighbour\0" + canonical([run, epoch])


def locked(values: NDArray[np.int64], group: bytes, run: str, epoch: int) -> bytes:
    """Lock a client's vector, (d,), for all clients and nobody else.

    Raises:
        UnfitMessage: a value needs more than 32 bits.
    """
    words = values.astype(_WORD)
    if values.ndim != 1 or not np.array_equal(words, values):
        raise UnfitMessage("A vector of integers of 32 bits is published.")
    salt = entropy(_SALT)  # a key for this message alone
    return salt + lock(derive(group, "neighbour", salt), _info(run, epoch), words.tobytes())


def unlocked(box: bytes, group: bytes, run: str, epoch: int) -> NDArray[np.int64]:
    """Return what a client locked; raises BadEnvelope if no client of this epoch did."""
    try:
        words = unlock(derive(group, "neighbour", box[:_SALT]), _info(run, epoch), box[_SALT:])
    except CryptoError as error:
        raise BadEnvelope("A neighbour's vector is of no client of this epoch.") from error
    return np.frombuffer(words, dtype=_WORD).astype(np.int64)


@dataclass(frozen=True)
class Neighbours:
    """What the matcher hands one client.

    Attributes:
        digest: of the canary that all clients have.
        boxes: (vectors, bytes), locked, random bytes in place of those that are not there.
        links: (cap, neighbours), 1 + the box that the j-th tag brings; 0: none.
    """

    digest: bytes = field(repr=False)
    boxes: Bytes = field(repr=False)
    links: NDArray[np.int64] = field(repr=False)


def neighbours(
    tags: Mapping[str, Bytes],
    digests: Mapping[str, bytes],
    boxes: Mapping[str, bytes],
    match: Match,
) -> dict[str, Neighbours]:
    """Choose, for each client, some others who hold its tags; at random, by the system's entropy.

    Args:
        tags: by client, (cap, TAG_BYTES), sorted.
        digests: by client, of the canary.
        boxes: by client, its locked vector, all of one length.
        match: bounds how many.

    Raises:
        BadEnvelope: canaries differ, tags are not sorted, or somebody's part is missing.
    """
    names = sorted(tags)
    if set(names) != set(digests) or set(names) != set(boxes):
        raise BadEnvelope("Of some clients there is only a part.")
    digest = same_canary(digests)
    held = incidence({name: tags[name] for name in names}, match.cap)
    whole = np.frombuffer(b"".join(boxes[name] for name in names), dtype=np.uint8)
    if whole.size != len(names) * len(boxes[names[0]]):
        raise UnfitMessage("Locked vectors do not have the planned size.")
    whole = whole.reshape(len(names), -1)
    by_tag = held.tocsc()
    found = {}
    for at, name in enumerate(names):
        own = held.indices[held.indptr[at] : held.indptr[at + 1]]
        lists = [by_tag.indices[by_tag.indptr[tag] : by_tag.indptr[tag + 1]] for tag in own]
        who, links = _pick(at, lists, match)
        filled = np.frombuffer(entropy(match.vectors * whole.shape[1]), dtype=np.uint8)
        filled = filled.reshape(match.vectors, -1).copy()
        filled[: len(who)] = whole[who]
        found[name] = Neighbours(digest, filled, links)
    return found


def _pick(
    me: int, lists: list[NDArray[np.int32]], match: Match
) -> tuple[list[int], NDArray[np.int64]]:
    """Return whom one client gets, and under which of its tags."""
    stream = Stream(entropy(32))
    place: dict[int, int] = {}  # of whom, in the order handed over
    links = np.zeros((match.cap, match.neighbours), dtype=np.int64)
    for row in np.argsort(stream.words(len(lists)), kind="stable"):
        holders = lists[row]
        if len(holders) < match.floor:
            continue
        others = holders[holders != me]
        order = others[np.argsort(stream.words(len(others)), kind="stable")]
        chosen: list[int] = []
        for other in map(int, order):
            if len(chosen) < match.neighbours and (other in place or len(place) < match.vectors):
                place.setdefault(other, len(place))
                chosen.append(1 + place[other])
        links[row, : len(chosen)] = chosen
    return list(place), links


def check_neighbours(
    told: Neighbours, tags: Tags, mine: bytes, match: Match, where: tuple[str, int]
) -> tuple[NDArray[np.int64], dict[int, list[int]]]:
    """Open what the matcher handed over, after holding it to what a client can see.

    That a vector is of somebody who holds the item cannot be seen; it is of some client.

    Args:
        told: the matcher's.
        tags: what this client sent.
        mine: its own locked vector.
        match: the policy's guard.
        where: run and epoch.

    Returns:
        The vectors, (n, d), and for each own item that brings some their rows.

    Raises:
        BadEnvelope: another canary; a vector under a random tag, twice under one, twice in all, of
            oneself, or of no client.
    """
    if not hmac.compare_digest(told.digest, tags.digest):
        raise BadEnvelope("The others have another canary than this client (O24).")
    links, boxes = told.links, told.boxes
    if links.shape != (match.cap, match.neighbours) or boxes.shape != (match.vectors, len(mine)):
        raise BadEnvelope("What the matcher found does not have the planned size.")
    if links.min() < 0 or links.max() > match.vectors:
        raise BadEnvelope("The matcher names vectors that there are not.")
    used = int(links.max())
    if set(range(1, used + 1)) - set(links.ravel().tolist()):
        raise BadEnvelope("The matcher handed over vectors that belong to no item.")
    rows = {item: [int(link) - 1 for link in links[at] if link] for item, at in tags.places.items()}
    if sum(map(len, rows.values())) != int((links > 0).sum()):
        raise BadEnvelope("The matcher found somebody who holds a random tag.")
    raw = [boxes[at].tobytes() for at in range(used)]
    if any(len(set(row)) != len(row) for row in rows.values()) or len(set(raw)) != used:
        raise BadEnvelope("The matcher handed one neighbour over twice.")
    if mine in raw:
        raise BadEnvelope("The matcher handed a client its own vector.")
    vectors = [unlocked(box, tags.group, *where) for box in raw]
    size = (len(mine) - _SALT - OVERHEAD) // 4
    stack = np.stack(vectors) if vectors else np.zeros((0, size), dtype=np.int64)
    return stack, {item: row for item, row in sorted(rows.items()) if row}
