"""What key authority and witness do to open a result of ciphertexts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from protocols.clusters import SIGNATURE, Told, Weights, cut_in_two
from protocols.disclosures._evaluated.ciphers import (
    COSINE_LEVELS,
    EVALUATED,
    cosine_ring,
    weigh_ring,
    witnesses_of,
)
from protocols.disclosures._evaluated.uploads import (
    RequestedUploads,
    check_upload,
    facts_of_rows,
    pairs_of,
    products,
    requested_uploads,
    row_info,
    row_numbers,
    rows,
    statement,
    whole_table,
)
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, CohortChanged, LocalProtocolError, Replay
from protocols.keys.pairs import close_box
from protocols.messages import Message, Vector
from protocols.plan.steps import Step
from protocols.sessions.clusters import CUT, ClusterHistory
from protocols.sessions.engine import Answering
from protocols.sessions.epoch_keys import SecretKeys
from protocols.sessions.part import Delivery, Engine, Event, SessionPart, Takes
from protocols.sessions.survivors import Openings
from protocols.wire.control import (
    Cosines,
    CosineSeed,
    Examine,
    Reveal,
    RowBoxes,
    RowSeeds,
    SignedCut,
    Witnessed,
)
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role

# The witness's part: computes results again, byte for byte, and signs what it found (O4).


class ResultWitness(SessionPart):
    """Examines every result that is to be opened, once for every client's upload."""

    called: ClassVar[str] = "results"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._signed: set[tuple[str, int]] = set()  # disclosure, exchange of the uploads
        self._tables: list[Vector] = []  # of all rounds, for what they tell together (O10)

    def _examine(self, incoming: Incoming) -> list[Delivery]:
        """Compute one Ask's results again and sign them, once for every client's upload."""
        self._engine.move(Event.STEP)
        name, disclosure = incoming.item.exchange, Disclosure(incoming.item.part)
        seeds = CosineSeed if disclosure is Disclosure.SIMILARITY else RowSeeds
        request, secret = self._engine.read(incoming, (Examine, seeds))
        if not isinstance(request, Examine):
            raise LocalProtocolError("This is nothing to examine.")
        requested = requested_uploads(request, incoming, name, disclosure, self._context)
        if (str(disclosure), requested.source) in self._signed:
            raise Replay("These uploads were witnessed before; a second result would be compared.")
        uploads = self._uploads(request, requested)
        try:
            results, told, numbers = self._computed(uploads, secret, requested)
        except CryptoError as error:
            raise BadEnvelope(
                "What was shown cannot be computed.",
                why="weights rest on too few others (O10), or an upload is no ciphertext",
            ) from error
        size = self._context.find(name, disclosure, Step.OPEN).dims["results"]
        padded = b"".join(results).ljust(size, b"\0")
        found = statement(requested.place, request.headers, padded, numbers)
        return [self._sign(incoming, requested, found, told)]

    def _sign(
        self, incoming: Incoming, requested: RequestedUploads, found: bytes, told: dict[str, object]
    ) -> Delivery:
        """Record what was found, and sign it for the aggregator."""
        header, name, said = incoming.header, incoming.item.exchange, str(incoming.item.part)
        self._signed.add((said, requested.source))
        facts = {
            "cohort": header.cohort,
            "digest": hashlib.sha256(found).hexdigest(),
            "disclosure": said,
            "exchange": header.exchange,
            "members": len(requested.members),
            "round": header.round,
            "survivors": len(requested.names),
            "uploads": requested.source,
            **told,
        }
        self._engine.record("witness", facts)
        signature = self._context.me.signing.sign("witness", found)
        item = self._context.find(name, incoming.item.part, Step.WITNESSED)
        return self._engine.send(
            item, [Witnessed(signature=signature)], header.sender, requested.where
        )

    def _uploads(self, request: Examine, requested: RequestedUploads) -> dict[str, bytes]:
        """Return ciphertexts by client, each signed by it."""
        size, found = requested.shape.upload_bytes, {}
        data, roster = memoryview(request.uploads), self._context.roster
        if any(data[len(requested.names) * size :]):
            raise BadEnvelope("There are bytes behind the uploads.")
        signatures = np.asarray(request.signatures)
        for place, header in enumerate(requested.headers):
            body = bytes(data[place * size : (place + 1) * size])
            key = roster.party(header.sender).verify
            check_upload(header, signatures[place].tobytes(), body, key)
            found[header.sender] = body
        return found

    def _computed(
        self, uploads: dict[str, bytes], secret: Message, requested: RequestedUploads
    ) -> tuple[list[bytes], dict[str, object], tuple[int, ...]]:
        """Return results, and of weights what the ledger says and who is handed which row."""
        context = self._context
        if isinstance(secret, CosineSeed):
            key = context.key_of(Disclosure.SIMILARITY)
            return products(key, uploads, secret.seed, requested.place), {}, ()
        if not isinstance(secret, RowSeeds):
            raise LocalProtocolError("Nothing was said of how to compute this.")
        count, key = len(uploads), context.key_of(Disclosure.WEIGHTED_SUM)
        table = np.asarray(secret.weights).astype(np.int64)
        seeds = [row.tobytes() for row in np.asarray(secret.seeds)[:count]]
        if table[count:].any() or table[:, count:].any():
            raise BadEnvelope("Weights are shown for clients whose uploads are not.")
        table = table[:count, :count]
        found = rows(key, list(uploads.values()), table, seeds, context.policy)
        self._tables.append(whole_table(table, list(uploads), context.roster.clients))
        return found, facts_of_rows(self._tables, seeds), row_numbers(table)

    takes: ClassVar[Takes] = dict.fromkeys([(d, Step.WITNESS) for d in EVALUATED], _examine)


