"""One run: from loaded data to the written folder, evidence first."""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from algorithms.evaluation import (
    Tracked,
    accuracy,
    client_mean,
    closing,
    evaluated,
    plausible,
)
from algorithms.site import Site
from algorithms.tasks import Task
from algorithms.tasks.node import NodeData
from crypto.he import Scheme
from protocols.budget import Reserve
from protocols.disclosures import Disclosure
from protocols.errors import RemoteProtocolError, RoundLost
from protocols.forms import Algorithm, Form
from protocols.ledger import Store
from protocols.messages import Array, Message
from protocols.plan import Plan
from protocols.policy import PrivacyPolicy
from secure_fgl.budgets import BudgetStore
from secure_fgl.config import Config
from secure_fgl.data import ClientGraph, Graph, load_dataset, partition, split_masks
from secure_fgl.driving import Driver, Meter, deferred_interrupts
from secure_fgl.errors import UsageError
from secure_fgl.faults import FaultyTransport, drops
from secure_fgl.parties import Parties, bare_backend, client_names, learning_seed, set_up
from secure_fgl.reference import Bystander
from secure_fgl.runs import FORMATS, Run, RunFolder
from secure_fgl.transports import Transport
from secure_fgl.weights import weights_digest
from secure_fgl.zeros import Ahead

Progress = Callable[[int, int, Mapping[str, Any]], None]
"""Called after each round with (round, rounds, latest cohort metrics)."""
Connect = Callable[[Mapping[str, Any]], Transport]
"""Returns a transport over sessions by party name."""


AHEAD_FROM = 8
"""Ciphertexts in one upload from which on zeros are encrypted ahead of time."""
METRICS = ("test_accuracy", "val_accuracy", "test_accuracy_client_mean")
"""Cohort metrics of a node task; all None where the policy lets no score leave."""


@dataclass
class _Outcome:
    """What a training loop leaves.

    Attributes:
        tracked: the state with its scores.
        meter: bytes, exchanges and times.
        after: per score, after how many rounds the scored state was.
        lost: rounds that were skipped because too many clients vanished.
        wall: seconds of all rounds.
    """

    tracked: Tracked[Any]
    meter: Meter
    after: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    wall: float = 0.0


