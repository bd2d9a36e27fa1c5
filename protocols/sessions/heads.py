"""Heads of ledgers and budgets, witnessed by all clients, and what a client spends (O20)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.merkle import Checkpoint
from crypto.samplers import entropy
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    RemoteProtocolError,
    Replay,
    WrongStage,
)
from protocols.evidence.ledger import (
    SILENT,
    Line,
    Spoken,
    check_place,
    client_items,
    received,
    tree,
    word_of,
)
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.learns import check_covered
from protocols.plan.plan import Plan
from protocols.plan.steps import Service, Step
from protocols.policy.budget import Headed, Unit, budget_key, budget_origin
from protocols.privacy.noising import check_training, run_divergence
from protocols.privacy.record_noise import counted_curve, counted_in
from protocols.privacy.training import training_divergence
from protocols.sessions.asking import Exchanges
from protocols.sessions.engine import Progress
from protocols.sessions.part import Delivery, Engine, Event, SessionPart, State, Takes
from protocols.sessions.survivors import Survivors
from protocols.wire.control import Acknowledgement, BudgetHeads, BudgetNotes, Call, Farewell, Place
from protocols.wire.envelope import Envelope, Where, commitment
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, given_digest
from protocols.wire.run_context import RunContext

# --- The aggregator's part where it makes all clients witnesses of each other's ledgers ---


class Heads(SessionPart):
    """Tells all clients what was heard of them; see `protocols.evidence.ledger`.

    Args:
        engine: the session.
        exchanges: numbers the farewell.
        survivors: who is there to get it.
    """

    def __init__(self, engine: Engine, exchanges: Exchanges, survivors: Survivors) -> None:
        super().__init__(engine)
        self._exchanges, self._survivors = exchanges, survivors
        self._received: dict[str, Line] = {}

    @property
    def heard(self) -> frozenset[str]:
        """The clients that said anything in this run so far."""
        return frozenset(self._received)

    def hear(self, incoming: Incoming) -> None:
        """Note an envelope of a client; its receipt stands in the ledger."""
        header = incoming.header
        if incoming.item.sender == str(Role.CLIENT):
            before, said = self._received.get(header.sender, SILENT), commitment(incoming.envelope)
            facts = header.exchange, header.item, said, header.head
            self._received[header.sender] = received(before, *facts)

    def places(self) -> tuple[bytes, dict[str, Place]]:
        """Return the root over all clients' heads, and each client's place under it."""
        root, proofs = tree(self._context.roster.clients, self._received)
        lines = {client: self._received.get(client, SILENT) for client in proofs}
        items = client_items(self._context.plan.items)
        return root, {
            client: Place(
                exchange=lines[client][0], items=word_of(lines[client][1], items), proof=proof
            )
            for client, proof in proofs.items()
        }

    def write_down(self, root: bytes, where: Where) -> None:
        """Record which root goes out."""
        facts = {"exchange": where.exchange, "root": root.hex(), "round": where.round}
        self._engine.record("heads", facts)

    def farewell(self) -> Iterable[Delivery]:
        """Return the heads at the end of the run, for all clients that are there."""
        round = self._context.plan.rounds
        self._engine.move(Event.PART)
        number = self._exchanges.next()
        root, places = self.places()
        message = Farewell(nonce=entropy(16), heads=root)
        item = self._context.find("", Service.HEADS, Step.DOWN)
        given = given_digest([message], self._context.dims(item))
        where = Where(round, number, (), given)
        there = self._survivors.present(self._context.roster.clients, round)
        self.write_down(root, where)
        return (self._engine.send(item, [message, places[c]], c, where) for c in there)

    def take_leave(self, data: bytes) -> None:
        """Take what a client says to the farewell. Whatever it is, all rounds are done.

        Only what is authentic is recorded; a refusal and an acknowledgement end alike.
        """
        with contextlib.suppress(RemoteProtocolError):
            incoming = self._engine.open(data, exchange=self._exchanges.number)
            self.hear(incoming)
            if incoming.item.part is Service.BUDGET:
                self._engine.handler(incoming)(incoming)

    def _take_receipt(self, incoming: Incoming) -> None:
        """Refuse a receipt of the heads before they were given; later `take_leave` takes it."""
        raise WrongStage("A receipt of the last heads arrived before they were given.")

    takes: ClassVar[Takes] = {(Service.HEADS, Step.ACK): _take_receipt}


# --- Heads of the clients' privacy budgets, cosigned by the aggregator at the end of a run (O20)
# ---
#
# A budget lies at its site and only grows (`secure_fgl.store.budgets`). That somebody put it back
# as a whole shows in a head that another party signed. So after the farewell each client sends the
# heads of the budgets that the policy names, under its own key; the aggregator signs each once more
# and sends it back. Both are items of the plan, pass the gateway and stand in both ledgers.
#
# The aggregator learns how often a budget was taken from, and a digest. It signs whatever head a
# site states: it keeps none, and compares with nothing.

BudgetCosigning = BudgetHeads | BudgetNotes


def _datasets(context: RunContext) -> Mapping[str, str]:
    """Return the budgets that a policy names: unit -> the data set's id, in the plan's order."""
    return {
        unit: budget_key(context.plan.data.name, unit) for unit in sorted(context.policy.budgets)
    }


def _read(
    message: BudgetCosigning, client: str, signer: str, context: RunContext
) -> dict[str, Checkpoint]:
    """Return the heads of a message by unit; raises BadEnvelope unless `signer` signed each."""
    key, found = context.roster.party(signer).verify, {}
    for place, (unit, dataset) in enumerate(_datasets(context).items()):
        size, root = int(message.sizes[place]), bytes(message.roots[place])
        try:
            head = Checkpoint(budget_origin(client, dataset), size, root)
            key.verify_raw(bytes(message.signatures[place]), head.text().encode())
        except CryptoError:
            raise BadEnvelope(f"A head of a budget is not signed by {signer}.") from None
        found[unit] = head
    return found


def _rows(values: list[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(value, dtype=np.uint8) for value in values])


class ClientBudgets(SessionPart):
    """A client's part: it sends the heads of its budgets, and keeps what comes back."""

    def heads(self, recipient: str, where: Where) -> list[Delivery]:
        """Return the heads of this client's budgets; none where it has no store of them."""
        context, door = self._context, self._context.reserve
        if not context.policy.budgets or not isinstance(door, Headed):
            return []
        made = [door.head(dataset) for dataset in _datasets(context).values()]
        signed = [context.me.signing.sign_raw(head.text().encode()) for head in made]
        message = BudgetHeads(
            sizes=np.array([head.size for head in made], dtype=np.int64),
            roots=_rows([head.root for head in made]),
            signatures=_rows(signed),
        )
        item = context.find("", Service.BUDGET, Step.COMMIT)
        return [self._engine.send(item, [message], recipient, where)]

    def _keep(self, incoming: Incoming) -> list[Delivery]:
        """Keep what the aggregator cosigned; nothing is said to it."""
        context, door = self._context, self._context.reserve
        if self._engine.state is not State.PARTED or not isinstance(door, Headed):
            raise WrongStage("Heads of budgets came back before they were sent.")
        message = self._engine.read_one(incoming, BudgetNotes)
        key = context.roster.party(AGGREGATOR_NAME).verify
        for place, head in enumerate(
            _read(message, self._engine.name, AGGREGATOR_NAME, context).values()
        ):
            note = head.note(bytes(message.signatures[place]), AGGREGATOR_NAME, key)
            unit, dataset = [*_datasets(context).items()][place]
            door.keep(unit, dataset, context.run, note, AGGREGATOR_NAME, key)
        return []

    takes: ClassVar[Takes] = {(Service.BUDGET, Step.COMMITS): _keep}


