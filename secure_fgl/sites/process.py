"""One party alone in its process: its session, its part of the data, its side of the run folder.

The same context, ledgers, seeds and loop as a run in one process, so that both give the same model
bit for bit. :func:`open_process` is the one place where a party's session comes into being: a
new one, or the one of a process that was killed, as it was kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.tasks import Site
from audits.evidence.run_files import result_digest
from protocols.errors import RemoteProtocolError
from protocols.forms import Form
from protocols.plan.drift import drift
from protocols.roles.aggregator import AggregatorSession
from protocols.sessions.engine import Delivery, Session
from protocols.sessions.store.state_keeper import Outcome
from protocols.sessions.table import State
from protocols.wire.roles import Role
from secure_fgl import _floors
from secure_fgl.charters.party import PartyKit
from secure_fgl.errors import PlanDrift
from secure_fgl.federation import Federation
from secure_fgl.run.driver import Meter, one_thread_and_deterministic
from secure_fgl.run.parties import Parties, bare_backend
from secure_fgl.run.simulation import Preparation
from secure_fgl.sites.lock import only_one
from secure_fgl.sites.opening import begun, isolated, making_of, taken_up
from secure_fgl.sites.status import StatusFile
from secure_fgl.sites.told import ToldDriver
from secure_fgl.store.client_models import ClientModels
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.sides.own_model import keep_own
from secure_fgl.store.state_store import StateStores
from secure_fgl.transports import Transport


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
