"""What the aggregator holds of a sum: uploads, or what they add up to, and in the end the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.masks import MaskSum, container, masked
from crypto.samplers import entropy
from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures.sum.addressed import AddressedView, missing, reader_of
from protocols.disclosures.sum.consistency import evidence_of
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.layout import Ring, SumLayout, Words
from protocols.disclosures.sum.masks import Keys, check_mask, check_masked
from protocols.errors import BadEnvelope, LocalProtocolError, RoundLost
from protocols.forms import Exchange
from protocols.messages import Message, Vector
from protocols.plan.steps import Part
from protocols.policy.guard import find
from protocols.rounds import View
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext


class TotalView(OneVerb):
    """SUM: the cohort's total."""

    verb = "total"

    def __init__(self, total: Message) -> None:
        self._total = total

    def _answer(self, **options: Any) -> Message:
        return self._total


class Summands(Answers):
    """The summands of one Ask.

    Attributes:
        pairs: digest of what their masks rest on; None without masks.
        total: the cohort's, shape (layout.length,), once it is here; where one client reads it, the
            residues that were opened.
        check: the words that clients check it with, once it is here.
    """

    verb: ClassVar[str] = TotalView.verb
    fixes: ClassVar[bool] = True
    totalled: ClassVar[bool] = True

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.pairs: str | None = None
        self.total: Vector | None = None
        self.check: Words | None = None
        self._evidence: dict[str, bytes] = {}
        self._blind: Vector | None = None
        self._sum: MaskSum | None = None  # of the bodies that were added as they came

    @property
    def encrypted(self) -> bool:
        """Whether they must be opened by the key authority."""
        return encryption(self._context.policy.chain(self.item.disclosure)) is not None

    @property
    def masked(self) -> bool:
        """Whether they carry masks."""
        return bool(find(self._context.policy.chain(self.item.disclosure), "mask"))

    @property
    def reader(self) -> str:
        """Which client reads their total; empty: this aggregator."""
        return reader_of(self.item, self.where)

    def check_reader(self) -> None:
        """Raise RoundLost if who is to read their total vanished: its blind is not among them."""
        if missing(self.item, self.where, self.survivors):
            raise RoundLost(
                "The client that was to read a total vanished. The round is skipped.",
                why="without its blind the aggregator would read the total",
                fix="nothing of it was opened; the next round goes on with who is there",
            )

    def take(self, incoming: Incoming) -> None:
        """Take one summand.

        Raises:
            BadEnvelope: made under another key or with other masks, or not masked.
        """
        header = incoming.header
        self._check_key(incoming)
        if self.pairs not in (None, header.pairs):
            # Handed on as evidence, it would make every holder refuse.
            raise BadEnvelope("A client's masks rest on other keys than were agreed on.")
        if self.masked and not self.encrypted:
            check_masked(self._words(self._ring(), incoming.body), self._ring())
        evidence = evidence_of(header, incoming.envelope.signature)
        body = b"" if self._add_up(incoming) else incoming.body
        self._keep(incoming, body)
        self._evidence[header.sender] = evidence

    def _add_up(self, incoming: Incoming) -> bool:
        """Add a body to the running sum, if its client counts whatever else comes; else do nothing.

        So it is wherever a sum is all that an Ask brings back and no ciphertext. Thousands of
        uploads are not held at once then.
        """
        if self.encrypted or self.kinds != self.exchange.back:
            return False
        ring = self._ring()
        if self._sum is None:
            self._sum = self._nothing(ring)
        try:
            self._sum.add(self._words(ring, incoming.body))
        except CryptoError as error:
            raise BadEnvelope("An upload cannot be added up.") from error
        return True

    def settle(self, survivors: Sequence[str]) -> None:
        """Settle whose summands count."""
        super().settle(survivors)
        self._evidence = {name: self._evidence[name] for name in survivors}

    def forget(self) -> None:
        """Forget what came, once the reply was made."""
        super().forget()
        self._evidence.clear()

    def label(self, pairs: str) -> tuple[str, ...]:
        """Return what the masks of this sum are bound to (O6)."""
        key = self._context.sum_key(self._context.me.party.name)
        return self._context.mask_label(self.item, self.where, key, pairs)

    def opening(self) -> dict[str, str | int]:
        """Return the facts of an ``open`` entry."""
        where, reader = self.where, self.reader
        return {
            "cohort": self._context.cohort(where),
            "exchange": where.exchange,
            "members": len(where.members),
            **({"reader": reader} if reader else {}),
            "round": where.round,
            "survivors": len(self.survivors),
        }

    def evidence(self) -> dict[str, bytes]:
        """Return, per survivor, what it signed over its upload."""
        return {name: self._evidence[name] for name in self.survivors}

    def blinded(self, masks: Keys) -> tuple[bytes, bytes]:
        """Add the uploads, take off the masks, add a fresh uniform blind (O1); forget the uploads.

        Args:
            masks: keys of the masks to add and to take off (O4).

        Returns:
            The blinded total, and the signed headers of all uploads for the key authority.

        Raises:
            CryptoError: an upload is not a ciphertext under this epoch's key.
            LocalProtocolError: what takes the masks off is none.
        """
        context, headers = self._context, list[bytes]()
        if context.scheme is None or context.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        total = context.scheme.accumulator(context.he_key)
        for member in self.survivors:
            kept = self._received.pop(member)
            total.add(kept.body)
            headers.append(kept.header)
        self._blind = context.scheme.blind(entropy(32), total.coefficients)
        put_on = masked(self._blind, context.scheme.plain_modulus, *masks)
        if self.masked:
            check_mask(self._blind, put_on, context.scheme.plain_modulus)
        # Correction and blind go in together: the authority sees one uniform vector.
        total.add_plain(put_on.astype("u8"))
        return total.to_bytes(), b"".join(headers)

    def opened(self, coefficients: bytes) -> Vector:
        """Take the blind off an opened total; returns the integers, shape (layout.length,).

        Raises:
            CryptoError: this cannot be the total of this cohort under this blind.
        """
        context = self._context
        if context.scheme is None or self._blind is None:
            raise LocalProtocolError("This aggregator asked for no opening.")
        values = np.frombuffer(coefficients, dtype="<u8")
        plain = context.scheme.subtract(values, self._blind)
        self._blind = None
        return self._integers(plain)

    def unmasked(self, masks: Keys) -> Vector:
        """Add the masked vectors and take off the masks; returns the integers, and forgets.

        Raises:
            CryptoError, LocalProtocolError: not the total of this cohort; what came off is no mask.
        """
        total, (plus, minus), ring = self._added(), masks, self._ring()
        before = total.values
        total.take(minus, plus)
        check_mask(total.values, before, ring.modulus)
        return self._integers(total.values)

    def _integers(self, summed: Words) -> Vector:
        """Return the totals that stand in summed residues; keep the words of their check."""
        ring = self._ring()
        if self.reader:  # uniform: a blind is on them
            return summed.astype(container(ring.modulus), copy=False)
        self.check = ring.check(summed)
        return ring.integers(summed)

    def _added(self) -> MaskSum:
        """Return the sum of the survivors' bodies, and forget them."""
        ring = self._ring()
        total, self._sum = self._sum, None
        if total is None:
            total = self._nothing(ring)
            for member in self.survivors:
                total.add(self._words(ring, self._received.pop(member).body))
        return total

    def _nothing(self, ring: Ring) -> MaskSum:
        # In clear a ring holds one client's integers; their sum has 64 bits.
        return MaskSum(ring.modulus, ring.size) if self.masked else MaskSum(1 << 64, ring.length)

    def _words(self, ring: Ring, body: bytes) -> Words:
        words = np.frombuffer(body, dtype=container(ring.modulus))
        return words if self.masked else ring.integers(words).view(np.uint64)

    def clear_total(self) -> Vector:
        """Add the integers that an Unsafe chain brought in clear."""
        return self._added().values.view(np.int64)

    def _ring(self) -> Ring:
        return self._summed()[1]

    def _summed(self) -> tuple[SumLayout, Ring]:
        return self._context.summed(self.item, self.kinds)

    def views(self) -> dict[type[Message], View]:
        """Return the total of every message type; raises LocalProtocolError if it is not here."""
        if self.total is None:
            raise LocalProtocolError("The total was not opened yet.")
        members, margin = len(self.survivors), self.item.margin
        if self.reader:
            (kind,), place = self.kinds, self.where.exchange
            return {kind: AddressedView(kind, self.reader, place, members - 1, self.total)}
        totals = self._summed()[0].decode(self.total, members, margin=margin)
        return {kind: TotalView(message) for kind, message in totals.items()}