class Cosigning(SessionPart):
    """The aggregator's part: it signs the heads that clients sent with their leave.

    Args:
        engine: the session.
        exchanges: numbers what goes back.
    """

    def __init__(self, engine: Engine, exchanges: Exchanges) -> None:
        super().__init__(engine)
        self._exchanges = exchanges
        self._signed: dict[str, BudgetNotes] = {}

    def _take(self, incoming: Incoming) -> None:
        if self._engine.state is not State.PARTING:
            raise WrongStage("Heads of budgets came before the end of the run.")
        sender, message = incoming.header.sender, self._engine.read_one(incoming, BudgetHeads)
        heads = _read(message, sender, sender, self._context).values()
        key = self._context.me.signing
        self._signed[sender] = BudgetNotes(
            sizes=message.sizes,
            roots=message.roots,
            signatures=_rows([key.sign_raw(head.text().encode()) for head in heads]),
        )

    def give_back(self) -> list[Delivery]:
        """Return the cosigned heads that were not given back yet."""
        waiting, self._signed = self._signed, {}
        if not waiting:
            return []
        item = self._context.find("", Service.BUDGET, Step.COMMITS)
        where = Where(self._context.plan.rounds, self._exchanges.next())
        return [self._engine.send(item, [waiting[name]], name, where) for name in sorted(waiting)]

    takes: ClassVar[Takes] = {(Service.BUDGET, Step.COMMIT): _take}


# --- A client's view of the root over all clients' heads: its receipts, and the farewell ---


