"""What a budget store says of itself: a reservation, and a checkpoint that others cosigned."""

from __future__ import annotations

from dataclasses import dataclass

from crypto.errors import CryptoError
from crypto.signing.checkpoint import Checkpoint, read
from crypto.signing.signatures import VerifyKey
from protocols.errors import EvidenceError
from secure_fgl.store.budget_lines import (
    STEP,
)


@dataclass(frozen=True)
class Reservation:
    """A store after a reservation.

    Attributes:
        entries: how many reservations it holds, this one included.
        head: SHA-256 (hex) over its last line.
        epsilon: of all of them together, at `delta`; decimal text, rounded up, or ``infinity``.
        delta: of the cap; decimal text.
    """

    entries: int
    head: str
    epsilon: str
    delta: str


@dataclass(frozen=True)
class Anchor:
    """A store's checkpoint as another party cosigned it.

    Attributes:
        note: the signed note, with one signature.
        signer, key: who cosigned it.
    """

    note: str
    signer: str
    key: VerifyKey

    def checkpoint(self) -> Checkpoint:
        """Return what was signed; raises EvidenceError at step ``budget``."""
        try:
            return read(self.note, name=self.signer, key=self.key)
        except CryptoError:
            what = "an anchor of a budget is not signed by who it names"
            raise EvidenceError(STEP, what) from None
