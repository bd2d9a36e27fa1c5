"""One run: from loaded data to the written folder, evidence first."""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from crypto.bfv import Bfv
from protocols.errors import RemoteProtocolError
from protocols.forms import Algorithm, Form
from protocols.ledger import Store
from protocols.messages import Array, Message
from protocols.plan import Plan
from protocols.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.data import ClientGraph, Graph, Masks, load_dataset, partition, split_masks
from secure_fgl.driving import Driver, Meter, deferred_interrupts
from secure_fgl.errors import UsageError
from secure_fgl.parties import Parties, client_names, learning_seed, set_up
from secure_fgl.reference import best_test_accuracy
from secure_fgl.runs import FORMATS, Run, RunFolder
from secure_fgl.transports import Transport
from secure_fgl.weights import weights_digest

Progress = Callable[[int, int, Mapping[str, Any]], None]
"""Called after each round with (round, rounds, latest cohort metrics)."""
Connect = Callable[[Mapping[str, Any]], Transport]
"""Returns a transport over sessions by party name."""


@dataclass
class _Outcome:
    """What a finished training loop leaves."""

    tracked: Tracked[Any]
    meter: Meter
    wall: float


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
        scheme: Bfv | None,
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

        parties = set_up(
            self.plan, self.policy, meter.timed(form), self.sites,
            scheme=self.scheme, store=store, seed=self.config.seed,
            transport=self.config.transport.name,
        )  # fmt: skip
        roster = {**parties.document(), "transport": self.config.transport.name}
        folder.document("roster.json", roster)
        left: dict[str, str] | None = None
        unclosed: list[Exception] = []
        with deferred_interrupts() as stopped:
            try:
                driver = Driver(parties, connect(parties.others), meter, stopped)
                outcome = self._rounds(driver, form, meter, folder, progress)
                left = self._leave(folder, outcome.tracked)
            finally:
                unclosed = _close(parties, folder, left)
                for opened in stores:
                    opened.close()
        if unclosed:  # without its last entries the evidence would not hold: no result is written
            raise unclosed[0]
        return self._finish(folder, outcome)

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
        tracked: Tracked[Any] = self.algorithm.init(self._rng("init"))
        driver.start()
        start = time.perf_counter()
        for number in range(1, rounds + 1):
            tracked = driver.play(form.round(tracked, driver.cohort), number)
            latest = self._metrics(tracked, -1)
            folder.line("metrics.jsonl", {"round": self._after(tracked, -1), **latest})
            if progress is not None:
                progress(number, rounds, latest)
        scored = len(tracked.scores)
        tracked = driver.play(closing(tracked, driver.cohort, at=self.at), rounds)
        if len(tracked.scores) > scored:
            last = {"round": self._after(tracked, -1), **self._metrics(tracked, -1)}
            folder.line("metrics.jsonl", last)
        return _Outcome(tracked, meter, time.perf_counter() - start)

    def _after(self, tracked: Tracked[Any], index: int) -> int:
        """Return after how many rounds the model was scored.

        With "downloaded", evaluation i scores the state after i rounds; with "trained", i + 1.
        """
        return range(len(tracked.scores))[index] + (self.at == "trained")

    def _metrics(self, tracked: Tracked[Any], index: int) -> dict[str, Any]:
        score = tracked.scores[index]
        if not plausible(score, len(self.sites)):
            raise RemoteProtocolError(
                "The cohort's scores are impossible: more correct than counted.",
                why="a client sent false counts; single counts are not visible to anybody",
                fix="find out with the data owners which of them it was",
            )
        return {
            "test_accuracy": accuracy(score, "test"),
            "val_accuracy": accuracy(score, "val"),
            "test_accuracy_client_mean": client_mean(score),
        }

    def _leave(self, folder: RunFolder, tracked: Tracked[Any]) -> dict[str, str]:
        """Write the models; return the digests that the aggregator's ledger ends with."""
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
            "backend": self.scheme.name if self.scheme else _clear(self.policy),
            "rounds": self.config.algorithm.rounds,
            "clients": len(self.sites),
            "data": {"name": self.plan.data.name, "synthetic": self.plan.data.synthetic},
            "metrics": {
                **self._metrics(tracked, tracked.best),
                "best_round": self._after(tracked, tracked.best),
            },
            "references": {},
            "bytes_up": meter.up,
            "bytes_down": meter.down,
            "exchanges": meter.exchanges,
            "wall_s": round(outcome.wall, 3),
            "protect_s": round(outcome.wall - meter.learning, 3),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "model_sha256": weights_digest(final) if final else None,
        }
        folder.document("result.json", {**result, "verdict": "not audited"})
        run = Run(folder.path)
        result["verdict"] = run.verify().verdict
        result["references"] = self._references()
        folder.document("result.json", result)
        run.report(FORMATS)
        return run

    def _references(self) -> dict[str, float | None]:
        wanted, rounds = self.config.evaluation.references, self.config.algorithm.rounds
        epochs = self.config.algorithm.epochs
        found: dict[str, float | None] = {}
        start = self.task.initial(self._rng("reference"))
        for name in wanted:
            sites = self._fresh() if name == "local" else [self._centre()]
            try:
                found[name] = best_test_accuracy(
                    self.task, sites, start, rounds=rounds, epochs=epochs
                )
            except ArithmeticError:  # it diverged; the federated result stands without it
                found[name] = None
        return found

    def _fresh(self) -> list[Site]:
        seeds = (learning_seed(self.config.seed, "local", str(i)) for i in range(len(self.sites)))
        return [Site(s.data, seed=seed) for s, seed in zip(self.sites, seeds, strict=True)]

    def _centre(self) -> Site:
        graph, masks = self.whole
        data = NodeData.from_graph(_whole(graph, masks))
        return Site(data, seed=learning_seed(self.config.seed, "centralised"))


def _whole(graph: Graph, masks: Masks) -> ClientGraph:
    return ClientGraph(
        edges=graph.edges,
        x=graph.x,
        y=graph.y,
        train=masks[0],
        val=masks[1],
        test=masks[2],
        nodes=np.arange(graph.nodes),
    )


def _clear(policy: PrivacyPolicy) -> str:
    return "unsafe-clear" if policy.unsafe else "none"


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
