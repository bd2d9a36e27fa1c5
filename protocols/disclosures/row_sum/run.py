"""Row sums of one run: its grid, what each party holds, and the noise of a row's total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crypto.ldp_vectors import on_grid
from crypto.noise import DiscreteGaussian, sampler
from crypto.quantiser import Grid
from crypto.samplers import KEY_BYTES, Mute, Stream, derive, entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import WIDTH, Rows
from protocols.disclosures.row_sum.protocol.assignment import entered
from protocols.disclosures.row_sum.protocol.client import ClientRows
from protocols.disclosures.row_sum.protocol.wire import MOST, RowRun, cut_slots
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.messages import Message
from protocols.plan.plan import CountPlan, Item, Plan
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip, Quantise
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.row_noise import row_noise
from protocols.unready import Unsummed
from protocols.wire.envelope import Where
from protocols.wire.run_context import RunContext

# From a client's terms to the integers of a row that it adds: exact, or under its own noise.

Integers = NDArray[np.int64]
Terms = Sequence[NDArray[np.float64]]


class RowMaker(Protocol):
    """Makes rows, each once."""

    def row(self, tag: bytes, terms: Terms) -> tuple[Integers, bool]:
        """Return a row, (d,) integers, and whether something was clipped; never under noise.

        Args:
            tag: of the row.
            terms: of own nodes, one at least, (d,) each.
        """


class ExactRows:
    """Sums, each entry clipped and rounded to the grid.

    Args:
        clip: bound of every entry.
        bits: of the grid.
        key: of the stream that decides how sums are rounded.
    """

    def __init__(self, clip: float, bits: int, key: bytes) -> None:
        self._clip, self._grid = clip, Grid(clip, bits)
        self._stream = Stream(key)

    def row(self, tag: bytes, terms: Terms) -> tuple[Integers, bool]:
        """See `RowMaker`."""
        exact: NDArray[np.float64] = np.sum(terms, axis=0)
        bounded = np.clip(exact, -self._clip, self._clip)
        return self._grid.quantise(bounded, self._stream), bool((bounded != exact).any())


class NoisedRows:
    """Sums of terms that are clipped one by one, and noise; see `protocols.privacy.row_noise`.

    Args:
        clip: L2 norm of a node's term.
        bits: of the grid, on which the clip is the largest level.
        counted: the planned noise.
        most: the largest magnitude of a number. What is beyond is cut off after the noise, which
            costs no privacy, and not refused: a refusal would tell of it.
        key: of the noise, from the operating system, for these rows alone (O15). Each row's noise
            follows from it and the row's tag: if a state is put back, a row is the same release
            again, and no two rows have one noise.
    """

    def __init__(self, clip: float, bits: int, counted: CountPlan, most: int, key: bytes) -> None:
        self._clip, self._levels, self._most = clip, (1 << (bits - 1)) - 1, most
        self._law = sampler(DiscreteGaussian, float(counted.scale) * self._levels)
        self._key = key

    def row(self, tag: bytes, terms: Terms) -> tuple[Integers, bool]:
        """See `RowMaker`. Whether a term was clipped goes into no ledger: it is not noised."""
        total = np.zeros(len(terms[0]), dtype=np.int64)
        for term in terms:
            total += on_grid(term, self._clip, self._levels)
        total += self._law.sample(Stream(derive(self._key, "row noise", tag)), len(total))
        return np.clip(total, -self._most, self._most), False


# A client's part in rows within a run: from what its algorithm says to what it is told.


def rows_guard(policy: PrivacyPolicy) -> Rows | None:
    """Return the guard of rows that are found by tags; None if the policy has none."""
    found = guard_of(policy.rules.get(Disclosure.ROW_SUM, ()), Rows)
    return None if found is None or found.unsafe else found


def row_item(plan: Plan) -> Item | None:
    """Return the upload whose rows are found by tags; None if a plan holds none."""
    found = [i for i in plan.items if i.part is Disclosure.ROW_SUM and WIDTH in i.dims]
    return found[0] if found else None


def row_run_of(context: RunContext) -> RowRun | None:
    """Return what all parties of this run's rows agree on; None if none are found by tags."""
    guard, item = rows_guard(context.policy), row_item(context.plan)
    noise = row_noise(context.policy)
    if guard is None or item is None:
        return None
    return RowRun(
        run=context.run,
        roster=context.roster,
        size=item.dims[WIDTH],
        guard=guard,
        plan=context.plan_digest,
        floor=1 if noise is not None else context.policy.others,
        each=noise.releases if noise is not None else 1,
    )


