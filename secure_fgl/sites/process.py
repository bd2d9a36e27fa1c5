"""How a party's session comes into being: begun, or taken up as a killed process left it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.tasks import Site
from audits.evidence.run_files import policy_text, result_digest
from protocols.disclosures.match.run import shared_key
from protocols.disclosures.names import Disclosure
from protocols.errors import RemoteProtocolError
from protocols.evidence.ledger import Ledger
from protocols.forms import Form
from protocols.plan.plan import drift
from protocols.roles.aggregator import AggregatorSession
from protocols.sessions.engine import Delivery, Session
from protocols.sessions.part import State
from protocols.sessions.store.state_keeper import Outcome
from protocols.wire.roles import Role, session_of
from protocols.wire.run_context import RunContext
from secure_fgl import _floors
from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import PlanDrift
from secure_fgl.federation import Federation
from secure_fgl.isolation.sandbox import Sandbox
from secure_fgl.run.clock import clock
from secure_fgl.run.driver import Meter, one_thread_and_deterministic
from secure_fgl.run.parties import Making, Parties, bare_backend
from secure_fgl.run.simulation import Preparation
from secure_fgl.sites.lock import only_one
from secure_fgl.sites.status import StatusFile, ToldDriver
from secure_fgl.store.captures import record
from secure_fgl.store.client_models import ClientModels
from secure_fgl.store.run_folder import FileStore, RunFolder
from secure_fgl.store.sides.own_model import keep_own
from secure_fgl.store.state_store import StateStores
from secure_fgl.transports import Transport

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


# --- One party alone in its process: its session, its part of the data, its side of the run folder
# ---
#
# The same context, ledgers, seeds and loop as a run in one process, so that both give the same
# model bit for bit. :func:`open_process` is the one place where a party's session comes into being:
# a new one, or the one of a process that was killed, as it was kept.


@dataclass
class PartyProcess:
    """One party's session with its files.

    Attributes:
        kit: the party's keys and charter.
        prepared: task, algorithm and policy; no data.
        form: the admitted form.
        session: of this party.
        folder: its side of the run.
        state_stores: where the session's state is kept until it is over.
        outcomes: at an aggregator that goes on, how every Ask before the kill ended.
        files: what closing ends: the ledger's file, and the lock on the party's folder.
        status: what the party's operator watches.
        site: at a client, without its data; its memory holds the client's model.
    """

    kit: PartyKit
    prepared: Preparation
    form: Form[Any]
    session: Session
    folder: RunFolder
    state_stores: StateStores
    outcomes: Sequence[Outcome]
    files: contextlib.ExitStack
    status: StatusFile
    site: Site | None = None

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return what leaves in answer; only for who is asked.

        Raises:
            RemoteProtocolError: not authentic, or not for this party.
            LedgerError: the record could not be written; nothing leaves.
        """
        if isinstance(self.session, AggregatorSession):
            raise RemoteProtocolError("The aggregator is asked nothing; it asks.")
        with self.status.noting(RemoteProtocolError), one_thread_and_deterministic():
            answers = self.session.receive(data)
        said, dead = [answer.data for answer in answers], self.session.state is State.DEAD
        self.status.received(data, said, self.session.last_error, dead=dead)
        return answers

    def close(
        self, result: dict[str, str] | None = None, document: Mapping[str, Any] | None = None
    ) -> None:
        """End the session for good: the ledger's last entry, its signed head, no kept state.

        Args:
            result: digests of what a finished run leaves, at the aggregator.
            document: what ``result.json`` is to hold; written before the kept state is given up.
        """
        with self.files:
            models = ClientModels(self.kit.charter.run, self.kit.run_folder, self.kit.keys)
            unkept = keep_own(models, self.session, self.site, self.prepared)
            self.session.close(result)
            self.sign_head()
            try:
                if document is not None:
                    self.folder.document("result.json", document)
            finally:
                self.state_stores.destroy()
        self.status.over(self.kit)
        if unkept is not None:
            raise unkept

    def sign_head(self) -> None:
        """Sign the head of the ledger as it stands."""
        note = self.session.ledger.checkpoint(self.kit.me.signing)
        self.folder.text(f"heads/{self.kit.name}.checkpoint", note)


