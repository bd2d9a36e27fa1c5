"""Items become tags: what a client asks of the tag servers, and what a tag server answers (O24).

The first server multiplies a client's points by its share of the key; the client hands what comes
back to the second one, which multiplies by its own.

A batch holds a client's items, random texts in place of those it lacks, and copies of one public
text, the canary, in an order drawn anew. All of them are blinded and finished alike, so neither
size nor work tells them apart. The canary's tag is the same for all clients if the servers used one
key for all. Two keys follow from it: a digest, which is compared, and the group's key, which every
client knows, and neither aggregator nor matcher, nor a single tag server.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from operator import eq

import numpy as np
from numpy.typing import NDArray

from crypto.errors import CryptoError
from crypto.oprf import (
    POINT_BYTES,
    Blinded,
    KeyShare,
    Spread,
    blind,
    check,
    keyed_tags,
    pointwise,
    unsafe_public_tags,
)
from crypto.samplers import Mute, Stream, derive, entropy
from crypto.signing import canonical
from protocols.disclosures.match.guards import Match
from protocols.errors import BadEnvelope, LocalProtocolError, NotInPlan, UnfitMessage

__all__ = ["DIGEST_BYTES", "TAG_BYTES", "TagBatch", "TagServer", "Tags", "chosen", "keyed"]

TAG_BYTES = 16  # two of a million different items are equal with probability 2^-89
DIGEST_BYTES = 32
_RANDOM = 32

Bytes = NDArray[np.uint8]


def chosen(items: Iterable[int], popularity: Sequence[int], match: Match) -> list[int]:
    """Return which of a client's items are tagged, in ascending order.

    Args:
        items: numbers below the size of the catalogue.
        popularity: the whole catalogue, the most popular first, from public figures.
        match: leaves out the most popular share; where more than `cap` remain, the rarest go.
    """
    rank = {item: place for place, item in enumerate(popularity)}
    left_out = int(match.popular * len(popularity))
    kept = sorted((rank[item], item) for item in set(items) if rank[item] >= left_out)
    return sorted(item for _, item in kept[: match.cap])


def _item(item: int) -> bytes:
    return b"item\0" + canonical(item)


def _canary(run: str, epoch: int) -> bytes:
    return b"canary\0" + canonical([run, epoch])


def _padded(items: Sequence[int], match: Match) -> list[bytes]:
    """Return `cap` inputs, the client's items first; raises UnfitMessage for too many, or twice."""
    if len(items) > match.cap or len(set(items)) != len(items):
        raise UnfitMessage(
            "More items than the policy's cap, or one of them twice.",
            fix="choose them with protocols.disclosures.match.protocol.tagging.chosen",
        )
    missing = match.cap - len(items)
    random = entropy(_RANDOM * match.cap)
    texts = [b"random\0" + random[at * _RANDOM : (at + 1) * _RANDOM] for at in range(missing)]
    return [*map(_item, items), *texts]


class Tags(Mute):
    """What a client holds after its batch is answered.

    Attributes:
        sent: (cap, TAG_BYTES) what the matcher gets, sorted, so that the order tells nothing.
        places: which row of `sent` belongs to each of the client's items.
        digest: of the canary; compared between all clients.
        group: key that only the clients know.
    """

    __slots__ = ("digest", "group", "places", "sent")

    def __init__(self, outputs: Sequence[bytes], items: Sequence[int], canary: bytes) -> None:
        """Sort the outputs, the items' first; raises BadEnvelope if two of them are equal."""
        cut = [output[:TAG_BYTES] for output in outputs]
        order = sorted(range(len(cut)), key=cut.__getitem__)
        if len(set(cut)) != len(cut):
            raise BadEnvelope("Two different inputs have one tag: a tag server answered wrongly.")
        self.sent: Bytes = np.frombuffer(b"".join(cut[at] for at in order), dtype=np.uint8)
        self.sent = self.sent.reshape(len(cut), TAG_BYTES)
        row = {place: at for at, place in enumerate(order)}
        self.places: Mapping[int, int] = {item: row[at] for at, item in enumerate(items)}
        self.digest = derive(canary, "match", "digest", length=DIGEST_BYTES)
        self.group = derive(canary, "match", "group")


