"""Heads of the clients' privacy budgets, cosigned by the aggregator at the end of a run (O20).

A budget lies at its site and only grows (`secure_fgl.store.budgets`). That somebody put it back as
a whole shows in a head that another party signed. So after the farewell each client sends the heads
of the budgets that the policy names, under its own key; the aggregator signs each once more and
sends it back. Both are items of the plan, pass the gateway and stand in both ledgers.

The aggregator learns how often a budget was taken from, and a digest. It signs whatever head a site
states: it keeps none, and compares with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.signing.checkpoint import Checkpoint
from protocols.errors import BadEnvelope, WrongStage
from protocols.plan.steps import Service, Step
from protocols.policy.budget import Headed, budget_key, budget_origin
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.exchanges import Exchanges
from protocols.sessions.table import State
from protocols.wire.control import BudgetHeads, BudgetNotes
from protocols.wire.inbox import Incoming
from protocols.wire.roster import AGGREGATOR_NAME
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where

__all__ = ["ClientBudgets", "Cosigning"]

Heads = BudgetHeads | BudgetNotes


def _datasets(context: RunContext) -> Mapping[str, str]:
    """Return the budgets that a policy names: unit -> the data set's id, in the plan's order."""
    return {
        unit: budget_key(context.plan.data.name, unit) for unit in sorted(context.policy.budgets)
    }


def _read(message: Heads, client: str, signer: str, context: RunContext) -> dict[str, Checkpoint]:
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
