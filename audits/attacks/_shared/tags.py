"""What A02 and A03 measure: whether tags of items can be turned back (payload P08).

**Dictionary (A02).** The attacker makes tags of the whole catalogue, or of as much of it as he can,
and looks up what the matcher holds. Which tags he can make is what differs: `signatures` needs a
public key only; a client's quota makes as many as its batch holds; both shares of a split key make
all, one share makes tags that nobody has.

**Frequency (A03).** The attacker needs no key: he ranks tags by how many clients hold them and
items by public popularity, and takes equal ranks for equal items. No mode hides this; caps, floors
and leaving out the popular blunt it.

Known tags are counted each once (`share`), and by how many clients hold them (`weight`): guesses
spent on popular items find more holders than their number says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from numpy.typing import NDArray

from crypto.signing import canonical
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Plan
from protocols.plan.steps import Step

__all__ = [
    "Ranked",
    "Recovered",
    "Tagged",
    "dictionary",
    "frequency",
    "public_table",
    "signatures",
    "tags_leave",
]

_DIGEST, _TAG = 32, 16


def tags_leave(plan: Plan) -> bool:
    """Tell whether a plan has tags compared, of items or of the nodes of rows."""
    return any(plan.all_of(part, Step.COMPARE) for part in (Disclosure.MATCH, Disclosure.ROW_SUM))


@dataclass(frozen=True, repr=False)
class Tagged:
    """One captured matching: what the matcher compared, and what is true of it.

    Items are places of the public list, the most popular first, or public numbers of nodes.

    Attributes:
        round: of the run.
        keyed: tags are made with one key that all clients hold.
        quota: tags that one client can have made in an epoch.
        left_out: so many of the most popular items are tagged by nobody.
        catalogue: how many items there are.
        sent: client -> its tags, random ones among them.
        truth: tag -> its item; random ones are not in it.
        items: client -> all items that it trains on, (k,).
        opened: tag -> item, of the tags that the public key makes; empty where there is none.
        alone: of each tag server, tag -> item, of the tags that its share alone makes.
    """

    round: int
    keyed: bool
    quota: int
    left_out: int
    catalogue: int
    sent: Mapping[str, tuple[bytes, ...]]
    truth: Mapping[bytes, int]
    items: Mapping[str, NDArray[np.int64]]
    alone: tuple[Mapping[bytes, int], ...]
    opened: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Recovered:
    """Of the different tags that belong to items, the share that was turned back correctly.

    Attributes:
        share: each tag once.
        weight: each tag as often as clients hold it.
    """

    share: float
    weight: float


def dictionary(
    held: Mapping[bytes, int], truth: Mapping[bytes, int], table: Mapping[bytes, int]
) -> Recovered:
    """Look all tags up.

    Args:
        held: by tag, how many clients hold it; random tags among them count for nothing.
        truth: by tag, its item.
        table: by tag, the item that the attacker made it of.
    """
    real = [tag for tag in held if tag in truth]
    hits = [tag for tag in real if table.get(tag) == truth[tag]]
    holders, found = sum(held[t] for t in real), sum(held[t] for t in hits)
    return Recovered(len(hits) / max(len(real), 1), found / max(holders, 1))


def signatures(
    key: RSAPublicKey, tags: Iterable[bytes], catalogue: Mapping[bytes, int]
) -> dict[bytes, int]:
    """Return the items of PKCS #1 v1.5 signatures (SHA-256), with the public key alone.

    A signature to the public power ends in the digest of what was signed.

    Args:
        key: public.
        tags: signatures.
        catalogue: by signed text, its item.
    """
    numbers, size = key.public_numbers(), key.key_size // 8
    digests = {hashlib.sha256(text).digest(): item for text, item in catalogue.items()}
    found = {}
    for tag in tags:
        padded = pow(int.from_bytes(tag, "big"), numbers.e, numbers.n).to_bytes(size, "big")
        if (item := digests.get(padded[-_DIGEST:])) is not None:
            found[tag] = item
    return found


def public_table(catalogue: int) -> dict[bytes, int]:
    """Return what can be made without any key: hashes of every item, and the items themselves."""
    found = {}
    for item in range(catalogue):
        text = b"item\0" + canonical(item)
        for made in (text, hashlib.sha256(text).digest(), hashlib.sha512(text).digest()):
            found[made[:_TAG].ljust(_TAG, b"\0")] = item
    return found


@dataclass(frozen=True)
class Ranked:
    """Of the most held tags, the share whose rank by popularity is exact, and within ten."""

    exact: float
    near: float


def frequency(
    held: Mapping[bytes, int],
    truth: Mapping[bytes, int],
    popularity: NDArray[np.float64] | Sequence[float],
    *,
    skip: int = 0,
    top: int = 100,
) -> Ranked:
    """Match ranks of tags with ranks of items.

    Args:
        held: by tag, how many clients hold it.
        truth: by tag, its item; random tags are not in it.
        popularity: what the attacker knows of every item, (catalogue,).
        skip: how many of the most popular items clients are known to leave out.
        top: how many tags are looked at.
    """
    order = np.argsort(-np.asarray(popularity, dtype=np.float64), kind="stable")[skip:]
    rank = {int(item): place for place, item in enumerate(order)}
    # Ties by the tag's own bytes, which are random.
    first = sorted(held, key=lambda tag: (-held[tag], tag))[:top]
    off = [
        abs(rank.get(truth[t], len(order)) - at) if t in truth else len(order)
        for at, t in enumerate(first)
    ]
    apart = np.array(off)
    return Ranked(float((apart == 0).mean()), float((apart <= 10).mean()))
