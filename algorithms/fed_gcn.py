"""FedGCN (Yao, Jin, Ravi and Joe-Wong, NeurIPS 2023): rows of neighbours once, then FedAvg.

An edge between two clients is known at both ends, as the public number of the other end. Once,
before training, clients add up features of neighbours, row by row (`algorithms._shared.row_sums`):

    a(v) = 1/sqrt(d_v) * sum over u in N(v) and v itself of x_u / sqrt(d_u)

and a client is told a(v) of its own nodes (1 hop), and of their neighbours at other clients, too
(2 hops). Then all train GCN of two layers on these inputs, by FedAvg. With 0 hops nothing is added
up, and edges between clients are unused: that is FedAvg on the clients' own graphs.

Forms, with hops:

* `rows_by_tags`: rows are found by tags of node numbers and leave inside sums under masks, for
  policies with the guard `rows` (docs/adr/0051); examples/rows_policy.yaml. No degree leaves but as
  one more column of such a sum. With `row_noise` the sums are noised, that column is not
  (docs/adr/0054); examples/rows_noised_policy.yaml.
* `rows_in_blocks`: every client says its sums of all rows, block by block of public numbers; for
  policies that let ROW_SUM out in clear. As published, but for what the aggregator reads: there it
  is under encryption, here it is not.

Where this departs from the paper and its program:

* Weights are averaged by training records, as in FedAvg; theirs are averaged alike.
* Every row is exact or missing. What a client uses in the place of a missing one, see
  `algorithms._shared.row_sums`.
* Their program hands every client the raw features of its neighbours and adds up there.

A round that is lost after rows were asked for does not ask again: whoever was away in it trains on
its own graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from algorithms._shared.row_sums import Linked, aggregated, check_numbers, local, look, meet
from algorithms.fed_avg import Start, Update, fed_avg, moved
from algorithms.tasks import ClientModel, Kind, Site, Task
from protocols.forms import Algorithm, Exchange, Form, exchange_of
from protocols.messages import (
    Matrix,
    Message,
    ReleasedMessage,
    RowSumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost, Sealed

MODELS: Mapping[Kind, str] = {"node": "gcn"}
"""What the configuration's model is where it names none."""

_CITATION = "Yao, Jin, Ravi and Joe-Wong, FedGCN, NeurIPS 2023"


class Gather(ReleasedMessage):
    """Say your sums of a block of rows."""

    block: int = count(unit="block", meaning="number of the block of rows, from 0")


class Block(RowSumMessage):
    """One client's sums of a block of rows, in clear."""

    first: int = count(unit="row", meaning="number of the block's first row")
    wanted: Vector = count("block", unit="row", meaning="1: the client is to be told this row")
    sums: Matrix = real(
        "block", "width", unit="feature", meaning="sum of its terms; last, how many", wire="f4"
    )


class NodeTerms(RowSumMessage):
    """One client's terms of all rows, each of its own node's features; rows are found by tags."""

    by_tags = of_one = True
    sums: Matrix = real(
        "row_places", "width", unit="feature", meaning="sums of its terms; last, how many"
    )


class Told(RowSumMessage):
    """What other clients' terms of some rows add up to."""

    node: Vector = count("row_places", unit="row", meaning="1 + the row's number, 0 for padding")
    sums: Matrix = real(
        "row_places", "width", unit="feature", meaning="sum of others' terms; last, how many",
        wire="f4",
    )  # fmt: skip


@dataclass(frozen=True)
class Server:
    """The model, and whether rows were gathered.

    Attributes:
        start: what is handed out.
        gathered: whether clients were asked for rows, told or not.
        before: rounds that are still played before they are asked.
    """

    start: Start
    gathered: bool = False
    before: int = 0

    @property
    def asks(self) -> bool:
        """Whether the next round asks for rows."""
        return not self.gathered and not self.before


