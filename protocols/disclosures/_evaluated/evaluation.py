"""What the aggregator holds of a result that is computed on ciphertexts, until it is opened."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocols.disclosures._evaluated.uploads import Upload
from protocols.disclosures.names import Disclosure
from protocols.messages import Message
from protocols.wire.where import Where


@dataclass
class Uploads:
    """What came back of one evaluated message, until it was used (O9).

    Attributes:
        where: of the Ask that brought it.
        uploads: by client, sorted.
    """

    where: Where
    uploads: dict[str, Upload] = field(repr=False)


@dataclass
class Evaluation:
    """One result on its way to being opened.

    Attributes:
        disclosure: of the result.
        name: of the Ask that it belongs to.
        where: its place.
        members: who was asked for the uploads.
        names: whose uploads they are, sorted.
        source: number of the exchange that brought them.
        headers: their signed headers, padded.
        results: masked, padded; dropped when they were sent to be opened.
        numbers: of the row that each of `names` is handed; none for cosines.
        signatures: witness -> what it signed.
        opened: what the key authority returned.
        cut: how it cuts the cluster that was compared; None where none is signed.
    """

    disclosure: Disclosure
    name: str
    where: Where
    members: tuple[str, ...]
    names: tuple[str, ...]
    source: int
    headers: bytes = field(repr=False)
    results: bytes = field(repr=False)
    numbers: tuple[int, ...] = ()
    signatures: dict[str, bytes] = field(default_factory=dict)
    opened: Message | None = None
    cut: Message | None = None
