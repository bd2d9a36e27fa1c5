"""The answers to one Ask: which are here, and what they amount to."""

from __future__ import annotations

import numpy as np

from crypto.errors import OutOfRange
from crypto.quantiser import Packing
from crypto.samplers import entropy
from protocols.boxes import box_bytes
from protocols.codec import decode
from protocols.disclosures import Disclosure
from protocols.envelope import signed_header
from protocols.errors import BadEnvelope, LocalProtocolError, WrongStage
from protocols.forms import Exchange
from protocols.guards import find
from protocols.inbox import Letter
from protocols.messages import Message, Vector
from protocols.papers import Papers, Where
from protocols.planning import integer_bytes, sum_layout
from protocols.rounds import Reply, View
from protocols.sums import SumLayout
from protocols.views import ClearView, HandedView, TotalView


class Collection:
    """Collects the cohort's letters for one Ask and turns them into a Reply.

    Args:
        papers: of the aggregator.
        exchange: what was asked.
        where: round, exchange number, cohort and digest of what was given.
    """

    def __init__(self, papers: Papers, exchange: Exchange, where: Where) -> None:
        self.exchange, self.where, self._papers = exchange, where, papers
        self._letters: dict[tuple[str, str], Letter] = {}
        self._blind: Vector | None = None
        kinds = dict.fromkeys(kind.disclosure for kind in exchange.back)
        self._expected = [self._item(d) for d in kinds] or [f"{exchange.name}.ack"]

    def _item(self, disclosure: Disclosure) -> str:
        return f"{self.exchange.name}.up.{disclosure}"

    def dims(self, item: str) -> dict[str, int]:
        """Return all named sizes that apply to a plan item."""
        return self._papers.dims(self._papers.plan.item(item))

    def add(self, letter: Letter) -> None:
        """Take one answer.

        Raises:
            WrongStage: it belongs to another exchange or round.
            BadEnvelope: it is not from this cohort, or was made from another Start (O8) or key.
        """
        header, where = letter.header, self.where
        if header.item not in self._expected:
            raise WrongStage("An answer belongs to another exchange than the one asked.")
        self.check_place(letter)
        if header.sender not in where.members:
            raise BadEnvelope("An answer is not from this cohort.")
        if header.given != where.given:
            raise BadEnvelope("A client was given something else than the others (O8).")
        key = self._papers.he_key
        if letter.item.disclosure is Disclosure.SUM and key and header.key != key.key_id[:16]:
            raise BadEnvelope("An upload was made under another key.")
        self._letters[header.sender, header.item] = letter

    def check_place(self, letter: Letter) -> None:
        """Raise unless a letter belongs to this round, exchange, attempt and cohort."""
        header, where = letter.header, self.where
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("An answer belongs to another round than the one asked.")
        if header.cohort != self._papers.cohort(where):
            raise BadEnvelope("An answer belongs to another cohort.")

    def missing(self) -> tuple[str, ...]:
        """Return the cohort members whose answers have not all arrived."""
        return tuple(
            m
            for m in self.where.members
            if any((m, i) not in self._letters for i in self._expected)
        )

    @property
    def sums(self) -> bool:
        """Whether a SUM came back."""
        return self._item(Disclosure.SUM) in self._expected

    @property
    def encrypted(self) -> bool:
        """Whether a SUM came back that must be opened by the key authority."""
        return self.sums and bool(find(self._papers.policy.chain(Disclosure.SUM), "he"))

    def _bodies(self, disclosure: Disclosure) -> dict[str, bytes]:
        item = self._item(disclosure)
        return {m: self._letters[m, item].body for m in self.where.members}

    def blinded(self) -> tuple[bytes, bytes]:
        """Add the uploads and a fresh uniform blind (O1), and forget the uploads (O9).

        Returns:
            The blinded total, and the signed headers of all uploads for the key authority.

        Raises:
            CryptoError: an upload is not a ciphertext under this run's key.
        """
        papers, item = self._papers, self._item(Disclosure.SUM)
        if papers.scheme is None or papers.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        total = papers.scheme.accumulator(papers.he_key)
        headers = []
        for member in self.where.members:
            letter = self._letters.pop((member, item))
            total.add(letter.body)
            headers.append(signed_header(letter.envelope))
        self._blind = papers.scheme.blind(entropy(32), total.coefficients)
        total.add_plain(self._blind)
        return total.to_bytes(), b"".join(headers)

    def opened(self, coefficients: bytes) -> Vector:
        """Take the blind off an opened total; returns the integers, shape (layout.length,).

        Raises:
            CryptoError: this cannot be the total of this cohort under this blind.
        """
        papers, layout = self._papers, self._layout()
        if papers.scheme is None or self._blind is None:
            raise LocalProtocolError("This aggregator asked for no opening.")
        packing = Packing(layout.bits, len(papers.plan.clients), papers.scheme.plain_bits)
        values = np.frombuffer(coefficients, dtype="<u8")
        plain = papers.scheme.subtract(values, self._blind)
        self._blind = None
        used = packing.coefficients(layout.length)
        if plain[used:].any():  # padding is zero; masks that did not cancel show here
            raise OutOfRange("This is not the total of the cohort that was asked.")
        return packing.unpack(plain[:used], layout.length)

    def clear_total(self) -> Vector | None:
        """Add the integers that an Unsafe chain brought in clear; None if no SUM came back."""
        if not self.sums:
            return None
        layout = self._layout()
        dtype = f"<u{integer_bytes(layout.bits)}"
        total = np.zeros(layout.length, dtype=np.uint64)
        for body in self._bodies(Disclosure.SUM).values():
            total += np.frombuffer(body, dtype=dtype)
        return total

    def _layout(self) -> SumLayout:
        kinds = [k for k in self.exchange.back if k.disclosure is Disclosure.SUM]
        chain = self._papers.policy.chain(Disclosure.SUM)
        return sum_layout(kinds, chain, self.dims(self._item(Disclosure.SUM)))

    def reply(self, total: Vector | None) -> Reply:
        """Build the Reply, one view per message type that came back, and forget the letters."""
        views: dict[type[Message], View] = {}
        if total is not None:
            totals = self._layout().decode(total, len(self.where.members))
            views.update({kind: TotalView(message) for kind, message in totals.items()})
        for kind in self.exchange.back:
            if kind.disclosure is not Disclosure.SUM:
                views[kind] = self._view(kind)
        self._letters.clear()
        return Reply(views)

    def _view(self, kind: type[Message]) -> View:
        kinds = tuple(k for k in self.exchange.back if k.disclosure is kind.disclosure)
        bodies, dims = self._bodies(kind.disclosure), self.dims(self._item(kind.disclosure))
        if kind.disclosure is Disclosure.SEALED:
            return self._handed(kind, kinds, bodies, dims)
        place = kinds.index(kind)
        sent = {member: decode(kinds, body, dims)[place] for member, body in bodies.items()}
        return ClearView(kind, sent, dims)

    def _handed(
        self,
        kind: type[Message],
        kinds: tuple[type[Message], ...],
        bodies: dict[str, bytes],
        dims: dict[str, int],
    ) -> View:
        clients = self._papers.roster.clients
        start = sum(box_bytes(before, dims) for before in kinds[: kinds.index(kind)]) * len(clients)
        size = box_bytes(kind, dims)
        cut, absent = slice(start, start + size * len(clients)), bytes(size * len(clients))
        boxes = {client: bodies[client][cut] if client in bodies else absent for client in clients}
        return HandedView(kind, boxes, size)