# The key authority's part where it vouches for cuts of clusters, by the cosines that it opened.


class CutSigning(SessionPart):
    """Computes and signs how the cosines of a cluster cut it in two.

    Every cut that it signed counts as made: a later one that would set few clients apart beside it
    is not signed, and the cluster stays whole.

    Args:
        engine: the session.
        clusters: that were asked and cut so far.
    """

    called: ClassVar[str] = "cuts"
    lasting: ClassVar[frozenset[str]] = frozenset({"_known"})

    def __init__(self, engine: Engine, clusters: ClusterHistory) -> None:
        super().__init__(engine)
        self._clusters = clusters
        self._known: tuple[int, ...] = ((1 << len(engine.context.roster.clients)) - 1,)

    def asked(self, members: Sequence[str]) -> None:
        """Hold a cohort that is opened to the clusters; raises CohortChanged.

        Who of a cluster is away is not in its cohort: it is taken for the smallest that holds it.
        """
        if self._context.plan.splits is not None:
            asked = self._clusters.bits(members)
            known = (one for one in self._known if not asked & ~one)
            self._clusters.serve(min(known, key=int.bit_count))

    def beside(self, requested: RequestedUploads, cosines: Message) -> tuple[Message, ...]:
        """Return what goes back with cosines: their cut, where the plan says that one is signed."""
        if not isinstance(cosines, Cosines):
            return ()
        item = self._context.find(requested.name, Disclosure.SIMILARITY, Step.OPENED)
        if len(item.messages) == 1:
            return ()
        return (self._signed_cut(requested, np.asarray(cosines.cosines)),)

    def _signed_cut(self, requested: RequestedUploads, levels: Vector) -> SignedCut:
        """Compute the cut of a whole cluster, record it and sign it; else sign nothing."""
        context, where, names = self._context, requested.where, requested.names
        none = SignedCut(side=bytes(len(context.roster.mask(()))), signature=bytes(SIGNATURE))
        splits, cluster = context.plan.splits, self._clusters.bits(requested.members)
        if splits is None or names != requested.members or cluster not in self._known:
            return none
        weights = _weights(names, levels)
        least = context.policy.smallest_cohort
        found = cut_in_two(weights, splits.cut, splits.guard, least)
        if found is None:
            return none
        side = tuple(name for name, inside in zip(names, found, strict=True) if inside)
        cut = Told(where.round, where.exchange, cluster, self._clusters.bits(side), b"")
        try:
            self._clusters.divide(cluster, cut.side)
        except CohortChanged:
            return none  # beside a cut that was signed before, few clients would stand apart
        self._known = tuple(dict.fromkeys((*self._known, cut.side, cut.rest)))
        masks = [context.roster.mask(one).hex() for one in (names, side)]
        facts = {"cohort": context.cohort(where), "exchange": where.exchange, "round": where.round}
        self._engine.record("cut", {**facts, "cluster": masks[0], "side": masks[1]})
        signature = context.me.signing.sign(CUT, cut.text(context.run, context.plan_digest))
        return SignedCut(side=context.roster.mask(side), signature=signature)