class Receipts(SessionPart):
    """Compares what this client sent with what the aggregator says that it heard.

    Args:
        engine: the session.
        progress: how far this client is.
        budgets: sends the heads of this client's budgets with its leave.
    """

    def __init__(self, engine: Engine, progress: Progress, budgets: ClientBudgets) -> None:
        super().__init__(engine)
        self._progress, self._budgets = progress, budgets
        self._spoken = Spoken(client_items(engine.context.plan.items))

    def sent(self, envelope: Envelope) -> None:
        """Note what leaves, to compare the aggregator's receipt with."""
        header = envelope.header
        self._spoken.add(header.exchange, header.item, commitment(envelope), header.head)

    def _take_leave(self, incoming: Incoming) -> list[Delivery]:
        """Take over the heads at the end of the run, after which nothing more is answered."""
        farewell, place = self._engine.read(incoming, (Farewell, Place))
        header = incoming.header
        if header.given != given_digest([farewell], self._context.dims(incoming.item)):
            raise BadEnvelope("A farewell's content is not what its header says was given.")
        if header.exchange <= self._progress.exchange:
            raise Replay("A farewell is older than an Ask that was answered.")
        if header.round != self._context.plan.rounds or header.attempt != 1:
            raise BadEnvelope("A farewell arrived that is not of the end of the run.")
        self._engine.move(Event.PART)
        self._progress.reached(header.exchange, header.round)
        where = Where(header.round, header.exchange, (), header.given)
        self.check(farewell, place, where)
        item = self._context.find("", Service.HEADS, Step.ACK)
        taken = self._engine.send(item, [Acknowledgement()], header.sender, where)
        return [taken, *self._budgets.heads(header.sender, where)]

    def check(self, shared: Message, place: Message, where: Where) -> None:
        """Check the receipt of what this client said last; write down the root it stands under."""
        if not isinstance(shared, (Call, Farewell)) or not isinstance(place, Place):
            raise BadEnvelope("A receipt is missing.")
        line, missing = self._spoken.line(place.exchange, place.items)
        check_place(
            self._engine.name, self._context.roster.clients, line, place.proof, shared.heads
        )
        facts = {
            "exchange": where.exchange,
            "received": place.exchange,
            "items": place.items,
            "missing": int(missing),
            "root": shared.heads.hex(),
            "round": where.round,
        }
        self._engine.record("heads", facts)

    takes: ClassVar[Takes] = {(Service.HEADS, Step.DOWN): _take_leave}


# --- A client's privacy budget and its private training: reserved, allowed and checked (O20) ---


def planned_spending(plan: Plan) -> Iterator[tuple[Unit, tuple[float, ...]]]:
    """Yield what a whole run spends of a client's budgets: the unit, and the Rényi curve."""
    if any(item.noise is not None for item in plan.items):
        yield "client", run_divergence(plan)
    if (rows := counted_in(plan.items, "node")) is not None:
        spent = tuple(float(value) for value in rows.releases * counted_curve(rows))
        yield "node", spent
    if plan.training is not None:
        curve = training_divergence(plan.training)
        if counted := counted_in(plan.items):
            # A graph trains or is scored, as the split has it: one of the two is spent on it.
            both = np.maximum(curve, counted.releases * counted_curve(counted))
            curve = tuple(float(value) for value in both)
        yield plan.training.unit, curve


class Spending(SessionPart):
    """Takes a run's spending from the site's budget, and opens its gradients round by round."""

    lasting = frozenset({"_trained"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._trained = (0, 0)  # rounds whose training was private, and the last of them

    def begin(self) -> None:
        """Reserve the whole run's spending before any noise is drawn (O20)."""
        context = self._context
        check_covered(context.plan.items, context.policy)
        check_training(context.plan, context.policy)
        planned = context.plan.training
        if planned is not None and (context.training is None or context.training.plan != planned):
            raise LocalProtocolError("This client has nothing to draw private batches with.")
        for unit, curve in planned_spending(context.plan):
            self._reserve(unit, curve)

    def _reserve(self, unit: Unit, rdp: Sequence[float]) -> None:
        """Take the whole run's spending from the site's budget before any noise is drawn (O20)."""
        context = self._context
        cap = context.policy.budgets.get(unit)
        if context.reserve is None or cap is None:
            raise LocalProtocolError("This client has no privacy budget to draw noise from.")
        key = budget_key(context.plan.data.name, unit)
        facts = context.reserve(dataset=key, run=context.run, rdp=rdp, cap=cap)
        self._engine.record("budget", facts if unit == "client" else {**facts, "unit": unit})

    def open_training(self, exchange: Exchange, where: Where) -> None:
        """Allow a round's noised gradients, once, and put that into the ledger.

        The entry is durable before anything computed from these gradients leaves, like any other.
        """
        training, (rounds, latest) = self._context.training, self._trained
        if training is None or not exchange.per_round or where.round == latest:
            return
        training.open(where.round, rounds)
        self._trained = (rounds + 1, where.round)
        self._engine.record("training", training.facts(where.round))

    def check_trained(self, exchange: Exchange) -> None:
        """Refuse an answer that should come from noised gradients if none was taken."""
        training = self._context.training
        learnt = exchange.per_round and not set(exchange.back) <= set(exchange.held_out)
        if training is not None and learnt and not training.taken:
            raise LocalProtocolError(
                f"Training in {exchange.name!r} took no noised gradient; nothing was sent."
            )
