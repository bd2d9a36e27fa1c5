"""Heads of the sites' privacy budgets, cosigned by the aggregator when a run is over (O20).

A budget lies at its site and only grows (`secure_fgl.store.budgets`). That somebody put it back as
a whole shows in a head that another party signed. So when the run is over each client tells the
heads of the budgets that the run took from, under its own key; the aggregator signs each once more,
and gives them back with the end of the run. The client keeps them in its store and beside its
ledger, in ``run/budgets/``, as a run in one process does.

The engine's operator sees how often a budget was taken from, and a digest. The aggregator signs
whatever head a site states: it keeps none, and compares with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crypto.errors import CryptoError
from crypto.signing.checkpoint import read
from protocols.errors import BadEnvelope, EvidenceError
from protocols.policy.budget import budget_key, budget_origin
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.store.anchors import Anchor
from secure_fgl.store.budget_lines import STEP
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.files import Folder
from secure_fgl.transports.nvflare.charter import Charter
from secure_fgl.transports.nvflare.party import PartyKit

__all__ = ["budgets_of", "cosigned", "keep", "own_heads"]


def budgets_of(charter: Charter, client: str) -> Mapping[str, str]:
    """Return the budgets that a run takes from at a client: name of the note -> data set."""
    dataset, policy = charter.plan.data.name, charter.policy
    found = {client: dataset} if policy.budget is not None else {}
    if (training := policy.training) is not None:
        found[f"{client}.{training.unit}"] = budget_key(dataset, training.unit)
    return found


def own_heads(kit: PartyKit) -> list[bytes]:
    """Return the heads of a client's budgets under its own key; of other parties none.

    Raises:
        EvidenceError: at step ``budget``: a budget was cut, edited or put back.
        LedgerError: it cannot be read.
    """
    if kit.me.party.role is not Role.CLIENT:
        return []
    store = BudgetStore(kit.config().budget.store)
    names = budgets_of(kit.charter, kit.name).values()
    heads = [store.checkpoint(kit.name, dataset) for dataset in names]
    return [head.sign(kit.me.signing, kit.name).encode() for head in heads]


def cosigned(kit: PartyKit, client: str, heads: Sequence[bytes]) -> list[bytes]:
    """Return a client's heads with the signature of this party, the aggregator, in its place.

    Raises:
        BadEnvelope: they are not heads of just this client's budgets under its own key.
    """
    datasets = budgets_of(kit.charter, client).values()
    if len(heads) != len(datasets):
        raise BadEnvelope("A client told other heads of budgets than this run takes from.")
    notes = []
    for dataset, data in zip(datasets, heads, strict=True):
        try:
            key = kit.charter.roster.party(client).verify
            head = read(data.decode("utf-8", "replace"), name=client, key=key)
        except CryptoError:
            raise BadEnvelope("A head of a budget is not signed by its client.") from None
        if head.origin != budget_origin(client, dataset):
            raise BadEnvelope("A head is of another budget than this run takes from.")
        notes.append(head.sign(kit.me.signing, kit.name).encode())
    return notes


def keep(kit: PartyKit, notes: Sequence[bytes]) -> None:
    """Keep what the aggregator cosigned in the store, and in ``run/budgets/`` if the run took any.

    A note that is older than what this run took is none of this run's: whoever runs the server
    could bring one of an earlier run, and a budget without what this run took would extend it.

    Raises:
        EvidenceError: at step ``budget``: a note is not signed by the aggregator, of another
            budget, or older than what this run took, or the budget does not reach it.
        LedgerError: the store cannot be written.
    """
    if kit.me.party.role is not Role.CLIENT:
        return
    store, folder = BudgetStore(kit.config().budget.store), Folder(kit.run_folder)
    key = kit.charter.roster.party(AGGREGATOR_NAME).verify
    for (name, dataset), note in zip(
        budgets_of(kit.charter, kit.name).items(), notes, strict=False
    ):
        anchor = Anchor(note.decode("utf-8", "replace"), AGGREGATOR_NAME, key)
        taken = store.taken(kit.name, dataset, kit.charter.run)
        if anchor.checkpoint().size < taken:
            raise EvidenceError(STEP, "a note on a budget is older than what this run took")
        store.anchor(anchor, kit.name, dataset)
        if taken:  # verification refuses a note of a budget that the run left alone
            folder.write(f"budgets/{name}.checkpoint", note)