def needed_run(context: RunContext) -> RowRun:
    """Return the same; raises LocalProtocolError if there is none."""
    found = row_run_of(context)
    if found is None:
        raise LocalProtocolError("No rows are added up in this run.")
    return found


def held(context: RunContext) -> RowSide:
    """Return what this client remembers of rows; raises LocalProtocolError if nothing."""
    found = context.held.get(Disclosure.ROW_SUM)
    if not isinstance(found, RowSide):
        raise LocalProtocolError("This client takes no part in rows.")
    return found


class RowSide(Mute):
    """What a client remembers of rows.

    Args:
        context: of the client.

    Attributes:
        rows: the client's part in the protocol.
    """

    def __init__(self, context: RunContext) -> None:
        run = needed_run(context)
        self.rows = ClientRows(run, context.me, spread=context.spread)
        self._name = context.me.party.name
        self._where: Where | None = None
        self._terms: dict[str, NDArray[Any]] = {}
        self._links: NDArray[np.int64] = np.zeros((2, 0), dtype=np.int64)
        self._key = self._secret = b""

    def begin(self, said: Unsummed, width: int, where: Where, cohort: str, key: bytes) -> bytes:
        """Return the box that leaves first.

        Args:
            said: the client's terms; they stay here until it is known which rows are added up.
            width: of a row, as planned.
            where: place of the Ask.
            cohort: its digest.
            key: of a stream that decides how sums are rounded.

        Raises:
            UnfitMessage: terms of another size, NaN or Inf (under noise these count as zeros: an
                error would tell of them), or more numbers than tags.
            Replay: rows were asked for before in this run.
        """
        terms = said.terms
        dense = isinstance(terms, np.ndarray)
        values = terms if dense else terms.data
        bare = not self.rows.row_run.guard.noised
        if terms.shape != (len(said.own), width) or (bare and not np.isfinite(values).all()):
            raise UnfitMessage(
                "A client's terms do not have the planned shape, or hold NaN or Inf.",
                fix="correct what the algorithm's answer returns; nothing was sent",
            )
        place, row = said.links
        if (np.diff(said.own) <= 0).any() or (place < 0).any() or (place >= len(said.own)).any():
            raise UnfitMessage(
                "A client's nodes do not ascend, or a term is of a node that there is not.",
                why="each node has one number and one term, so that it enters one row (O25)",
                fix="correct what the algorithm's answer returns; nothing was sent",
            )
        numbers = np.stack([said.own[place], row])
        # With the digest of what was given, as terms may follow from it: whoever hands one client
        # another model than the others gets no sum of what they say (O8).
        bound = f"{where.round}/{where.exchange}/{cohort}/{where.given}"
        box = self.rows.begin(where.round, numbers, said.wanted, bound)
        self._terms = _kept(terms, dense)
        self._links, self._where, self._key = np.stack([place, row]), where, key
        self._secret = entropy(KEY_BYTES)  # kept till noise is drawn: once, also after a kill
        return box

    @property
    def where(self) -> Where:
        """The Ask that rows were asked for in."""
        if self._where is None:
            raise LocalProtocolError("No rows are being added up.")
        return self._where

    def check(self, where: Where) -> None:
        """Raise BadEnvelope unless an envelope belongs to the Ask that this began with."""
        mine = self.where
        if any(
            getattr(mine, name) != getattr(where, name)
            for name in ("round", "exchange", "attempt", "members", "given")
        ):
            raise BadEnvelope("What is added up belongs to another Ask than the one answered.")

    def halves(self, box: bytes) -> dict[str, bytes]:
        """Take the matcher's box; return a sealed half of a secret for each other client."""
        return self.rows.halves(box, self.where.members)

    def parts(
        self, boxes: Mapping[str, bytes], clip: float, bits: int, noise: CountPlan | None
    ) -> tuple[bytes, bool, int]:
        """Take the others' halves; return the slots, whether a value was clipped, how many sums.

        Args:
            boxes: by client.
            clip: bound of every entry of a sum, or under noise of a term's norm. Terms are counted
                here, in the last column.
            bits: of the grid.
            noise: as planned; None without noise.
        """
        adding = self.rows.join(boxes)
        numbers = {tag: number for number, tag in self._tags().items()}
        found, clipped = [], False
        made: RowMaker = ExactRows(clip, bits, self._key)
        if noise is not None:
            made = NoisedRows(clip, bits, noise, self.rows.row_run.most, self._secret)
        sums: dict[bytes, NDArray[np.int64]] = {}  # whoever is told a row, it is the same release
        for one in adding:
            if one.row not in sums:
                places = self._places(numbers[one.row])
                row, cut = made.row(one.row, self._each(places))
                clipped = clipped or cut
                # Not what the algorithm says: this column is neither bounded nor on the grid.
                sums[one.row] = np.concatenate([row, [len(places)]])
            found.append(sums[one.row])
        values = np.array(found, dtype=np.int64).reshape(len(adding), self.rows.row_run.size)
        self._terms, self._secret = {}, b""
        return self.rows.slots(adding, values), clipped, len(adding)

    def entered(self) -> int:
        """Return how many rows a node of this client enters, at most."""
        return max(entered(self.rows.orders, self.rows.offer).values(), default=0)

    @property
    def tagged(self) -> dict[str, NDArray[Any]]:
        """For audits at this client: its tags, and which of them are of which node."""
        held = self.rows.held
        found = np.array(sorted(held.places.items()), dtype=np.int64).reshape(-1, 2)
        return {"sent": held.sent, "items": found[:, 0], "rows": found[:, 1]}

    def _tags(self) -> dict[int, bytes]:
        held = self.rows.held
        return {number: held.sent[at].tobytes() for number, at in held.places.items()}

    def _places(self, row: int) -> NDArray[np.int64]:
        """Return which own nodes enter a row, each once."""
        found: NDArray[np.int64] = np.unique(self._links[0][self._links[1] == row])
        return found

    def _each(self, places: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Return some own nodes' terms without what is counted, (width - 1,) each."""
        width = self.rows.row_run.size
        return [_term(self._terms, int(place), width)[:-1] for place in places]

    def found(
        self, kind: type[Message], slots: bytes, dims: Mapping[str, int], clip: float, bits: int
    ) -> tuple[Message, int, int]:
        """Return the algorithm's message, how many rows were told, and how many did not open.

        A row whose words are none that its adders could have sent is dropped: whoever added it up
        changed it, or an adder masked another one.
        """
        run, grid = self.rows.row_run, Grid(clip, bits)
        sent = cut_slots(slots, run)
        totals = {label: words for (label, to, _), words in sent.items() if to == self._name}
        opened = self.rows.opened(totals)
        self.rows.drop()
        (places,) = next(f for f in kind.fields if f.name == "node").sizes(dims)
        node = np.zeros(places, dtype=np.int64)
        sums = np.zeros((places, run.size), dtype=np.float32)
        place = 0
        for number, (adders, values) in sorted(opened.items()):
            most = adders * (run.most if run.guard.noised else grid.levels)
            honest = np.abs(values[:-1]).max(initial=0) <= most and adders <= values[-1] <= MOST
            if honest and values[-1] <= adders * run.guard.links:
                node[place] = 1 + number
                sums[place, :-1], sums[place, -1] = values[:-1] * grid.step, values[-1]
                place += 1
        made: dict[str, Any] = {"node": node, "sums": sums}
        return kind(**made), place, len(opened) - place


def _kept(terms: Any, dense: bool) -> dict[str, NDArray[Any]]:
    if dense:
        return {"dense": np.asarray(terms, dtype=np.float64)}
    rows = terms.tocsr()  # stored by columns, a node's term would be made of others' features
    return {name: np.asarray(getattr(rows, name)) for name in ("data", "indices", "indptr")}


def _term(terms: Mapping[str, NDArray[Any]], node: int, width: int) -> NDArray[np.float64]:
    if "dense" in terms:
        found: NDArray[np.float64] = terms["dense"][node]
        return found
    row = np.zeros(width)
    start, end = terms["indptr"][node], terms["indptr"][node + 1]
    row[terms["indices"][start:end]] = terms["data"][start:end]
    return row


def grid_of(policy: PrivacyPolicy) -> tuple[float, int]:
    """Return the bound and the bits of sums' entries, as the policy says them."""
    chain = policy.chain(Disclosure.ROW_SUM)
    clip, quantise = guard_of(chain, Clip), guard_of(chain, Quantise)
    if clip is None or quantise is None:
        raise LocalProtocolError("Rows under masks need a clip and a grid.")
    return clip.bound, quantise.bits