def _weights(names: tuple[str, ...], levels: Vector) -> Weights:
    """Return 1 + cosine of every pair, as it is sent."""
    place = {name: row for row, name in enumerate(names)}
    found: Weights = np.zeros((len(names), len(names)), dtype=np.int64)
    pairs = pairs_of(names)
    for (one, other), level in zip(pairs, levels[: len(pairs)], strict=True):
        i, j = place[one], place[other]
        found[i, j] = found[j, i] = int(level)
    return found


# The key authority's part where it opens what witnesses signed: cosines and weighted rows.
#
# Neither cosines nor rows can be told from a single client's upload by looking at them, so nothing
# is opened that the policy's number of witnesses did not compute again and sign (O4), and every
# result is opened once.


class Revealing(SessionPart):
    """Opens witnessed results, each once.

    Args:
        engine: the session.
        answering: makes durable what is about to be opened.
        keys: the epoch's secret keys.
        openings: what was opened before.
        cuts: signs how cosines cut a cluster.
    """

    called: ClassVar[str] = "results"

    def __init__(
        self,
        engine: Engine,
        answering: Answering,
        keys: SecretKeys,
        openings: Openings,
        cuts: CutSigning,
    ) -> None:
        super().__init__(engine)
        self._answering, self._keys, self._openings = answering, keys, openings
        self._cuts = cuts

    def _reveal(self, incoming: Incoming) -> list[Delivery]:
        """Open the cosines of one Ask's uploads, or every receiver's row of them."""
        self._engine.move(Event.STEP)
        request = self._engine.read_one(incoming, Reveal)
        header, name = incoming.header, incoming.item.exchange
        disclosure = Disclosure(incoming.item.part)
        requested = requested_uploads(request, incoming, name, disclosure, self._context)
        if self._answering.again:  # only what was signed and recorded before
            self._openings.check_recorded(header, disclosure)
        else:
            facts = self._witnessed(request, requested, disclosure)
            uploads = (disclosure, requested.source, facts)
            self._cuts.asked(requested.members)
            self._openings.once(header, requested.members, requested.names, *uploads)
            # Durable before anything is opened: a restart must not open another (O5).
            self._answering.before_opening(incoming)
        try:
            message = self._results(request, requested, disclosure, name)
        except CryptoError as error:
            raise BadEnvelope("A result is not what it is said to be.") from error
        item = self._context.find(name, disclosure, Step.OPENED)
        messages = [message, *self._cuts.beside(requested, message)]
        return [self._engine.send(item, messages, header.sender, requested.where)]

    def _witnessed(
        self, request: Reveal, requested: RequestedUploads, disclosure: Disclosure
    ) -> str:
        """Check that enough witnesses signed these very bytes; return the statement's digest."""
        roster, context = self._context.roster, self._context
        numbers = _numbers(request, requested, disclosure)
        said = statement(requested.place, request.headers, request.results, numbers)
        names = witnesses_of(context.policy, disclosure, roster.names(Role.WITNESS))
        for name, row in zip(names, np.asarray(request.signatures), strict=True):
            try:
                roster.party(name).verify.verify("witness", row.tobytes(), said)
            except CryptoError as error:
                raise BadEnvelope("A result is not what its witness signed (O4).") from error
        return hashlib.sha256(said).hexdigest()

    def _results(
        self, request: Reveal, requested: RequestedUploads, disclosure: Disclosure, name: str
    ) -> Message:
        size, numbers = requested.shape.result_bytes, _numbers(request, requested, disclosure)
        cosines = disclosure is Disclosure.SIMILARITY
        count = requested.shape.results(len(requested.names)) if cosines else max(numbers) + 1
        data = memoryview(request.results)
        if any(data[count * size :]):
            raise BadEnvelope("There are bytes behind the results.")
        results = [bytes(data[i * size : (i + 1) * size]) for i in range(count)]
        if cosines:
            return self._cosines(results, requested, request)
        return self._rows(results, numbers, requested, name)

    def _cosines(
        self, results: list[bytes], requested: RequestedUploads, request: Reveal
    ) -> Message:
        """Read one number a pair, rounded (O3); a number that is no cosine ends this session."""
        ring, secret = cosine_ring(), self._keys.of(Disclosure.SIMILARITY)
        item = self._context.find(requested.name, Disclosure.SIMILARITY, Step.OPENED)
        found: Vector = np.zeros(item.dims["pairs"], dtype=np.int64)
        for place, ((one, other), result) in enumerate(
            zip(pairs_of(requested.names), results, strict=True)
        ):
            levels = round(ring.cosine(secret, result) * COSINE_LEVELS)
            if one == other and levels < COSINE_LEVELS - 1:
                raise BadEnvelope(
                    "A client's vector, multiplied with itself, does not give 1.",
                    why="its software did not bring it to length 1; this stops accidents only: a "
                    "client that crafts a ciphertext passes",
                )
            found[place] = COSINE_LEVELS + levels
        return Cosines(cosines=found)

    def _rows(
        self,
        results: list[bytes],
        numbers: tuple[int, ...],
        requested: RequestedUploads,
        name: str,
    ) -> Message:
        """Open each row, which is still blinded, and seal it to its receivers one by one (O1)."""
        context, ring, boxes = self._context, weigh_ring(), []
        secret = self._keys.of(Disclosure.WEIGHTED_SUM)
        opened: dict[int, bytes] = {}
        for receiver, number in zip(requested.names, numbers, strict=True):
            if receiver not in requested.where.members:
                boxes.append(bytes(requested.shape.row_bytes))  # it vanished, and gets nothing
                continue
            if number not in opened:
                found = ring.decrypt(secret, results[number])
                opened[number] = found.astype("<u8").tobytes()
            info = row_info(context.run, requested.where.exchange, name, receiver)
            boxes.append(
                close_box(opened[number], context.me, context.roster.party(receiver), info)
            )
        item = context.find(name, Disclosure.WEIGHTED_SUM, Step.OPENED)
        return RowBoxes(boxes=b"".join(boxes).ljust(item.dims["row_boxes"], b"\0"))

    takes: ClassVar[Takes] = dict.fromkeys([(d, Step.OPEN) for d in EVALUATED], _reveal)


def _numbers(
    request: Reveal, requested: RequestedUploads, disclosure: Disclosure
) -> tuple[int, ...]:
    """Return the number of each receiver's row; none for cosines.

    Raises:
        BadEnvelope: rows are not numbered in the order in which they first come, without a gap.
    """
    stated = [int(number) for number in np.asarray(request.rows)]
    count = 0 if disclosure is Disclosure.SIMILARITY else len(requested.names)
    numbers, behind = tuple(stated[:count]), stated[count:]
    first_come = list(dict.fromkeys(numbers)) == list(range(len(set(numbers))))
    if any(behind) or not first_come:
        raise BadEnvelope("Rows are not numbered as the receivers' weights are.")
    return numbers
