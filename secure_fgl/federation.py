"""The face: plan, run and audit a federated job in a few lines of Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms.nn import model_names
from algorithms.tasks import DataSpec, Kind, Task
from algorithms.tasks.evaluation import evaluated
from crypto.homomorphic.he import Scheme
from crypto.homomorphic.he import scheme as find_scheme
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import SCHEMES, encryption
from protocols.forms import Algorithm
from protocols.plan.learns import not_used
from protocols.plan.plan import Plan, drift
from protocols.plan.planning import make_plan
from protocols.policy.guard import find
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.strict import nearest
from secure_fgl.catalogue import build_algorithm, preferred_model
from secure_fgl.config import OWN, Config, ModelConfig, override, own_root, settings_of
from secure_fgl.data import (
    Dataset,
    Graph,
    GraphSet,
    Ratings,
    check_partition,
    linkable_names,
    links,
    partition_names,
    remarks,
)
from secure_fgl.data.datasets import bound_near
from secure_fgl.data.features import check_scaling
from secure_fgl.data.joined import ignored_edge_data, joined
from secure_fgl.data.kinds import (
    EDGES,
    build_task,
    check_module,
    data_plan,
    model_name,
    public_spec,
)
from secure_fgl.defaults import check_optimiser, check_training, said, settled
from secure_fgl.errors import PlanDrift, UsageError, usage
from secure_fgl.plugins.in_use import Given, Plugins
from secure_fgl.plugins.plugin import Kind as Plug
from secure_fgl.run.naming import learning_seed, run_path

if TYPE_CHECKING:
    from secure_fgl.data.own import OwnSpec
    from secure_fgl.run.simulation import Connect, Preparation, Progress
    from secure_fgl.store.finished_run import Run


class Federation:
    """A federated job: data, algorithm and policy.

    Args:
        data: a data set, or its name.
        algorithm: for example ``fed_avg``.
        clients, partition: how many clients, and how the simulator shares the graph out.
        rounds, epochs: how long.
        policy: a policy, the name of a preset, or a policy file; by default the preset ``pilot``.
        seed: of learning randomness.
        plugins: files of algorithms, models or data of one's own, or names of installed ones,
            beside those of `config`; trusted code, read here and run when a plan is made.
        config: everything else, or a mapping with the keys of a configuration file; the arguments
            above override it.
        spec: what sites agreed on about tables of their own, in place of the ``spec.yaml`` in
            `data.root`: parties without data have none.

    Raises:
        UsageError: unknown names or values, with the nearest known ones, an object that is no data
            set, or an unfit plug-in.
        PolicyError: there is no such preset or policy file.
    """

    def __init__(  # noqa: PLR0913 - the settings people change most, all by name
        self,
        data: Dataset | str | None = None,
        *,
        algorithm: str | None = None,
        clients: int | None = None,
        partition: str | None = None,
        rounds: int | None = None,
        epochs: int | None = None,
        policy: PrivacyPolicy | str | Path | None = None,
        seed: int | None = None,
        plugins: Sequence[Given] = (),
        config: Config | Mapping[str, Any] | None = None,
        spec: OwnSpec | None = None,
    ) -> None:
        document = settings_of(config).model_dump(mode="json")
        _check_data(data)
        name = data if isinstance(data, str) or data is None else data.name
        override(document["algorithm"], name=algorithm, rounds=rounds, epochs=epochs)
        override(document["data"], name=name)
        override(document["data"]["partition"], name=partition, clients=clients)
        override(document, seed=seed)
        policy = policy if policy is None else _policy(policy)
        if policy is not None:
            document["policy"] = policy.name
        parsed = Config.parse(document)
        self.plugins = Plugins(parsed.plugins, plugins)
        self._given = parsed.model_copy(update={"plugins": self.plugins.names})
        self._chosen = policy or PrivacyPolicy.load(self._given.policy)
        self._preset = policy is None and self._given.policy in PRESETS
        self._whole, self._agreed = None if isinstance(data, str) else data, spec

    @classmethod
    def from_config(cls, config: Config, plugins: Sequence[Given] = ()) -> Federation:
        """Return the federation that a configuration describes, with plug-ins beside its own."""
        return cls(config=config, plugins=plugins)

    @cached_property
    def policy(self) -> PrivacyPolicy:
        """The policy. A preset says ``cohort_changes: fixed`` where that costs nothing.

        That is, where as many clients take part as a total needs, so that a round in which one is
        away is lost under any rule, and the algorithm splits clients into no clusters.
        """
        chosen, clients = self._chosen, len(self._given.data.partition.called)
        whole = self._preset and clients == chosen.smallest_cohort
        if not whole or find(chosen.rules.get(Disclosure.SUM, ()), "mask") is None:
            return chosen
        if any(form.splits is not None for form in self.build()[1].forms):
            return chosen
        return chosen.changed(cohort_changes="fixed")

    @cached_property
    def config(self) -> Config:
        """The configuration, with the defaults of task and model written out; raises UsageError."""
        with self.plugins.in_use():
            return self._given.model_copy(update={"model": self._built()[2]})

    @classmethod
    def from_pyg(
        cls,
        sites: Mapping[str, Any],
        *,
        name: str = "pyg",
        classes: int | None = None,
        config: Config | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Federation:
        """Return a federation of PyTorch Geometric's objects, one client each.

        Args:
            sites: by client name a ``Data`` with `x` (N, F), `y` (N,), `edge_index` (2, E) and
                masks or none, or a list of graphs with `y` (1,). Tensors of any numeric type, dense
                or sparse, or numpy arrays. Weights, features and types of edges are not read, and a
                warning says so.
            name: of the data, in plan and report.
            classes: how many; by default one more than the largest label.
            config: everything that is not said otherwise.
            **settings: arguments of the class, such as `algorithm`, `rounds` and `policy`.

        Raises:
            UsageError: objects that do not fit together, or names that clients cannot have.
        """
        document = settings_of(config).model_dump(mode="json")
        whole = joined(sites, name=name, classes=classes)
        if ignored := ignored_edge_data(sites):
            warnings.warn(
                f"{', '.join(ignored)}: not read. Edges are {EDGES}.", UserWarning, stacklevel=2
            )
        document["data"]["partition"] = {"name": "by_owner", "names": list(sites)}
        data = document["data"]
        data["records"] = data["records"] or _largest_share(whole, data["split"][0])
        return cls(whole, config=Config.parse(document), **settings)

    def own_spec(self) -> OwnSpec | None:
        """Return what sites agreed on about tables of their own; None where there are none.

        Raises:
            UsageError: ``spec.yaml`` is missing or not valid.
        """
        if self._given.data.name != OWN or self._whole is not None:
            return None
        if self._agreed is None:
            from secure_fgl.data.own import load_spec

            return load_spec(own_root(self._given.data.root))
        return self._agreed

    def check_tables(self) -> None:
        """Read all sites' own tables, in a simulation; raises UsageError for all at once."""
        if (own := self.own_spec()) is not None and self.config.transport.name == "memory":
            from secure_fgl.data.loading import check_tables, sizes  # torch: a plan needs none

            check_tables(self.config, own.bound, sizes(self.policy, self.build()[1]))

    def _spec(self) -> DataSpec:
        try:
            if (own := self.own_spec()) is not None:
                return own.data_spec(self._given.data.partition.clients)
            return public_spec(self._given.data, self._whole)
        except (OSError, ValueError) as error:
            raise usage(error) from error

    def build(self) -> tuple[Task, Algorithm[Any]]:
        """Return the task and the algorithm, without evaluation; raises UsageError."""
        with self.plugins.in_use():
            return self._built()[:2]

    def _built(self) -> tuple[Task, Algorithm[Any], ModelConfig]:
        """Return them and the model's settings with all defaults."""
        shared, chosen, model = self._given.data.partition, self._given.algorithm, self._given.model
        if shared.name not in partition_names():
            raise UsageError(
                f"There is no partition {shared.name!r}.",
                fix=nearest(shared.name, list(partition_names())),
            )
        spec, preferred = self._spec(), preferred_model(chosen.name)
        name = model_name(spec.task, model, preferred)
        self._check_task(spec.task, model.name)
        whole = settled(model, spec.task, name)
        task = build_task(spec, whole, preferred=preferred)
        if name in self.plugins.names:
            check_module(task)
        if self._given.data.name != OWN or self._whole is not None:
            try:
                check_partition(shared.name, task.spec.task, shared.options)
            except ValueError as error:
                raise usage(error) from error

        def built() -> Algorithm[Any]:
            return build_algorithm(chosen.name, task, epochs=chosen.epochs, options=chosen.options)

        algorithm = built()
        check_optimiser(algorithm, model)
        if algorithm.gradients:  # a table's row is for an optimiser's steps
            whole = settled(model, spec.task, name, gradients=True)
            task = build_task(spec, whole, preferred=preferred)
            algorithm = built()
        if algorithm.linked:
            self._check_linked(chosen.name)
        return task, algorithm, whole

    def _check_task(self, kind: Kind, model: str | None) -> None:
        """Raise UsageError where own tables are said to be of another task than the model is."""
        if self.own_spec() is None or model is None:
            return
        if model not in model_names() or model in model_names(kind):
            return
        raise UsageError(
            f"spec.yaml says task: {kind}, and the model {model} is for another task.",
            why="nodes.csv is for task: node, molecules.csv for task: graph, ratings.csv for "
            "task: rating",
            fix=f"correct the task in spec.yaml, or set model.name to one of: "
            f"{', '.join(model_names(kind))}",
        )

    def _check_linked(self, algorithm: str) -> None:
        """Raise UsageError where clients cannot know the edges that an algorithm is about."""
        place = self._given.data.partition
        own = self._given.data.name == OWN and self._whole is None
        if not own and links(place.name, place.options):
            return
        why = f"the partition {place.name} drops edges between clients"
        fix = f"take a partition that keeps them ({', '.join(linkable_names())}; METIS with "
        fix += "linked: true), or "
        if own:
            why = "a site's table of edges names its own nodes alone, so no edge leads to another"
            fix = ""
        raise UsageError(
            f"{algorithm} exchanges rows of neighbours at other clients, and here are none.",
            why=why,
            fix=f"{fix}leave out algorithm.options.{algorithm}, which is then FedAvg",
        )

    def unused(self) -> list[str]:
        """Say what was given and is not used: plug-ins, and options of other algorithms."""
        with self.plugins.in_use():
            found = self._unused_plugins(self._built()[2].name)
        chosen = self._given.algorithm
        others = [name for name, said in chosen.options.items() if said and name != chosen.name]
        return [f"{text[0].upper()}{text[1:]}" for text in found] + [
            f"Options of {name} are given and not used: the algorithm is {chosen.name}"
            for name in sorted(others)
        ]

    def _unused_plugins(self, model: str | None) -> list[str]:
        """Name plug-ins that nothing in the configuration names, with what would."""
        used = {
            Plug.ALGORITHM: ("algorithm.name", self._given.algorithm.name),
            Plug.MODEL: ("model.name", model),
            Plug.DATA: ("data.name", self._given.data.name),
            Plug.PARTITION: ("data.partition.name", self._given.data.partition.name),
        }
        data, found = self.plugins.modules(Plug.DATA), list[str]()
        for plugin in self.plugins:
            key, value = used[plugin.kind]
            names = data[plugin.name].NAMES if plugin.kind is Plug.DATA else (plugin.name,)
            if value not in names:
                said = f"{not_used(plugin.name)}{key} is {value}"
                found.append(f"{said}; to use it: --set {key}={names[0]}")
        return found

    def training(self) -> str:
        """Return in words how models are trained; of gradient steps, the step that is taken."""
        return said(self.config.model, gradients=self.build()[1].gradients > 0)

    def headline(self) -> str:
        """Return the metric that comes first; the RMSE where every client is one user."""
        return self.build()[0].scoring.names[0]

    def scheme(self) -> Scheme | None:
        """Return what sums are encrypted under; None without encryption."""
        wanted = encryption(self.policy.rules.get(Disclosure.SUM, ()))
        return find_scheme(SCHEMES[wanted]) if wanted else None

    def plan(self) -> Plan:
        """Return everything that would leave each client. No feature or label is touched.

        Raises:
            NotAdmitted: the policy does not allow a message that the algorithm needs.
            CohortTooSmall: fewer clients than the policy's minimum cohort.
        """
        place, said = self._given.data.partition, self.config.evaluation
        with self.plugins.in_use():
            task, algorithm, model = self._built()
            unused = self._unused_plugins(model.name)
            own = self._given.data.name == OWN and self._whole is None  # nothing is shared out
            told = () if own else remarks(place.name, place.options)
        check_scaling(self._given.data.features, self.policy)
        check_training(algorithm, task, self.policy)
        return make_plan(
            evaluated(algorithm, task, at=said.at, told=said.told),
            self.policy,
            data=data_plan(task.spec),
            clients=self._given.data.partition.called,
            rounds=self.config.algorithm.rounds,
            scheme=self.scheme(),
            seed=learning_seed(self.config.seed, "init"),
            plugins=self.plugins.code,
            remarks=(*told, *unused, *self._in_the_open()),
            one_person=bool(getattr(task, "alone", False)),
        )

    def _in_the_open(self) -> Sequence[str]:
        """Say so where a plug-in's answers are to run beside keys and data."""
        if not self.plugins.names or self._given.isolate is not False:
            return ()
        return (
            "isolate: false: in a simulation the plug-ins' answers run in the process that holds "
            "all clients' keys and data, with its network and files",
        )

    def prepare(self, plan: Plan | None = None) -> Preparation:
        """Return everything that a run needs before it starts; the data is not loaded yet."""
        from secure_fgl.run.simulation import Preparation

        task, algorithm = self.build()
        return Preparation(
            self.config,
            self.policy,
            plan or self.plan(),
            task=task,
            algorithm=algorithm,
            scheme=self.scheme(),
            whole=self._whole,
            plugins=self.plugins,
        )

    def run(
        self,
        out: str | Path | None = None,
        *,
        plan: Plan | None = None,
        progress: Progress | bool = False,
        connect: Connect | None = None,
        resume: bool = False,
        approvals: Sequence[str | Path] = (),
        tell: Callable[[str], None] = lambda line: None,
    ) -> Run:
        """Train, and leave a run folder with ledgers and report.

        Args:
            out: the run folder, new or empty; by default ``runs/<algorithm>-<data>-<UTC time>``.
            plan: an approved plan; the run refuses to start or to send what it does not hold.
            progress: called after each round; True: a bar, as terminal or notebook wants it.
            connect: makes the transport to all sessions, which are then in this process.
            resume: `out` holds a killed run of this configuration; it goes on to the same result.
            approvals: files of those who approved this plan, where the policy names approvers.
            tell: called with a line for people at each step of a rehearsal, and with what was put
                right in the tables of each site of a simulation.

        Raises:
            PlanDrift: the run would do something that the approved plan does not hold.
            UsageError: the folder exists, the data cannot be used, or a plug-in's file was changed.
            Refused: a client refused; its reason stays in its ledger.
            LedgerError: a ledger could not be written; nothing of that exchange was sent.
        """
        from secure_fgl.notebook import watched
        from secure_fgl.run import plan_approvals
        from secure_fgl.run.driver import one_thread_and_deterministic
        from secure_fgl.run.resuming import check_same
        from secure_fgl.sites.rehearsal import rehearse
        from secure_fgl.store.run_folder import RunFolder
        from secure_fgl.tracking import Sinks
        from secure_fgl.transports.memory import drops

        self.plugins.unchanged()
        if plan is not None:
            self.plugins.hold_to(plan)
        wanted = self.plan()
        if plan is not None and (differences := drift(plan, wanted)):
            raise PlanDrift(differences)
        into = Path(out or self.default_folder())
        if self.config.transport.name == "broker":
            simulated = resume or approvals or connect or self._whole is not None
            with watched(progress, self.headline) as seen:
                return rehearse(self, plan or wanted, into, seen, tell, simulated=bool(simulated))
        prepared = self.prepare(plan or wanted)
        drops(self.config.faults.drop, wanted.clients, wanted.rounds)  # before anything is made
        folder = RunFolder(into, again=resume)
        if resume:
            check_same(folder, self.config, self.plugins)
        signed = plan_approvals.approved(self.policy, plan or wanted, approvals, folder, resume)
        quiet, sinks = one_thread_and_deterministic(self.config), self.config.tracking
        tracked = Sinks(sinks, into.name, plan or wanted, tell)
        with quiet, watched(progress, self.headline) as seen, tracked as prepared.track:
            prepared.load()
            for note in prepared.notes:
                tell(note)
            folder.make()
            plan_approvals.keep(folder, signed)
            return prepared.train(folder, seen, connect, resume=resume)

    def default_folder(self) -> Path:
        """Return ``runs/<algorithm>-<data>-<UTC time>``."""
        return run_path(self._given.algorithm.name, self._given.data.name)


def _policy(given: PrivacyPolicy | str | Path) -> PrivacyPolicy:
    if isinstance(given, PrivacyPolicy):
        return given
    if isinstance(given, str | Path):
        return PrivacyPolicy.load(given)
    raise UsageError(
        f"A {type(given).__name__} is no policy.",
        fix="give a PrivacyPolicy, the name of a preset such as 'masks', or a policy file",
    )


def _check_data(data: object) -> None:
    """Raise UsageError unless this is a data set, the name of one, or None."""
    if data is None or isinstance(data, str | Graph | GraphSet | Ratings):
        return
    raise UsageError(
        f"A {type(data).__name__} is no data set of ours.",
        fix="give a name, or what load_dataset returns; PyTorch Geometric's objects: "
        "Federation.from_pyg({'north': data, ...}), one a client",
    )


def _largest_share(whole: Any, share: float) -> int:
    """Return a bound of the training records of any owner."""
    public = getattr(whole, "public", None)
    owned = np.bincount(whole.owner if public is None else whole.owner[public.train])
    return bound_near(float(owned.max()) * (0.9 * share if public is None else 1.0))
