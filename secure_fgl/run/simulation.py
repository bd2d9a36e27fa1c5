"""One run: from loaded data to the written folder, evidence first."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.tasks import Site, Task
from algorithms.tasks.evaluation import Tracked, after_loss, begun, closing, evaluated, reads
from audits.evidence.run_files import policy_text
from crypto.homomorphic.he import Scheme
from protocols.errors import RemoteProtocolError, RoundLost
from protocols.evidence.ledger import Store
from protocols.forms import Algorithm, Form
from protocols.plan.plan import Plan
from protocols.policy.budget import Reserve
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.record_noise import counted_in
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.config import Config
from secure_fgl.data import Dataset, Masks
from secure_fgl.data.canaries import check_room, planting
from secure_fgl.data.loading import load, sizes
from secure_fgl.isolation.sandbox import Sandbox, check_loadable
from secure_fgl.muting import quiet
from secure_fgl.plugins.in_use import Plugins
from secure_fgl.run.closing import close_all
from secure_fgl.run.driver import Driver, Meter, deferred_interrupts, untrained
from secure_fgl.run.parties import Making, Parties, set_up, take_up
from secure_fgl.run.result import Outcome, finish, keep_model, seal
from secure_fgl.run.workers import Workers, how_many
from secure_fgl.run.zeros import Ahead, worth_it
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.captures import record
from secure_fgl.store.client_models import ClientModels, Origin
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.state_store import StateStores
from secure_fgl.transports import Transport
from secure_fgl.transports.memory import FaultyTransport, MemoryTransport, drops

Progress = Callable[[int, int, Mapping[str, Any]], None]
"""Called after each round with (round, rounds, latest cohort metrics)."""
Connect = Callable[[Mapping[str, Any]], Transport]
"""Returns a transport over sessions by party name."""


class Preparation:
    """Everything a run needs before it starts.

    Args:
        config, plugins: the configuration, and the plug-ins that it names.
        policy: what may leave.
        plan: the approved plan.
        task: what is learnt.
        algorithm: without evaluation, which is added here.
        scheme: encryption of sums, None without it.
        whole: the data, or None to load what the configuration names.
    """

    def __init__(
        self,
        config: Config,
        policy: PrivacyPolicy,
        plan: Plan,
        *,
        task: Task,
        algorithm: Algorithm[Any],
        scheme: Scheme | None,
        whole: Dataset | None,
        plugins: Plugins | None = None,
    ) -> None:
        self.config, self.policy, self.plan = config, policy, plan
        self.task, self.at = task, config.evaluation.at
        scored = evaluated(algorithm, task, at=self.at, told=config.evaluation.told)
        self.algorithm = quiet(scored)
        self.scheme, self._given, self.plugins = scheme, whole, plugins or Plugins()
        self.sites: list[Site] = []
        self.notes: tuple[str, ...] = ()  # what was put right in own tables
        self.track: Callable[[Mapping[str, Any]], None] = lambda row: None
        self.whole: tuple[Dataset, Masks] | None = None  # None where nobody holds it

    def load(self, only: Sequence[str] | None = None, *, stand_ins: bool = False) -> None:
        """Load the data of all clients, or of `only` these; see `secure_fgl.data.loading.load`."""
        if self.config.isolated:
            check_loadable(self._given)
        with self.plugins.in_use():
            loaded = load(
                self.config, self.task, given=self._given, only=only,
                agreed=self.plan.data.spec, stand_ins=stand_ins, least=self.plan.minimum_records,
                **sizes(self.policy, self.algorithm),
            )  # fmt: skip
        self.sites, self.whole, self.notes = loaded.sites, loaded.whole, loaded.notes
        if only is None and not self.plan.noised and not any(site.count for site in self.sites):
            raise untrained()
        if not stand_ins:  # an audit puts no canaries into data that are drawn
            check_room(only or self.plan.clients, self.sites, self.task.spec, self.policy)

    def first_state(self) -> Any:
        """Return the state before the first round, from the plan's public seed."""
        return self.algorithm.init(np.random.default_rng(self.plan.seed))

    def form(self) -> Form[Any]:
        """Return the admitted form, with the state that it begins with."""
        return begun(self.policy.admit(self.algorithm), self.first_state())

    def train(
        self,
        folder: RunFolder,
        progress: Progress | None,
        connect: Connect | None = None,
        *,
        resume: bool = False,
    ) -> Run:
        """Run all rounds and write the folder, evidence first.

        Without `connect` clients are played by as many processes as the configuration says. With
        `resume` the folder holds a run that was killed, which goes on where it was.
        """
        with contextlib.ExitStack() as held:  # ledgers' files, and other processes
            outcome, parties, states = self._play(folder, progress, connect, held, resume=resume)
        if self.config.keep_models:
            sites = dict(zip(self.plan.clients, self.sites, strict=True))
            ClientModels(parties.run, folder.path).keep_all(sites, Origin.of(self))
        run = finish(self, folder, outcome)
        if states is not None:
            states.destroy()
        return run

    def _play(
        self,
        folder: RunFolder,
        progress: Progress | None,
        connect: Connect | None,
        held: contextlib.ExitStack,
        *,
        resume: bool,
    ) -> tuple[Outcome, Parties, StateStores | None]:
        """Set up or take up all parties, play all rounds, and end every session."""
        form = self.form()
        meter, left, answers, apart = Meter(), None, form, None
        count = how_many(self.config, len(self.sites), connect)
        sites = dict(zip(self.plan.clients, self.sites, strict=True))
        if self.config.isolated:  # before any key is there
            facts = self.config, self.policy, self.plan, self.plan.clients
            sandbox = held.enter_context(Sandbox(*facts, plugins=self.plugins.files))
            answers, apart = sandbox.form(form, sites), sandbox.plant
        # Several workers keep the cores busy: each encrypts its clients' zeros itself.
        early = self.config.prepare_ahead and count == 1 and worth_it(self.plan, self.scheme)
        ahead = Ahead(self.scheme, len(self.sites)) if early else None
        if ahead is not None:
            held.callback(ahead.close)
        making = Making(
            self.plan, self.policy, meter.timed(answers), self.sites,
            scheme=self.scheme, store=_stores(folder, held, again=resume),
            seed=self.config.seed, zeros=ahead, reserve=self.reserve(folder.path),
            transport=self.config.transport.name, config=self.config.text(),
            plugins=self.plugins.code,
        )  # fmt: skip
        parties, states = self._take_up(making, folder) if resume else self._set_up(making, folder)
        if states is not None:
            held.callback(states.release)
        held.enter_context(planting(parties.others, sites, self.task.spec, apart))
        workers: Workers | None = None
        if count > 1:
            workers = Workers(parties, count, sites, meter)
            held.callback(workers.kill)
        transport: Transport = workers or (connect or MemoryTransport)(parties.others)
        transport = self._lossy(transport, folder if resume else None)
        with deferred_interrupts() as stopped:
            try:
                driver = Driver(parties, transport, meter, stopped)
                outcome = self.rounds(driver, form, meter, folder, progress)
                left = partial(seal, self, folder, outcome, parties.aggregator.ended)
            finally:
                unclosed = []
                if workers is None or not workers.lost:  # else it can go on, as after a kill
                    unclosed = close_all(parties, folder, left, workers)
                    if left is None and states is not None:  # stopped in order: it will not go on
                        states.destroy()
        if workers is not None:
            outcome.peak, outcome.workers = workers.peak, count
        if unclosed:  # without its last entries the evidence would not hold: no result is written
            raise unclosed[0]
        return outcome, parties, states

    def _lossy(self, transport: Transport, past: RunFolder | None) -> Transport:
        """Return a transport that loses what the configuration says; `past`: of a killed run."""
        planned = drops(self.config.faults.drop, self.plan.clients, self.plan.rounds)
        if not planned:
            return transport
        seen = past.bytes(f"ledger/{AGGREGATOR_NAME}.jsonl") if past is not None else b""
        return FaultyTransport(transport, self.plan, planned, seen)

    def _set_up(self, making: Making, folder: RunFolder) -> tuple[Parties, StateStores | None]:
        """Begin a run."""
        self._documents(folder)
        made: list[StateStores] = []

        def states(run: str) -> StateStores:
            made[:] = made or [StateStores(run, folder.path)]
            return made[0]

        try:
            parties = set_up(making, states if self.config.resume else None)
            record(parties.sessions(), making, folder.path)
            # Last, and as a whole: a folder with this file holds a run that can go on.
            roster = {**parties.document(), "transport": self.config.transport.name}
            folder.document("roster.json", roster)
        except BaseException:
            for state in made:
                state.destroy()
            raise
        return parties, made[0] if made else None

    def _take_up(self, making: Making, folder: RunFolder) -> tuple[Parties, StateStores | None]:
        """Go on with a run that was killed; its metrics are written anew as it is played back."""
        document = folder.roster()
        states = StateStores(str(document["run"]), folder.path)
        try:
            parties = take_up(making, document, states, lambda p: folder.bytes(f"ledger/{p}.jsonl"))
            record(parties.sessions(), making, folder.path)
        except BaseException:
            states.release()
            raise
        folder.text("metrics.jsonl", "")  # only now: a refused --resume changes nothing
        return parties, states

    def reserve(self, notes: Path | None = None) -> Callable[[str], Reserve] | None:
        """Return the door to every site's privacy budget; None if the policy has none.

        Args:
            notes: the run folder, which keeps the heads of budgets that the aggregator cosigned.
        """
        if not self.policy.budgets:
            return None
        store, own = BudgetStore(self.config.budget.store), self.plan.data.name
        return lambda site: store.door(site, own, notes)

    def _documents(self, folder: RunFolder) -> None:
        folder.text("config.yaml", self.config.text())
        folder.text("policy.json", policy_text(self.policy))
        folder.text("plan.json", self.plan.text())

    def rounds(
        self,
        driver: Driver,
        form: Form[Any],
        meter: Meter,
        folder: RunFolder,
        progress: Progress | None,
    ) -> Outcome:
        """Play all rounds, and the closing one."""
        rounds = self.config.algorithm.rounds
        outcome = Outcome(self.first_state(), meter)
        driver.start()
        for number in range(1, rounds + 1):
            scored_after = number - (self.at == "downloaded")
            try:
                steps = form.round(outcome.tracked, driver.cohort_of(number))
                self._note(outcome, driver.play(steps, number), scored_after, folder)
            except RoundLost as lost:
                outcome.lost.append(number)
                left = after_loss(outcome.tracked, lost.state)
                self._note(outcome, left, scored_after, folder)
            outcome.keep(folder, number, self.config.checkpoint_every)
            if progress is not None:
                scored = {"round": outcome.after[-1]} if outcome.after else {}
                progress(number, rounds, {**scored, **self.metrics(outcome.tracked, -1)})
        try:
            scoring, cohorts = self.task.scoring, driver.cohorts
            steps = closing(outcome.tracked, cohorts, scoring, at=self.at, form=form)
            self._note(outcome, driver.play(steps, rounds), rounds, folder)
        except RoundLost:
            if rounds not in outcome.lost:  # the closing score belongs to the last round
                outcome.lost.append(rounds)
        driver.finish()
        outcome.wall = meter.numbers()["wall"]
        return outcome

    def _note(self, outcome: Outcome, tracked: Tracked[Any], after: int, folder: RunFolder) -> None:
        """Take over a round's state; write down its score, of the state after `after` rounds."""
        fresh = len(tracked.scores) > len(outcome.tracked.scores)
        outcome.tracked = tracked
        if fresh:
            outcome.after.append(after)
            row = {"round": after, **self.metrics(tracked, -1)}
            folder.line("metrics.jsonl", row)
            self.track(row)

    def metrics(self, tracked: Tracked[Any], index: int) -> dict[str, Any]:
        """Return the cohort's metrics of one score; all None where nothing was scored.

        Raises:
            RemoteProtocolError: honest clients cannot have this total.
        """
        if not tracked.scores:
            return dict.fromkeys(self.task.scoring.names)
        score = tracked.scores[index]
        scoring = reads(self.task.scoring, score)
        noised = counted_in(self.plan.items) is not None  # noise makes counts contradict each other
        if not noised and not scoring.plausible(score, len(self.plan.clients)):
            raise RemoteProtocolError(
                "The cohort's scores are impossible: its counts contradict each other.",
                why="a client sent false counts; single counts are not visible to anybody",
                fix="find out with the data owners which of them it was",
            )
        return scoring.read(score)

    def leave(self, folder: RunFolder, outcome: Outcome) -> dict[str, str]:
        """Write the models; return the digests that the aggregator's ledger ends with."""
        tracked = outcome.tracked
        if not tracked.scores:
            folder.text("metrics.jsonl", "")
        left = {"metrics": hashlib.sha256(folder.bytes("metrics.jsonl")).hexdigest()}
        left["model"] = keep_model(folder, "final", tracked.state)
        left["best"] = keep_model(folder, "best", tracked.best_state)
        return left | outcome.kept


def _stores(
    folder: RunFolder, held: contextlib.ExitStack, *, again: bool
) -> Callable[[str], Store]:
    """Return what opens a party's ledger, which `held` closes."""

    def store(name: str) -> Store:
        made = folder.ledger(name, again=again)
        held.callback(made.close)
        return made

    return store