class Preparation:
    """Everything a run needs before it starts.

    Args:
        config: the configuration.
        policy: what may leave.
        plan: the approved plan.
        task: what is learnt.
        algorithm: without evaluation, which is added here.
        scheme: encryption of sums, None without it.
        graph: the data, or None to load what the configuration names.
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
        graph: Graph | None,
    ) -> None:
        self.config, self.policy, self.plan = config, policy, plan
        self.task, self.at = task, config.evaluation.at
        self.algorithm = evaluated(algorithm, task, at=self.at)
        self.scheme, self._given = scheme, graph
        self.sites: list[Site] = []

    def load(self) -> None:
        """Load, split and share out the data.

        Raises:
            UsageError: the data folder or file is missing, or a name or option is unknown.
        """
        data, shared = self.config.data, self.config.data.partition
        try:
            graph = self._given or load_dataset(data.name, data.root, **data.options)
            masks = split_masks(graph, data.split, rng=self._rng("split"))
            parts = partition(
                graph, shared.name, shared.clients, masks, self._rng("partition"), shared.options
            )
        except OSError as error:
            raise UsageError(
                f"The data set {data.name!r} cannot be read.",
                why=str(error),
                fix="set data.root, or the variable SECURE_FGL_DATA, to the data folder",
            ) from error
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.whole = (graph, masks)
        self.sites = self._sites(parts)

    def _sites(self, parts: list[ClientGraph]) -> list[Site]:
        names = client_names(len(parts))
        return [
            Site(NodeData.from_graph(part), seed=learning_seed(self.config.seed, "site", name))
            for part, name in zip(parts, names, strict=True)
        ]

    def _rng(self, label: str) -> np.random.Generator:
        return np.random.default_rng(learning_seed(self.config.seed, label))

    def train(self, folder: RunFolder, progress: Progress | None, connect: Connect) -> Run:
        """Run all rounds and write the folder, evidence first."""
        form: Form[Any] = self.policy.admit(self.algorithm)
        meter = Meter()
        self._papers(folder)
        stores: list[Any] = []

        def store(name: str) -> Store:
            stores.append(folder.ledger(name))
            made: Store = stores[-1]
            return made

        ahead = Ahead(self.scheme, len(self.sites)) if self._worth_it() else None
        parties = set_up(
            self.plan, self.policy, meter.timed(form), self.sites,
            scheme=self.scheme, store=store, seed=self.config.seed, zeros=ahead,
            reserve=self._reserve(), transport=self.config.transport.name,
        )  # fmt: skip
        roster = {**parties.document(), "transport": self.config.transport.name}
        folder.document("roster.json", roster)
        left: dict[str, str] | None = None
        unclosed: list[Exception] = []
        transport: Transport = connect(parties.others)
        if planned := drops(self.config.faults.drop, self.plan.clients, self.plan.rounds):
            transport = FaultyTransport(transport, planned)
        with deferred_interrupts() as stopped:
            try:
                driver = Driver(parties, transport, meter, stopped)
                outcome = self._rounds(driver, form, meter, folder, progress)
                left = self._leave(folder, outcome.tracked)
            finally:
                if ahead is not None:
                    ahead.close()
                unclosed = _close(parties, folder, left)
                for opened in stores:
                    opened.close()
        self._witness(parties, folder)
        if unclosed:  # without its last entries the evidence would not hold: no result is written
            raise unclosed[0]
        return self._finish(folder, outcome)

    def _worth_it(self) -> bool:
        """Tell whether a worker that encrypts zeros ahead of time saves more than its start."""
        sums = (i for i in self.plan.items if i.id.endswith(f".up.{Disclosure.SUM}"))
        scheme = self.scheme
        if scheme is None or not scheme.offline or not self.config.prepare_ahead:
            return False
        return any(item.body >= AHEAD_FROM * scheme.ciphertext_bytes for item in sums)

    def _witness(self, parties: Parties, folder: RunFolder) -> None:
        """Let the aggregator sign how far every site's budget is spent, and keep that (O20)."""
        if self.policy.budget is None:
            return
        store, dataset = BudgetStore(self.config.budget.store), self.plan.data.name
        for site in self.plan.clients:
            note = store.witness(site, dataset, parties.aggregator.papers.me)
            folder.text(f"budgets/{site}.checkpoint", note)

    def _reserve(self) -> Callable[[str], Reserve] | None:
        if self.policy.budget is None:
            return None
        store, own = BudgetStore(self.config.budget.store), self.whole[0].name
        return lambda site: store.door(site, own)

    def _papers(self, folder: RunFolder) -> None:
        folder.text("config.yaml", self.config.text())
        folder.document("policy.json", self.policy.document())
        folder.text("plan.json", self.plan.text())

    def _rounds(
        self,
        driver: Driver,
        form: Form[Any],
        meter: Meter,
        folder: RunFolder,
        progress: Progress | None,
    ) -> _Outcome:
        rounds = self.config.algorithm.rounds
        outcome = _Outcome(self.algorithm.init(self._rng("init")), meter)
        driver.start()
        start = time.perf_counter()
        for number in range(1, rounds + 1):
            scored_after = number - (self.at == "downloaded")
            try:
                steps = form.round(outcome.tracked, driver.cohort)
                self._note(outcome, driver.play(steps, number), scored_after, folder)
            except RoundLost:
                outcome.lost.append(number)
            if progress is not None:
                progress(number, rounds, self._metrics(outcome.tracked, -1))
        try:
            steps = closing(outcome.tracked, driver.cohort, at=self.at)
            self._note(outcome, driver.play(steps, rounds), rounds, folder)
        except RoundLost:
            if rounds not in outcome.lost:  # the closing score belongs to the last round
                outcome.lost.append(rounds)
        outcome.wall = time.perf_counter() - start
        return outcome

    def _note(
        self, outcome: _Outcome, tracked: Tracked[Any], after: int, folder: RunFolder
    ) -> None:
        """Take over a round's state; write down its score, of the state after `after` rounds."""
        fresh = len(tracked.scores) > len(outcome.tracked.scores)
        outcome.tracked = tracked
        if fresh:
            outcome.after.append(after)
            folder.line("metrics.jsonl", {"round": after, **self._metrics(tracked, -1)})

    def _metrics(self, tracked: Tracked[Any], index: int) -> dict[str, Any]:
        if not tracked.scores:
            return dict.fromkeys(METRICS)
        score = tracked.scores[index]
        if not plausible(score, len(self.sites)):
            raise RemoteProtocolError(
                "The cohort's scores are impossible: more correct than counted.",
                why="a client sent false counts; single counts are not visible to anybody",
                fix="find out with the data owners which of them it was",
            )
        found = (accuracy(score, "test"), accuracy(score, "val"), client_mean(score))
        return dict(zip(METRICS, found, strict=True))

    def _leave(self, folder: RunFolder, tracked: Tracked[Any]) -> dict[str, str]:
        """Write the models; return the digests that the aggregator's ledger ends with."""
        if not tracked.scores:
            folder.text("metrics.jsonl", "")
        left = {"metrics": hashlib.sha256(folder.bytes("metrics.jsonl")).hexdigest()}
        for file, name, state in (
            ("final", "model", tracked.state),
            ("best", "best", tracked.best_state),
        ):
            arrays = _arrays(state)
            left[name] = weights_digest(arrays) if arrays else ""
            if arrays:
                folder.arrays(f"checkpoints/{file}.npz", arrays)
        return left

    def _finish(self, folder: RunFolder, outcome: _Outcome) -> Run:
        """Write the result and the report; references come last, as they may fail."""
        tracked, meter = outcome.tracked, outcome.meter
        final = _arrays(tracked.state)
        result = {
            "run_dir": str(folder.path),
            "algorithm": self.plan.algorithm,
            "form": self.plan.form,
            "policy": self.policy.name,
            "backend": self.scheme.name if self.scheme else bare_backend(self.policy),
            "rounds": self.config.algorithm.rounds,
            "clients": len(self.sites),
            "data": {"name": self.plan.data.name, "synthetic": self.plan.data.synthetic},
            "metrics": {
                **self._metrics(tracked, tracked.best),
                "best_round": outcome.after[tracked.best] if outcome.after else None,
            },
            "references": {},
            "bytes_up": meter.up,
            "bytes_down": meter.down,
            "exchanges": meter.exchanges,
            "lost_rounds": outcome.lost,
            "wall_s": round(outcome.wall, 3),
            "protect_s": round(outcome.wall - meter.learning, 3),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "model_sha256": weights_digest(final) if final else None,
        }
        folder.document("result.json", {**result, "verdict": "not audited"})
        run = Run(folder.path)
        result["verdict"] = run.verify().verdict
        bystander = Bystander(self.task, self.sites, self.whole, self.config)
        seen = bystander.references()
        if not tracked.scores and isinstance(tracked.state, Message):
            seen["released_model"] = bystander.accuracy(self.algorithm, tracked.state)
        result["references"] = seen
        folder.document("result.json", result)
        run.report(FORMATS)
        return run


def _close(parties: Parties, folder: RunFolder, result: dict[str, str] | None) -> list[Exception]:
    """End every session and write the heads, whatever happened before; return what went wrong.

    Args:
        parties: all sessions.
        folder: where the heads go.
        result: digests for the end of the aggregator's ledger; None if the run did not finish.
    """
    errors: list[Exception] = []
    for session in parties.sessions():
        try:
            session.close(result if session is parties.aggregator else None)
        except Exception as error:  # the other sessions are ended all the same
            session.last_error = error
            errors.append(error)
    try:
        for name, note in parties.checkpoints().items():
            folder.text(f"heads/{name}.checkpoint", note)
    except OSError as error:
        errors.append(error)
    return errors


def _arrays(state: Any) -> dict[str, Array]:
    if not isinstance(state, Message):
        return {}
    real = [f.name for f in state.fields if f.wire in ("f4", "f8")]
    return {name: np.asarray(getattr(state, name)) for name in real}