class TagBatch(Mute):
    """A client's one batch of an epoch.

    Args:
        items: numbers of its items, no more than `cap`, none twice.
        match: the policy's guard.
        run, epoch: bind the canary.
        spread: how the batch is worked through.
    """

    __slots__ = ("_asked", "_batch", "_items", "_match", "_order", "_spread")

    def __init__(
        self, items: Sequence[int], match: Match, run: str, epoch: int, spread: Spread = map
    ) -> None:
        inputs = _padded(items, match) + [_canary(run, epoch)] * match.canaries
        # Where a canary stands must not be known to the servers.
        drawn = Stream(entropy(32)).words(len(inputs))
        self._order = [int(place) for place in np.argsort(drawn, kind="stable")]
        self._items, self._match, self._spread = list(items), match, spread
        self._batch: Blinded | None = blind([inputs[place] for place in self._order], spread)
        self._asked = self.points  # what the next answer is to

    @property
    def points(self) -> bytes:
        """What the first tag server gets: uniform points, 32 bytes each. The second must not."""
        return b"".join(self._open.points)

    @property
    def _open(self) -> Blinded:
        if self._batch is None:
            raise LocalProtocolError("This batch of tags was answered before.")
        return self._batch

    def checked(self, answer: bytes) -> bytes:
        """Return the first server's answer, for the second.

        Raises:
            BadEnvelope: it holds no points, or one that was asked.
        """
        if len(answer) != len(self.points):
            raise BadEnvelope("The first tag server answered another number of points.")
        try:
            check(pointwise(answer), self._spread)
        except CryptoError as error:
            raise BadEnvelope("The first tag server's answer is not usable.") from error
        self._refuse_nothing(answer)
        self._asked = answer
        return answer

    def _refuse_nothing(self, answer: bytes) -> None:
        """Refuse a share of 1: what the other server keeps for audits would look the tags up."""
        if any(map(eq, pointwise(answer), pointwise(self._asked))):
            raise BadEnvelope(
                "A tag server sent back what it was asked (O24).",
                why="it put no share of the key into the answer",
                fix="stop the run; ask who runs it",
            )

    def finish(self, answer: bytes) -> Tags:
        """Return the tags, from the second server's answer; once.

        Raises:
            BadEnvelope: the answer holds no points, or one that was asked, or copies of the canary
                differ: a server used more than one key.
        """
        batch, self._batch = self._open, None
        try:
            outputs = batch.finalize(pointwise(answer), self._spread)
        except CryptoError as error:
            raise BadEnvelope("A tag server's answer is not usable.") from error
        self._refuse_nothing(answer)
        found = [b""] * len(outputs)
        for output, place in zip(outputs, self._order, strict=True):
            found[place] = output
        tags, canaries = found[: self._match.cap], found[self._match.cap :]
        if not all(hmac.compare_digest(canaries[0], other) for other in canaries):
            raise BadEnvelope(
                "Copies of one text came back with different tags (O24).",
                why="a tag server answered with more than one key",
                fix="stop the run; compare the tag servers' ledgers",
            )
        return Tags(tags, self._items, canaries[0])


def keyed(items: Sequence[int], key: bytes, match: Match, run: str, epoch: int) -> Tags:
    """Return a client's tags in ``hmac`` mode, from the key that all clients hold."""
    inputs = [*_padded(items, match), _canary(run, epoch)]
    *tags, canary = keyed_tags(derive(key, "match", run, str(epoch)), inputs)
    return Tags(tags, items, canary)


def public(items: Sequence[int], key: bytes, match: Match, run: str, epoch: int) -> Tags:
    """UNSAFE: return a client's tags in ``deterministic`` mode, which everybody can make."""
    inputs = [*_padded(items, match), _canary(run, epoch)]
    *tags, canary = unsafe_public_tags(key, inputs)
    return Tags(tags, items, canary)


def public_tags(key: bytes, catalogue: int) -> list[bytes]:
    """Return the tags of a whole catalogue in ``deterministic`` mode, for audits (attack A02)."""
    made = unsafe_public_tags(key, [_item(item) for item in range(catalogue)])
    return [tag[:TAG_BYTES] for tag in made]


class TagServer(Mute):
    """One of two tag servers: a share of the key for every epoch, and a quota for every client.

    It sees who asks, when, and uniform points, as first and as second. With the matcher it still
    makes no tag: it lacks the other share. With both shares everything is open.
    """

    __slots__ = ("_answered", "_epoch", "_match", "_share", "refused")

    def __init__(self, match: Match) -> None:
        self._match, self._epoch = match, -1
        self._share: KeyShare | None = None
        self._answered: set[str] = set()
        self.refused: dict[str, int] = {}

    def begin(self, epoch: int) -> None:
        """Draw the epoch's share and forget the last; raises LocalProtocolError for an old one."""
        if epoch <= self._epoch:
            raise LocalProtocolError("An epoch's share of the tag key is drawn once (O24).")
        self._epoch, self._share = epoch, KeyShare.generate()
        self._answered = set()

    def forget(self) -> None:
        """Drop the share once its epoch is answered: nothing of it is needed any more."""
        self._share = None

    @property
    def _held(self) -> KeyShare:
        if self._share is None:
            raise LocalProtocolError("A tag server holds no share of the key between two epochs.")
        return self._share

    def answer(self, client: str, epoch: int, points: bytes, spread: Spread = map) -> bytes:
        """Multiply a client's points by the share of this epoch, once.

        Raises:
            NotInPlan: the client asks for more than its quota; counted in `refused`.
            BadEnvelope: for another epoch, or these are no points.
        """
        if epoch != self._epoch:
            raise BadEnvelope("Tags are asked for in another epoch than the one under way.")
        if client in self._answered or len(points) != self._match.places * POINT_BYTES:
            self.refused[client] = self.refused.get(client, 0) + 1
            raise NotInPlan(
                f"{client} asked for more tags than its quota: one batch of {self._match.places}.",
                why="every evaluation is a guess at another client's item",
                fix="ask the client; its ledger holds what it sent",
            )
        try:
            found = self._held.evaluate(pointwise(points), spread)
        except CryptoError as error:
            raise BadEnvelope("A client's points are not usable.") from error
        self._answered.add(client)
        return b"".join(found)

    def alone(self, catalogue: int) -> bytes:
        """Return what this server by itself could look tags up in: for audits (attack A02).

        One tag for each place of the catalogue, made with its share alone. Nobody has such tags.
        """
        batch = blind([_item(item) for item in range(catalogue)])
        made = batch.finalize(self._held.evaluate(batch.points))
        return b"".join(output[:TAG_BYTES] for output in made)

    def report(self) -> dict[str, int]:
        """Return what stands in the ledger at the end of an epoch: counts, and no point."""
        return {
            "clients": len(self._answered),
            "epoch": self._epoch,
            "quota": self._match.places,
            "refused": sum(self.refused.values()),
        }