def open_process(kit: PartyKit) -> PartyProcess:
    """Make this party's session, or take up the one that a killed process left.

    Raises:
        PlanDrift: this installation would do something else than the charter's plan says.
        UsageError: the run of this folder is over, or the data cannot be used, or a client's
            machine cannot isolate answers.
        AnswerFailed: a client's process of answers did not come up.
        LedgerError: the kept state is missing, or older than its ledger.
        NotOurCode: what runs here is not ours.
    """
    with contextlib.ExitStack() as files:
        files.enter_context(only_one(kit))
        status = StatusFile.of(kit)
        with status.noting():
            process = _opened(kit, status, files)
    status.running(kit)
    return process


def _opened(kit: PartyKit, status: StatusFile, files: contextlib.ExitStack) -> PartyProcess:
    prepared = _prepared(kit)
    again = (kit.run_folder / "roster.json").is_file()
    folder = RunFolder(kit.run_folder, again=again)
    form = prepared.form()
    site = sandbox = None
    if kit.me.party.role is Role.CLIENT:
        site, form, sandbox = isolated(kit, prepared, form, files)
    making = making_of(kit, prepared, form, site, folder, again, files)
    state_stores = StateStores(kit.charter.run, kit.run_folder, kit.keys)
    files.callback(state_stores.release)
    session, outcomes = taken_up(kit, making, folder, state_stores) if again else (
        begun(kit, making, folder, state_stores), ()
    )  # fmt: skip
    if sandbox is not None:
        sandbox.plant(session)
    _floors.check()  # by now all code that protects is loaded
    held = files.pop_all()
    return PartyProcess(
        kit, prepared, form, session, folder, state_stores, outcomes, held, status, site
    )


def _prepared(kit: PartyKit) -> Preparation:
    charter, config = kit.charter, kit.config()
    kit.check_spec()
    federation = Federation(
        config=config, policy=charter.policy, plugins=kit.plugin_files(), spec=charter.spec
    )
    federation.plugins.hold_to(charter.plan)  # before anything of them is run
    if differences := drift(charter.plan, federation.plan()):
        raise PlanDrift(differences)
    task, algorithm = federation.build()
    scheme = federation.scheme()
    return Preparation(
        config, charter.policy, charter.plan,
        task=task, algorithm=algorithm, scheme=scheme, whole=None, plugins=federation.plugins,
    )  # fmt: skip


def conduct(process: PartyProcess, transport: Transport) -> str | None:
    """Run all rounds at the aggregator and return the model's digest, None without a model.

    Raises:
        Refused: a client refused; its reason stays in its ledger.
        LedgerError: the ledger could not be written; nothing of that exchange was sent.
    """
    if not isinstance(process.session, AggregatorSession):
        raise RemoteProtocolError("Only the aggregator conducts a run.")
    prepared, charter, me = process.prepared, process.kit.charter, process.kit.me
    alone = Parties(
        charter.run, charter.nonce, charter.roster, {me.party.name: me},
        process.session, {}, process.outcomes,
    )  # fmt: skip
    meter = Meter()
    with process.status.noting(), one_thread_and_deterministic():
        driver = ToldDriver(alone, transport, meter, process.status)
        outcome = prepared.rounds(driver, process.form, meter, process.folder, None)
    tracked = outcome.tracked
    left = prepared.leave(process.folder, outcome)
    result = {
        "run_dir": str(process.folder.path),
        "algorithm": charter.plan.algorithm,
        "form": charter.plan.form,
        "policy": charter.policy.name,
        "backend": prepared.scheme.name if prepared.scheme else bare_backend(charter.policy),
        "rounds": prepared.config.algorithm.rounds,
        "clients": len(charter.plan.clients),
        "data": {
            "name": charter.plan.data.name,
            "task": charter.plan.data.task,
            "synthetic": charter.plan.data.synthetic,
        },
        "headline": prepared.task.scoring.names[0],
        "metrics": {
            **prepared.metrics(tracked, tracked.best),
            "best_round": outcome.after[tracked.best] if outcome.after else None,
        },
        "references": {},
        "bytes_up": meter.up,
        "bytes_down": meter.down,
        "exchanges": meter.exchanges,
        "lost_rounds": outcome.lost,
        "wall_s": round(outcome.wall, 3),
        "model_sha256": left["model"] or None,
        "verdict": "not audited",
    }
    process.close({**left, "document": result_digest(result)}, result)
    return left["model"] or None
