"""How a party's session comes into being: begun, or taken up as a killed process left it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from algorithms.tasks import Site
from audits.evidence.run_files import policy_text
from protocols.disclosures.match.run import shared_key
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Ledger
from protocols.forms import Form
from protocols.roles.aggregator import AggregatorSession
from protocols.sessions.engine import Session
from protocols.sessions.store.state_keeper import Outcome
from protocols.wire.roles import Role, session_of
from protocols.wire.run_context import RunContext
from secure_fgl.charters.party import PartyKit
from secure_fgl.isolation.sandbox import Sandbox
from secure_fgl.run.clock import clock
from secure_fgl.run.parties import Making
from secure_fgl.run.simulation import Preparation
from secure_fgl.store.captures import record
from secure_fgl.store.run_folder import FileStore, RunFolder
from secure_fgl.store.state_store import StateStores

__all__ = ["begun", "isolated", "making_of", "taken_up"]

TRANSPORT = "broker"
"""The transport's name; every ledger begins with it."""


def isolated(
    kit: PartyKit, prepared: Preparation, form: Form[Any], files: contextlib.ExitStack
) -> tuple[Site, Form[Any], Sandbox]:
    """Return a client's site without its data, and answers of the process that has them, and it.

    This process holds the keys and never the data; the other one the data and never a key. Of own
    data it opens this client's folder alone. Of a published set, which everybody has, the
    simulator's partition is computed anew there, and all parts but this client's own are dropped.
    """
    charter = kit.charter
    sandbox = Sandbox(
        prepared.config, charter.policy, charter.plan, [kit.name], plugins=prepared.plugins.files
    )
    files.enter_context(sandbox)
    site = Site(None, seed=0)  # its draws are counted here and made there
    return site, sandbox.form(form, {kit.name: site}), sandbox


def making_of(
    kit: PartyKit,
    prepared: Preparation,
    form: Form[Any],
    site: Any,
    folder: RunFolder,
    again: bool,
    files: contextlib.ExitStack,
) -> Making:
    """Return what makes this party's session; `again`: of a run that goes on."""

    def store(name: str) -> FileStore:
        made = folder.ledger(name, again=again)
        files.callback(made.close)
        return made

    charter, client = kit.charter, kit.me.party.role is Role.CLIENT
    keyed = client and shared_key(charter.policy.rules.get(Disclosure.MATCH, ()))
    sites = [site if name == kit.name else None for name in charter.plan.clients]
    return Making(
        charter.plan, charter.policy, form, sites,
        scheme=prepared.scheme, store=store, seed=prepared.config.seed,
        reserve=prepared.reserve(kit.run_folder), transport=TRANSPORT,
        tag_key=kit.tag_key() if keyed else None,
        config=charter.config.agreed_text(), plugins=prepared.plugins.code,
    )  # fmt: skip


def _own_context(kit: PartyKit, making: Making) -> RunContext:
    charter = kit.charter
    return making.context(kit.me, making.first_context(kit.me, charter.roster, charter.run))


def begun(kit: PartyKit, making: Making, folder: RunFolder, state_stores: StateStores) -> Session:
    """Begin the run at this party."""
    folder.make()
    _context(kit, folder)
    context = _own_context(kit, making)
    session = making.session(context)
    session.keeper = making.keeper(context, state_stores.new(kit.name))
    record([session], making, folder.path, kit.keys)
    session.commit()
    # Last: a folder with this file holds a run that can go on after a kill.
    roster = {"run": kit.charter.run, "nonce": kit.charter.nonce.hex()}
    parties = {"parties": kit.charter.roster.document(), "transport": TRANSPORT}
    folder.document("roster.json", {**roster, **parties})
    return session


def taken_up(
    kit: PartyKit, making: Making, folder: RunFolder, state_stores: StateStores
) -> tuple[Session, tuple[Outcome, ...]]:
    """Go on where a killed process of this party was; metrics are written anew (see Driver)."""
    context = _own_context(kit, making)
    keeper = making.keeper(context, state_stores.open(kit.name))

    def reopen(facts: Mapping[str, Any]) -> Ledger:
        found = folder.bytes(f"ledger/{kit.name}.jsonl")
        store = making.store(kit.name)
        return Ledger.take_up(kit.name, context.run, store, clock, found=found, facts=facts)

    session = keeper.restore(session_of(kit.me.party.role), reopen)
    record([session], making, folder.path, kit.keys)
    if not isinstance(session, AggregatorSession):
        return session, ()
    folder.text("metrics.jsonl", "")
    return session, tuple(keeper.outcomes())


def _context(kit: PartyKit, folder: RunFolder) -> None:
    folder.text("config.yaml", kit.charter.config.agreed_text())
    folder.text("policy.json", policy_text(kit.charter.policy))
    folder.text("plan.json", kit.charter.plan.text())