@dataclass(frozen=True)
class Client:
    """A client that is asked for sums of rows, and trains on those that it is told.

    Attributes:
        task, plain: the task, and FedAvg for it.
        epochs, hops, nodes, block: see `fed_gcn`.
    """

    task: Task
    plain: Algorithm[Start]
    epochs: int
    hops: int
    nodes: int
    block: int

    @property
    def handed(self) -> tuple[type[Message], ...]:
        """What a client is given when it is asked for rows."""
        return (Gather,)

    def asking(self, state: Server, block: int) -> tuple[Message, ...]:
        """Return the same of one block."""
        return (Gather(block=block),)

    @property
    def terms(self) -> type[NodeTerms]:
        """What a client says of all rows that are found by tags."""
        return NodeTerms

    def linked(self, site: Site, *given: Message) -> Linked:
        """Return what a client's nodes say to rows; raises ValueError if it knows no such edges."""
        said = Linked(local(site.data), self.hops)
        check_numbers(said.links[1], self.nodes)
        return said

    def look(self, site: Site) -> None:
        """Give the site's graph the rows that are here."""
        look(site, aggregated)

    def train(self, site: Site, given: Start) -> Update:
        """Train from the model on the rows that are here."""
        self.look(site)
        fitted = self.task.fit(given.weights, site, epochs=self.epochs)
        site.memory["trained"] = fitted
        delta = site.count * (fitted.astype(np.float64) - given.weights)
        return Update(delta=delta, count=site.count)

    def train_told(self, site: Site, given: Start, told: Told) -> Update:
        """Remember the last rows, then train."""
        meet(site, told.node, told.sums)
        return self.train(site, given)

    def gather(self, site: Site, given: Gather, *more: Message) -> Block:
        """Return this client's sums of a block of rows, and which of them it asks for."""
        said = self.linked(site, given, *more)
        rows = np.arange(given.block * self.block, (given.block + 1) * self.block)
        sums = said.sums(rows).toarray().astype(np.float32)
        wanted = np.isin(rows, said.wanted).astype(np.int64)
        return Block(first=int(rows[0]), wanted=wanted, sums=sums)

    def gather_next(self, site: Site, given: Gather, *more: Any) -> Block:
        """Remember rows of the block before, which come last, and say the next one."""
        *others, told = more
        meet(site, told.node, told.sums)
        return self.gather(site, given, *others)

    def link(self, site: Site, *given: Message) -> NodeTerms:
        """Return this client's terms of all rows."""
        said = self.linked(site, *given)
        facts = {"own": said.ids, "links": said.links, "wanted": said.wanted}
        return self.terms.unsummed(terms=said.terms[: len(said.ids)], **facts)

    def model(self, site: Site, given: Message | None) -> ClientModel:
        """Return what a client predicts with, on the rows that are here."""
        self.look(site)
        found: ClientModel = self.plain.model(site, given)
        return found

    @property
    def blocks(self) -> int:
        """How many blocks of rows there are."""
        return -(-self.nodes // self.block)

    def in_blocks(self, state: Server, cohort: Cohort) -> Round[Server]:
        """Have rows said block by block, once; then a round of FedAvg."""
        told: tuple[Sealed, ...] = ()
        for number in range(self.blocks if state.asks else 0):
            try:
                reply = yield Ask(cohort, given=(*self.asking(state, number), *told), back=Block)
            except RoundLost:
                return replace(state, gathered=True)
            told = (reply.read(Block, into=Told),)
        return (yield from trained(state, cohort, told))

    def by_tags(self, state: Server, cohort: Cohort) -> Round[Server]:
        """Have rows found by tags and added up, once; then a round of FedAvg."""
        told: tuple[Sealed, ...] = ()
        if state.asks:
            try:
                reply = yield Ask(cohort, given=self.asking(state, 0), back=self.terms)
            except RoundLost:
                return replace(state, gathered=True)
            told = (reply.read(self.terms, into=Told),)
        return (yield from trained(state, cohort, told))

    def once(self, rounds: int) -> int:
        """Return in how many of so many rounds rows are asked for."""
        return 1

    def forms(self) -> tuple[Form[Server], ...]:
        """Return both forms; what only policies in clear admit comes last."""
        once, handed = self.once, self.handed
        training = exchange_of(Start, self.train)
        with_rows = Exchange("train_told", (Start, Told), (Update,), self.train_told, due=once)
        tagged = Exchange("link", handed, (self.terms,), self.link, due=once)
        first = Exchange("gather", handed, (Block,), self.gather, due=once)
        more = Exchange("gather_next", (*handed, Told), (Block,), self.gather_next, due=once)
        several = (replace(more, per_round=self.blocks - 1),) if self.blocks > 1 else ()
        return (
            Form("rows_by_tags", self.by_tags, (training, tagged, with_rows)),
            Form("rows_in_blocks", self.in_blocks, (training, first, *several, with_rows)),
        )


def trained(state: Server, cohort: Cohort, told: tuple[Sealed, ...]) -> Round[Server]:
    """Play a round of FedAvg; one that asked for rows and is lost does not ask again."""
    asked = state.asks
    try:
        reply: Reply = yield Ask(cohort, given=(state.start, *told), back=Update)
    except RoundLost:
        if not asked:
            raise
        return replace(state, gathered=True)
    total = reply.total(Update)
    start = moved(state.start, total.delta / max(total.count, 1))
    return Server(start, state.gathered or asked, max(state.before - 1, 0))


def fed_gcn(
    task: Task, *, epochs: int = 1, hops: int = 0, nodes: int = 0, block: int = 256
) -> Algorithm[Any]:
    """Return FedGCN for a task.

    Args:
        task: trains and predicts; with hops GCN of two layers on nodes.
        epochs: local epochs per round.
        hops: 0, 1 or 2, see the module's head.
        nodes: with hops, how many public numbers of nodes there are.
        block: rows that leave in one message in `rows_in_blocks`.

    Raises:
        ValueError: an option is out of range, or the model is another one.
    """
    if hops not in (0, 1, 2) or block < 1:
        raise ValueError(f"hops = {hops} is 0, 1 or 2, and block = {block} is 1 or more")
    if hops and nodes < 1:
        raise ValueError(
            "with hops it must be told how many nodes the whole graph has, as a plan looks at no "
            "data: set the option nodes (Cora: 2708)"
        )
    plain = fed_avg(task, epochs=epochs)
    if not hops:
        less = (
            "FedAvg: no rows are exchanged (hops is 0, nodes is not set), and edges between "
            "clients are not used"
        )
        return replace(plain, name="fed_gcn", citation=_CITATION, reduced=lambda rounds: less)
    if getattr(task, "architecture", None) != ("gcn", 2):
        raise ValueError(
            "fed_gcn with hops is of the model gcn with 2 layers, whose inputs and neighbours are "
            "what rows stand for; take model.name: gcn, model.layers: 2, or hops: 0"
        )
    client = Client(task, plain, epochs, hops, nodes, block)
    sizes = {"block": block, "width": task.spec.features + 1, "nodes": nodes, "hops": hops}
    return Algorithm(
        name="fed_gcn",
        citation=_CITATION,
        init=lambda rng: Server(plain.init(rng)),
        model=client.model,
        forms=client.forms(),
        dims={**plain.dims, **sizes},
        linked=True,
    )


ALGORITHM = fed_gcn
