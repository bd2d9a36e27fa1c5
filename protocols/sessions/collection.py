"""The answers to one Ask: which are here, and what they amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crypto.errors import CryptoError
from crypto.masks import MaskSum, container, masked
from crypto.samplers import entropy
from protocols.disclosures import views
from protocols.disclosures._evaluated.uploads import Upload, check_upload, split_upload
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.consistency_votes import evidence_of
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.layout import SumLayout
from protocols.disclosures.sum.ring import Ring, Words
from protocols.disclosures.sum.uniform import check_mask, check_masked
from protocols.disclosures.sum.unmasking import Keys
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.errors import BadEnvelope, LocalProtocolError, WrongStage
from protocols.forms import Exchange
from protocols.messages import Message, Vector
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Service, Step
from protocols.policy.guard import find, guard_of
from protocols.rounds import Reply, View
from protocols.wire.codec import decode
from protocols.wire.cohorts import as_set
from protocols.wire.envelope import signed_header
from protocols.wire.inbox import Letter
from protocols.wire.run_context import Papers
from protocols.wire.where import Where


@dataclass(frozen=True)
class Kept:
    """What is kept of a letter: its signed header, and the body until it was used (O9)."""

    header: bytes = field(repr=False)
    evidence: bytes = field(repr=False)
    body: bytes = field(repr=False)


class Collection:
    """Collects the cohort's letters for one Ask and turns them into a Reply.

    Args:
        papers: of the aggregator.
        exchange: what was asked.
        where: round, exchange number, cohort, slot and digest of what was given.
        pairs: digest of what the masks of its sum rest on.
    """

    def __init__(
        self, papers: Papers, exchange: Exchange, where: Where, pairs: str | None = None
    ) -> None:
        self._pairs = pairs
        self.exchange, self.where, self._papers = exchange, where, papers
        self.survivors: tuple[str, ...] = ()
        self._letters: dict[tuple[str, str], Kept] = {}
        self._blind: Vector | None = None
        self._sum: MaskSum | None = None  # of the bodies that were added as they came
        self.cosines: Vector | None = None  # of every pair, once they were opened
        self.pool: bytes | None = None  # all mixtures, once a relay took the senders off
        kinds = dict.fromkeys(kind.disclosure for kind in exchange.back)
        self._expected: Sequence[Part] = tuple(kinds) or (Service.ASK,)

    def _item(self, disclosure: Disclosure) -> Item:
        return self._papers.find(self.exchange.name, disclosure, Step.UP)

    def dims(self, disclosure: Disclosure) -> Mapping[str, int]:
        """Return all named sizes that apply to what came back of a disclosure."""
        return self._papers.dims(self._item(disclosure))

    def add(self, letter: Letter) -> None:
        """Take one answer.

        Raises:
            WrongStage: it belongs to another exchange or round.
            BadEnvelope: not from this cohort, made from another Start (O8) or key, or not masked.
        """
        header, where, part = letter.header, self.where, letter.item.part
        if letter.item.exchange != self.exchange.name or part not in self._expected:
            raise WrongStage("An answer belongs to another exchange than the one asked.")
        self.check_place(letter)
        if header.sender not in as_set(where.members):
            raise BadEnvelope("An answer is not from this cohort.")
        if header.given != where.given:
            raise BadEnvelope("A client was given something else than the others (O8).")
        key, papers = self._papers.he_key, self._papers
        summed = letter.item.disclosure is Disclosure.SUM
        if summed and key and header.key != key.key_id[:16]:
            raise BadEnvelope("An upload was made under another key.")
        shown = papers.enciphers(letter.item) or papers.relays(letter.item)
        if shown and header.key != papers.body_key(letter.item, papers.me.party.name):
            # Shown to a witness, or to the relay, it would make it refuse.
            raise BadEnvelope("An upload was made under another key.")
        if papers.enciphers(letter.item):
            verify = papers.roster.party(header.sender).verify
            check_upload(header, *split_upload(letter.body), verify)
        if summed and self._pairs not in (None, header.pairs):
            # Handed on as evidence, it would make every holder refuse.
            raise BadEnvelope("A client's masks rest on other keys than were agreed on.")
        if summed and self.masked and not self.encrypted:
            check_masked(self._words(self._ring(), letter.body), self._ring())
        evidence = evidence_of(header, letter.envelope.signature)
        body = b"" if self._add_up(letter) else letter.body
        kept = Kept(signed_header(letter.envelope), evidence, body)
        self._letters[header.sender, str(part)] = kept

    def _add_up(self, letter: Letter) -> bool:
        """Add a body to the running sum, if its client counts whatever else comes; else do nothing.

        So it is wherever a sum is all that an Ask brings back and no ciphertext. Thousands of
        uploads are not held at once then.
        """
        if self._expected != (Disclosure.SUM,) or self.encrypted:
            return False
        ring = self._ring()
        if self._sum is None:
            self._sum = self._nothing(ring)
        try:
            self._sum.add(self._words(ring, letter.body))
        except CryptoError as error:
            raise BadEnvelope("An upload cannot be added up.") from error
        return True

    def check_place(self, letter: Letter) -> None:
        """Raise unless a letter belongs to this round, exchange, attempt and cohort."""
        header, where = letter.header, self.where
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("An answer belongs to another round than the one asked.")
        if header.cohort != self._papers.cohort(where):
            raise BadEnvelope("An answer belongs to another cohort.")

    def missing(self) -> tuple[str, ...]:
        """Return the members of whom something is missing."""
        here = self._letters
        return tuple(
            member
            for member in self.where.members
            if not all((member, str(part)) in here for part in self._expected)
        )

    def fix_survivors(self) -> tuple[str, ...]:
        """Settle whose answers count: those of which everything is here. Return who vanished."""
        gone = self.missing()
        there = as_set(self.where.members).difference(gone)
        self.survivors = tuple(m for m in self.where.members if m in there)
        self._letters = {key: kept for key, kept in self._letters.items() if key[0] in there}
        return gone

    @property
    def sums(self) -> bool:
        """Whether a SUM came back."""
        return Disclosure.SUM in self._expected

    @property
    def encrypted(self) -> bool:
        """Whether a SUM came back that must be opened by the key authority."""
        return self.sums and encryption(self._papers.policy.chain(Disclosure.SUM)) is not None

    @property
    def masked(self) -> bool:
        """Whether a SUM came back that carries masks."""
        return self.sums and bool(find(self._papers.policy.chain(Disclosure.SUM), "mask"))

    def _protected(self, kind: Disclosure) -> bool:
        return kind in self._expected and self._papers.enciphers(self._item(kind))

    @property
    def compared(self) -> bool:
        """Whether cosines are still to be opened."""
        return self._protected(Disclosure.SIMILARITY) and self.cosines is None

    @property
    def weighed(self) -> bool:
        """Whether messages came back that can be weighed while they are encrypted."""
        return self._protected(Disclosure.WEIGHTED_SUM)

    @property
    def relayed(self) -> bool:
        """Whether mixtures came back that go to a relay first."""
        mixed = Disclosure.MIXED
        return mixed in self._expected and self._papers.relays(self._item(mixed))

    def handed_over(self) -> list[Kept]:
        """Return the survivors' mixtures, sorted by client, and forget them (O9)."""
        part = str(Disclosure.MIXED)
        return [self._letters.pop((member, part)) for member in self.survivors]

    def pool_layout(self) -> MixLayout:
        """Return how the mixtures of all survivors stand in one body."""
        (kind,) = (k for k in self.exchange.back if k.disclosure is Disclosure.MIXED)
        dims = self.dims(Disclosure.MIXED)
        places = {"mixtures": dims["mixtures"] * len(self.survivors)}
        return MixLayout(kind, self._papers.policy.chain(kind.disclosure), {**dims, **places})

    def taken(self, disclosure: Disclosure) -> dict[str, Upload]:
        """Return an evaluated message's uploads by client, sorted, and forget them (O9)."""
        found, part = {}, str(disclosure)
        for member in self.survivors:
            kept = self._letters.pop((member, part))
            signature, body = split_upload(kept.body)
            found[member] = Upload(kept.header, signature, body)
        return found

    def label(self, pairs: str) -> tuple[str, ...]:
        """Return what the masks of this sum are bound to (O6)."""
        key = self._papers.sum_key(self._papers.me.party.name)
        return self._papers.mask_label(self._item(Disclosure.SUM), self.where, key, pairs)

    def evidence(self) -> dict[str, bytes]:
        """Return, per survivor, what it signed over its upload."""
        part = str(Disclosure.SUM)
        return {name: self._letters[name, part].evidence for name in self.survivors}

    def bodies(self, disclosure: Disclosure) -> dict[str, bytes]:
        """Return what the survivors said of one disclosure, sorted by client."""
        part = str(disclosure)
        return {m: self._letters[m, part].body for m in self.survivors}

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
        papers, headers = self._papers, list[bytes]()
        if papers.scheme is None or papers.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        total = papers.scheme.accumulator(papers.he_key)
        for member in self.survivors:
            kept = self._letters.pop((member, str(Disclosure.SUM)))
            total.add(kept.body)
            headers.append(kept.header)
        self._blind = papers.scheme.blind(entropy(32), total.coefficients)
        put_on = masked(self._blind, papers.scheme.plain_modulus, *masks)
        if self.masked:
            check_mask(self._blind, put_on, papers.scheme.plain_modulus)
        # Correction and blind go in together: the authority sees one uniform vector.
        total.add_plain(put_on.astype("u8"))
        return total.to_bytes(), b"".join(headers)

    def opened(self, coefficients: bytes) -> Vector:
        """Take the blind off an opened total; returns the integers, shape (layout.length,).

        Raises:
            CryptoError: this cannot be the total of this cohort under this blind.
        """
        papers = self._papers
        if papers.scheme is None or self._blind is None:
            raise LocalProtocolError("This aggregator asked for no opening.")
        values = np.frombuffer(coefficients, dtype="<u8")
        plain = papers.scheme.subtract(values, self._blind)
        self._blind = None
        return self._ring().integers(plain)

    def unmasked(self, masks: Keys) -> Vector:
        """Add the masked vectors and take off the masks; returns the integers, and forgets.

        Raises:
            CryptoError, LocalProtocolError: not the total of this cohort; what came off is no mask.
        """
        total, (plus, minus), ring = self._added(), masks, self._ring()
        before = total.values
        total.take(minus, plus)
        check_mask(total.values, before, ring.modulus)
        return ring.integers(total.values)

    def _added(self) -> MaskSum:
        """Return the sum of the survivors' bodies, and forget them."""
        ring, part = self._ring(), str(Disclosure.SUM)
        total, self._sum = self._sum, None
        if total is None:
            total = self._nothing(ring)
            for member in self.survivors:
                total.add(self._words(ring, self._letters.pop((member, part)).body))
        return total

    def _nothing(self, ring: Ring) -> MaskSum:
        # In clear a ring holds one client's integers; their sum has 64 bits.
        return MaskSum(ring.modulus, ring.size) if self.masked else MaskSum(1 << 64, ring.length)

    def _words(self, ring: Ring, body: bytes) -> Words:
        words = np.frombuffer(body, dtype=container(ring.modulus))
        return words if self.masked else ring.integers(words).view(np.uint64)

    def clear_total(self) -> Vector | None:
        """Add the integers that an Unsafe chain brought in clear; None if no SUM came back."""
        return self._added().values.view(np.int64) if self.sums else None

    def _ring(self) -> Ring:
        return self._summed()[1]

    def _summed(self) -> tuple[SumLayout, Ring]:
        kinds = tuple(k for k in self.exchange.back if k.disclosure is Disclosure.SUM)
        return self._papers.summed(self._item(Disclosure.SUM), kinds)

    def reply(self, total: Vector | None) -> Reply:
        """Build the Reply, one view per message type that came back, and forget the letters."""
        found: dict[type[Message], View] = {}
        if total is not None:
            noise = self._item(Disclosure.SUM).noise
            margin = noise.margin if noise else 0
            totals = self._summed()[0].decode(total, len(self.survivors), margin=margin)
            found.update({kind: views.TotalView(message) for kind, message in totals.items()})
        for kind in self.exchange.back:
            if kind.disclosure is not Disclosure.SUM:
                found[kind] = self._view(kind)
        self._letters.clear()
        return Reply(found, len(self.survivors))

    def _view(self, kind: type[Message]) -> View:
        kinds = tuple(k for k in self.exchange.back if k.disclosure is kind.disclosure)
        if self._protected(kind.disclosure):
            return self._evaluated(kind)
        if self.pool is not None and kind.disclosure is Disclosure.MIXED:
            return views.EachView((self.pool,), self.pool_layout().decode)
        bodies, dims = self.bodies(kind.disclosure), self.dims(kind.disclosure)
        if kind.disclosure is Disclosure.SEALED:
            return views.handed(kind, kinds, bodies, dims, self._papers.roster.clients)
        if kind.disclosure is Disclosure.MIXED:
            chain = self._papers.policy.chain(kind.disclosure)
            return views.EachView(bodies.values(), MixLayout(kind, chain, dims).decode)
        place = kinds.index(kind)
        sent = {member: decode(kinds, body, dims)[place] for member, body in bodies.items()}
        return views.ClearView(kind, sent, dims)

    def _evaluated(self, kind: type[Message]) -> View:
        """Return the view of what is computed on ciphertexts."""
        policy = self._papers.policy
        if guard := guard_of(policy.chain(kind.disclosure), Weigh):
            size, source = len(self.survivors), self.where.exchange
            return views.WeighedView(kind, source, size, policy.others, guard.total, guard.top)
        if self.cosines is None:
            raise LocalProtocolError("The cosines were not opened yet.")
        return views.CosinesView(self.cosines)
