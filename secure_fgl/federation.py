"""The face: plan, run and audit a federated job in a few lines of Python."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.evaluation import evaluated
from algorithms.tasks import DataSpec
from algorithms.tasks.node import NodeTask
from crypto.he import Scheme
from crypto.he import scheme as find_scheme
from protocols.disclosures import Disclosure
from protocols.forms import Algorithm
from protocols.guards import SCHEMES, encryption
from protocols.plan import DataPlan, Plan, drift
from protocols.planning import make_plan
from protocols.policy import PrivacyPolicy
from protocols.strict import nearest
from secure_fgl.catalogue import build_algorithm
from secure_fgl.config import Config
from secure_fgl.data import Graph, partition_names, spec_of
from secure_fgl.driving import one_thread_and_deterministic
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.faults import drops
from secure_fgl.parties import client_names
from secure_fgl.running import Connect, Preparation, Progress
from secure_fgl.runs import Run, RunFolder
from secure_fgl.transports.memory import MemoryTransport


class Federation:
    """A federated job: data, algorithm and policy.

    Args:
        data: a graph, or a data set's name.
        algorithm: for example ``fed_avg``.
        clients: number of clients.
        partition: how the simulator shares the graph out.
        rounds, epochs: how long.
        policy: a policy object; by default the ``pilot`` preset.
        seed: of learning randomness.
        config: everything else; the arguments above override it.

    Raises:
        UsageError: unknown names or values, each with the nearest known one.
    """

    def __init__(  # noqa: PLR0913 - the settings people change most, all by name
        self,
        data: Graph | str | None = None,
        *,
        algorithm: str | None = None,
        clients: int | None = None,
        partition: str | None = None,
        rounds: int | None = None,
        epochs: int | None = None,
        policy: PrivacyPolicy | None = None,
        seed: int | None = None,
        config: Config | None = None,
    ) -> None:
        document = (config or Config()).model_dump(mode="json")
        name = data.name if isinstance(data, Graph) else data
        changes = {
            ("algorithm", "name"): algorithm,
            ("algorithm", "rounds"): rounds,
            ("algorithm", "epochs"): epochs,
            ("data", "name"): name,
            ("seed",): seed,
        }
        for path, value in changes.items():
            if value is not None:
                place = document
                for part in path[:-1]:
                    place = place[part]
                place[path[-1]] = value
        shared = document["data"]["partition"]
        shared.update(
            {k: v for k, v in (("name", partition), ("clients", clients)) if v is not None}
        )
        if policy is not None:
            document["policy"] = policy.name
        self.config = Config.parse(document)
        self.policy = policy or PrivacyPolicy.load(self.config.policy)
        self._graph = data if isinstance(data, Graph) else None

    @classmethod
    def from_config(cls, config: Config) -> Federation:
        """Return the federation that a configuration describes."""
        return cls(config=config)

    def _spec(self) -> DataSpec:
        data, graph = self.config.data, self._graph
        try:
            if graph is None:
                return spec_of(
                    data.name,
                    clients=data.partition.clients,
                    train_share=data.split[0],
                    options=data.options,
                )
        except ValueError as error:
            raise UsageError(str(error)) from error
        most = max(1, int(np.ceil(round(data.split[0] * graph.nodes, 6))))
        return DataSpec(
            task="node",
            features=graph.x.shape[1],
            classes=graph.classes,
            records=1 << (most - 1).bit_length(),
            clients=data.partition.clients,
            synthetic=graph.synthetic,
            name=graph.name,
        )

    def _build(self) -> tuple[NodeTask, Algorithm[Any]]:
        settings = self.config.model.model_dump()
        model = settings.pop("name")
        try:
            task = NodeTask(self._spec(), model=model, **settings)
        except ValueError as error:
            raise UsageError(str(error)) from error
        shared = self.config.data.partition.name
        if shared not in partition_names():
            raise UsageError(
                f"There is no partition {shared!r}.", fix=nearest(shared, list(partition_names()))
            )
        chosen = self.config.algorithm
        return task, build_algorithm(
            chosen.name, task, epochs=chosen.epochs, options=chosen.options
        )

    def _scheme(self) -> Scheme | None:
        wanted = encryption(self.policy.rules.get(Disclosure.SUM, ()))
        return find_scheme(SCHEMES[wanted]) if wanted else None

    def plan(self) -> Plan:
        """Return everything that would leave each client. No feature or label is touched.

        Raises:
            NotAdmitted: the policy does not allow a message that the algorithm needs.
            CohortTooSmall: fewer clients than the policy's minimum cohort.
        """
        task, algorithm = self._build()
        spec = task.spec
        data = DataPlan(
            name=spec.name,
            task=spec.task,
            features=spec.features,
            classes=spec.classes,
            records=spec.records,
            synthetic=spec.synthetic,
        )
        return make_plan(
            evaluated(algorithm, task, at=self.config.evaluation.at),
            self.policy,
            data=data,
            clients=client_names(spec.clients),
            rounds=self.config.algorithm.rounds,
            scheme=self._scheme(),
        )

    def run(
        self,
        out: str | Path | None = None,
        *,
        plan: Plan | None = None,
        progress: Progress | None = None,
        connect: Connect = MemoryTransport,
    ) -> Run:
        """Train, and leave a run folder with ledgers and report.

        Args:
            out: the run folder; it must not exist or be empty. By default
                ``runs/<algorithm>-<data>-<UTC time>``.
            plan: an approved plan; the run refuses to start or to send what it does not hold.
            progress: called after each round.
            connect: makes the transport.

        Raises:
            PlanDrift: the run would do something that the approved plan does not hold.
            UsageError: the folder exists, or the data cannot be used.
            Refused: a client refused; its reason stays in its ledger.
            LedgerError: a ledger could not be written; nothing of that exchange was sent.
        """
        wanted = self.plan()
        if plan is not None and (differences := drift(plan, wanted)):
            raise PlanDrift(differences)
        task, algorithm = self._build()
        prepared = Preparation(
            self.config,
            self.policy,
            plan or wanted,
            task=task,
            algorithm=algorithm,
            scheme=self._scheme(),
            graph=self._graph,
        )
        drops(
            self.config.faults.drop, wanted.clients, wanted.rounds
        )  # refused before anything is made
        folder = RunFolder(Path(out) if out is not None else self.default_folder())
        with one_thread_and_deterministic():
            prepared.load()
            folder.make()
            return prepared.train(folder, progress, connect)

    def default_folder(self) -> Path:
        """Return ``runs/<algorithm>-<data>-<UTC time>``."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        return Path("runs") / f"{self.config.algorithm.name}-{self.config.data.name}-{now}"
