"""Parts of a configuration: which client holds what, what is scored, and faults to play."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from protocols.strict import Strict, not_yaml, problems, read_yaml
from secure_fgl.errors import UsageError, path_of
from secure_fgl.run.naming import client_names, misnamed
from secure_fgl.store.files import settings_text

_DROP = r"[1-9]\d*@[1-9]\d*(:(after_upload|before_shares))?"
_DROPS = re.compile(rf"({_DROP}(,{_DROP})*)?")


class PartitionConfig(Strict):
    """Which client holds what.

    Attributes:
        name: see ``secure-fgl list partitions``.
        clients: how many there are.
        names: what they are called, in place of `clients`; without it ``client-1``, ``client-2``, …
            Of own data, the name of a client is that of its folder.
        options: further settings of this partition.
    """

    name: str = "louvain_balanced"
    clients: int = Field(default=5, ge=1, le=100_000)
    names: tuple[str, ...] = Field(default=(), max_length=100_000)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _names_are_counted(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(names := values.get("names"), list | tuple):
            return values | {"clients": values.get("clients", len(names))} if names else values
        return values

    @field_validator("names")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := misnamed(names):
            raise ValueError(wrong)
        return names

    @model_validator(mode="after")
    def _are_as_many(self) -> PartitionConfig:
        if self.names and len(self.names) != self.clients:
            raise ValueError(
                f"there are {len(self.names)} names, and clients says {self.clients}; leave "
                "clients out, since names count themselves"
            )
        return self

    @property
    def called(self) -> tuple[str, ...]:
        """The clients' names, in the order of plans: sorted."""
        return tuple(sorted(self.names)) or client_names(self.clients)


Reference = Literal[
    "local",
    "propagation",
    "local_propagation",
    "logistic",
    "boosted",
    "centralised",
    "whole_graph",
    "mean",
    "pmf",
]


class EvaluationConfig(Strict):
    """Which model is scored, and which references the simulator finds outside the federation.

    Where a policy lets no counts leave, and with ``kept``, each client keeps its own best model;
    with ``told`` clients tell scores under their own noise (`own_noise` of NOISED), each charged.

    Of nodes, each site by itself, and nothing is sent: ``local``; ``propagation``, the site's
    labels run along its own edges; ``local_propagation``, its own model's predictions run along
    them; ``logistic`` and ``boosted``, scikit-learn's logistic regression and boosted trees without
    edges (extra ``evaluate``; without it ``run`` says that they were not computed). Settings are
    chosen on the site's validation nodes (ADR 0096).
    ``whole_graph`` is how the clients' models do with all edges between clients restored, over all
    test nodes, on average (ADR 0048).
    ``mean`` predicts the mean of all training ratings, ``pmf`` is biased matrix factorisation on
    them; only rating tasks have these, and their headline is the RMSE where a client is one user.

    Attributes:
        at: the model that a client scores: ``downloaded`` (as it came), ``trained`` (after its own
            training in that round), ``kept`` (the best that it had).
        told: whether clients tell scores under their own noise.
        references: ``local`` (each client alone), ``propagation``, ``local_propagation``,
            ``logistic``, ``boosted``, ``centralised`` (all data in one place), ``whole_graph``,
            ``mean``, ``pmf``.
    """

    at: Literal["downloaded", "trained", "kept"] = "downloaded"
    told: bool = False
    references: tuple[Reference, ...] = ()


class FaultsConfig(Strict):
    """Faults that the simulator plays, to see that a run survives them.

    Attributes:
        drop: which client vanishes when: ``2@3`` is client 2 in round 3, before it uploads;
            ``2@3:after_upload`` or ``2@3:before_shares`` later in that round; several with commas.
            It is back in the next round.
    """

    drop: str = ""

    @field_validator("drop")
    @classmethod
    def _is_a_list_of_drops(cls, text: str) -> str:
        if not _DROPS.fullmatch(text):
            raise ValueError(
                "write CLIENT@ROUND, CLIENT@ROUND:after_upload or CLIENT@ROUND:before_shares; "
                "several with commas"
            )
        return text


# --- Settings from the command line, and variables of the environment, in plain data ---

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def asks_for_a_variable(document: Any) -> bool:
    """Say whether a text of plain data is one that :meth:`Config.parse` would replace.

    It looks at what was read: in a file, YAML may spell ``$`` as an escape.
    """
    return bool(expanded(document, lambda _: "") != document)


def set_key(document: dict[str, Any], setting: str) -> None:
    """Apply one ``key.sub=value``; raises UsageError for what is none."""
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes KEY=VALUE, not {setting[:60]!r}.", fix="--set seed=2")
    *path, last = key.split(".")
    place = document
    for part in path:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {key}: {part!r} holds a value, not keys.")
        place = inner
    try:
        place[last] = read_yaml(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {key}: the value is not YAML.") from error


_TARGETS = ("mlflow", "tensorboard")


def target(text: str) -> str:
    """Return where metrics go, ``KIND:PLACE``, if it is one; raises ValueError."""
    kind, colon, place = text.partition(":")
    if kind not in _TARGETS or not colon or not place:
        raise ValueError("write tensorboard:FOLDER or mlflow:URI, such as mlflow:sqlite:///runs.db")
    return text


def override(place: dict[str, Any], **values: Any) -> None:
    """Replace the values that are given; None leaves what is there."""
    place.update({key: value for key, value in values.items() if value is not None})


def expanded(value: Any, found: Callable[[re.Match[str]], str] | None = None) -> Any:
    """Replace ``${SECURE_FGL_X}`` and ``${SECURE_FGL_X:-default}``, in texts only.

    A text that is one variable and nothing else becomes the number or truth value that the
    variable's text is in YAML, as if it stood in the file.
    """
    if isinstance(value, dict):
        return {key: expanded(inner, found) for key, inner in value.items()}
    if isinstance(value, list):
        return [expanded(inner, found) for inner in value]
    if isinstance(value, str):
        text = _VARIABLE.sub(found or _variable, value)
        return _scalar(text) if _VARIABLE.fullmatch(value) else text
    return value


def _scalar(text: str) -> Any:
    try:
        value = read_yaml(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, int | float) else text


def _variable(match: re.Match[str]) -> str:
    name, default = match.group(1), match.group(2)
    if not name.startswith("SECURE_FGL_"):  # values end up in the run folder
        raise UsageError(
            f"The configuration uses ${{{name}}}; only variables SECURE_FGL_... are replaced."
        )
    found = os.environ.get(name) or default
    if found is None:
        raise UsageError(
            f"The configuration uses ${{{name}}}, which is not set.",
            fix=f"export {name}=..., or write ${{{name}:-default}}",
        )
    return found


# --- The configuration of a run: YAML, closed; unknown keys are errors that name the nearest one
# ---

MOST_KEPT = 1000
"""Models of rounds that a run keeps at most: the ledger's last entry has a digest of each."""
OWN = "own"
"""Name of data that lie in one folder a client, beside the description that all agreed on."""


SAMPLING = frozenset(
    {"fraction", "fraction_fit", "client_fraction", "clients_per_round", "participation", "sample"}
)
"""What other programs call a choice of clients in each round, which no algorithm has here so."""
ALL_ARE_ASKED = (
    "new clients in each round would make totals that can be subtracted from each other (ADR 0030)"
)
SOME_ARE_ASKED = (
    "leave it out: all are asked; fed_per_gnn (drawn), graph_fl and graph_fl_domain (asked) ask "
    "some"
)


class AlgorithmConfig(Strict):
    """Which algorithm, for how long.

    Attributes:
        name: see ``secure-fgl list algorithms``, or a plug-in's.
        rounds: how often clients train and their results are put together.
        epochs: passes over its own data that a client makes in a round.
        options: further settings by algorithm: ``{fed_prox: {mu: 0.01}}``; those of other names
            than the chosen one are not read.
    """

    name: str = "fed_avg"
    rounds: int = Field(default=50, ge=1, le=100_000)
    epochs: int = Field(default=1, ge=1, le=10_000)
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)


class ModelConfig(Strict):
    """The model and its optimiser; `secure_fgl.defaults` settles what is None by task and model.

    Attributes:
        name: a model for the task's kind; None: gcn for nodes, gin for graphs, dot for ratings.
        hidden: width of hidden layers, or of embeddings.
        layers: how many there are.
        dropout: rate on hidden layers.
        lr: step size.
        weight_decay: L2 penalty per step.
        optimiser: ``adam`` has its weight decay in the gradient, ``adamw`` beside it.
        keep_moments: whether what ``adam`` and ``adamw`` remember stays at the client from round
            to round; otherwise they start anew in every round.
        batch: records in a training batch; None: all at once for nodes and ratings, 64 graphs.
        options: further options of the task, for example ``inputs`` of ratings.
    """

    name: str | None = None
    hidden: int = Field(default=128, ge=1, le=65_536)
    layers: int = Field(default=2, ge=1, le=64)
    dropout: float | None = Field(default=None, ge=0.0, lt=1.0)
    lr: float | None = Field(default=None, gt=0.0, le=1e3)
    weight_decay: float = Field(default=5e-4, ge=0.0, le=1e3)
    optimiser: Literal["adamw", "adam", "sgd"] | None = None
    keep_moments: bool | None = None
    batch: int | None = Field(default=None, ge=1, le=1 << 20)
    options: dict[str, Any] = Field(default_factory=dict)


class DataConfig(Strict):
    """Which data, where it lies, how it is split (before it is partitioned) and shared out.

    Attributes:
        name: see ``secure-fgl list datasets``; ``own``: tables of your own.
        root: the folder in which data lie; None: the one that ``SECURE_FGL_DATA`` names.
        options: further settings of this data set.
        features: how each site scales its features, by its own records: ``row`` (each record sums
            to 1), ``l2`` (each has norm 1), ``standard`` (each column has mean 0, deviation 1).
        split: shares of training, validation and test records.
        records: a power of two that no client's number of training records exceeds, where a data
            set is shared out; None: see `secure_fgl.data.datasets.spec_of`. Public, and what one
            client's word can weigh in a sum that is weighted by records.
        partition: which client holds what.
    """

    name: str = "synthetic_banks"
    root: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    features: Literal["raw", "row", "l2", "standard"] = "raw"
    split: tuple[float, float, float] = (0.2, 0.4, 0.4)
    records: int | None = Field(default=None, ge=1, le=1 << 31)
    partition: PartitionConfig = PartitionConfig()

    @model_validator(mode="after")
    def _shares_fit(self) -> DataConfig:
        if min(self.split) <= 0 or sum(self.split) > 1 + 1e-9:
            raise ValueError("split: three shares above 0 that sum to at most 1")
        if self.records is not None and self.records & (self.records - 1):
            near = 1 << self.records.bit_length()
            raise ValueError(f"records: must be a power of two, for example {near}")
        return self


class TransportConfig(Strict):
    """How envelopes travel.

    Attributes:
        name: ``memory`` plays all roles in one process; ``broker`` rehearses a run between
            organisations on this machine, with processes and a server of their own.
        url: of the broker between organisations, ``tls://HOST:PORT``, for ``charter draw``.
        workers: how many processes play the clients of a simulation; 1: this one alone; None: see
            `secure_fgl.run.workers`. Nothing that leaves depends on it.
    """

    name: Literal["memory", "broker"] = "memory"
    url: str | None = None
    workers: int | None = Field(default=None, ge=1, le=1024)


class BudgetConfig(Strict):
    """Where the sites' privacy budgets are kept (O20).

    Attributes:
        store: a folder; None: ``$SECURE_FGL_BUDGETS``, else the user's state folder.
    """

    store: str | None = None


_PLUGIN = re.compile(r"(.*/)?[a-z][a-z0-9_]{0,39}(\.py)?", re.DOTALL)
# Settings of a site's own process.
_OWN = ("device", "isolate", "keep_models", "prepare_ahead", "resume", "tracking")


class Config(Strict):
    """Everything about a run but the data themselves.

    Attributes:
        policy: a preset's name or the path of a policy file.
        prepare_ahead: encrypt zeros in a worker process while clients train.
        resume: keep every party's state, locked, so that a killed run can go on.
        keep_models: keep each client's own model after the run, locked under its site's key.
        checkpoint_every: keep the released model of every n-th round; 0: the last and the best one.
        isolate: compute clients' answers in a process of their own, without keys, network and files
            (`secure_fgl.isolation`); None: if there is a plug-in. Sites that run apart always do.
        device: where clients train in a simulation: ``cpu``, ``cuda`` (a GPU, or nothing starts),
            ``auto`` (a GPU if there is one). See `secure_fgl.devices`.
        tracking: where released metrics go besides the run folder: ``tensorboard:DIR``,
            ``mlflow:URI`` (`secure_fgl.tracking`). A run folder does not say.
        seed: of learning randomness only (splits, starting weights, dropout, rounding). Keys and
            blinds never come from it.
        plugins: code from outside that this run uses: paths of files, or names of installed ones
            (`secure_fgl.plugins`). A run folder has the names alone.
    """

    algorithm: AlgorithmConfig = AlgorithmConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    policy: str = "pilot"
    transport: TransportConfig = TransportConfig()
    faults: FaultsConfig = FaultsConfig()
    budget: BudgetConfig = BudgetConfig()
    prepare_ahead: bool = True
    resume: bool = True
    keep_models: bool = True
    checkpoint_every: int = Field(default=0, ge=0, le=100_000)
    isolate: bool | None = None
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    tracking: tuple[str, ...] = ()
    seed: int = Field(default=1, ge=0, lt=2**31)
    plugins: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _keeps_not_too_many(self) -> Config:
        if self.checkpoint_every and self.algorithm.rounds // self.checkpoint_every > MOST_KEPT:
            raise ValueError(
                f"checkpoint_every: at most {MOST_KEPT} models are kept of a run; take a larger one"
            )
        return self

    @field_validator("tracking")
    @classmethod
    def _are_targets(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(target, texts))

    @field_validator("plugins")
    @classmethod
    def _are_plugins(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        if not all(
            _PLUGIN.fullmatch(t) and t.endswith(".py") is ("/" in t or "." in t) for t in texts
        ):
            raise ValueError(
                "write a file's path, my_fedprox.py, or an installed plug-in's name, my_fedprox: "
                "small letters, digits and _"
            )
        if len({_bare(text) for text in texts}) < len(texts):
            raise ValueError("a plug-in is named twice")
        return texts

    @classmethod
    def load(cls, path: str | Path, settings: Sequence[str] = ()) -> Config:
        """Read a YAML file and apply ``key.sub=value`` settings.

        Raises:
            UsageError: no such file, not YAML, or not a valid configuration.
        """
        file = path_of(path)
        try:
            document = read_yaml(settings_text(file))
        except OSError as error:
            raise UsageError(
                f"The configuration {file} cannot be read ({error.strerror}).",
                fix="give the path of a YAML file, for example examples/banks.yaml",
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            told = not_yaml(error)
            raise UsageError(f"{file} is not YAML.", why=told, fix="correct that line") from error
        if document is None:
            raise UsageError(
                f"The configuration {file} is empty.",
                why="a run of defaults alone would be on generated data, and nobody asked for it",
                fix="write one with: secure-fgl init DIR, or compare with examples/",
            )
        if not isinstance(document, dict):
            raise UsageError(
                f"{file} must hold keys and values at its top level.",
                why="a table or another file was given, or a line has lost its colon",
                fix="give a configuration, for example examples/banks.yaml or what init wrote",
            )
        for setting in settings:
            set_key(document, setting)
        return cls.parse(document)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Config:
        """Replace variables and validate; raises UsageError that names each wrong key."""
        return cls.literal(expanded(document))

    @classmethod
    def literal(cls, document: dict[str, Any]) -> Config:
        """Validate plain data as they stand; raises UsageError that names each wrong key."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            chosen = document.get("algorithm")
            sampling = SAMPLING & {*document, *(chosen if isinstance(chosen, dict) else ())}
            raise UsageError(
                "The configuration is not valid.",
                why=f"{problems(error)}; {ALL_ARE_ASKED}" if sampling else problems(error),
                fix=SOME_ARE_ASKED
                if sampling
                else "compare with examples/, or run: secure-fgl schema config",
            ) from error

    @classmethod
    def of_others(cls, text: str) -> Config:
        """Read a configuration that somebody else wrote; it reads nothing of this machine.

        Raises:
            UsageError: it is no configuration, or asks for a variable of this environment.
        """
        try:
            document = read_yaml(text)
        except yaml.YAMLError as error:
            raise UsageError("The configuration of the run is not YAML.") from error
        if not isinstance(document, dict) or asks_for_a_variable(document):
            raise UsageError(
                "The configuration of the run is none that a run leaves.",
                why="it asks for a variable of whoever reads it, or holds no keys",
            )
        found = cls.literal(document)
        alien = "it names places for metrics, as its writer likes" if found.tracking else ""
        if found.plugins != found.plugin_names:
            alien = "it names plug-ins by paths, and whoever wrote it could name any file"
        if alien:
            raise UsageError("The configuration of the run is none that a run leaves.", why=alien)
        return found

    @property
    def isolated(self) -> bool:
        """Whether a simulation computes answers in a process of their own."""
        return bool(self.plugins) if self.isolate is None else self.isolate

    @property
    def plugin_names(self) -> tuple[str, ...]:
        """The names of the plug-ins, sorted, wherever their files lie."""
        return tuple(sorted(map(_bare, self.plugins)))

    def shared(self) -> Config:
        """Return what several organisations can agree on: without what is each site's own.

        Where data, plug-ins and budgets lie, whether state is kept, zeros are made ahead, answers
        isolated, and faults and references of a simulator, are nobody else's business; at a site
        they have their defaults. So has how a simulator splits and shares out a published set,
        where the data are the sites' own tables.
        """
        own = {"budget": BudgetConfig(), "faults": FaultsConfig(), "transport": TransportConfig()}
        kept = {name: Config.model_fields[name].default for name in _OWN}
        scored = self.evaluation.model_copy(update={"references": ()})
        named = {"data": self._shared_data(), "plugins": self.plugin_names, "evaluation": scored}
        return self.model_copy(update={**own, **kept, **named})

    def _shared_data(self) -> DataConfig:
        """Return what is agreed on of the data; of own tables the rest stands in ``spec.yaml``."""
        if self.data.name != OWN:
            return self.data.model_copy(update={"root": None})
        place = self.data.partition
        named = PartitionConfig(clients=place.clients, names=place.names)
        return DataConfig(name=OWN, features=self.data.features, partition=named)

    def agreed_text(self) -> str:
        """Return as YAML what a charter holds: each setting that is in force, and no other.

        Between organisations answers are isolated and travel over the network, whatever a
        configuration says. Sites of own tables are its clients, split as ``spec.yaml`` says.
        """
        left = {name: True for name in (*_OWN, "budget", "faults", "transport")}
        data: dict[str, Any] = {"root": True}
        if self.data.name == OWN:
            shared = {"name": True, "options": True}
            data |= {"split": True, "options": True, "records": True, "partition": shared}
        out: Any = {**left, "data": data, "evaluation": {"references": True}}
        document = self.shared().model_dump(mode="json", exclude=out)
        return yaml.safe_dump(document, sort_keys=False)

    def text(self) -> str:
        """Return the configuration as YAML.

        Without the number of workers, and without where metrics go, which may hold a password: a
        run is the same with any, and can go on with another.
        """
        document = self.model_dump(
            mode="json", exclude={"transport": {"workers"}, "tracking": True}
        )
        return yaml.safe_dump(document, sort_keys=False)


def _bare(text: str) -> str:
    """Return a plug-in's name from its path or its name."""
    return text.rpartition("/")[2].removesuffix(".py")


def settings_of(given: Config | Mapping[str, Any] | None) -> Config:
    """Return a configuration, of one or of a mapping with the keys of a file; raises UsageError."""
    if given is None or isinstance(given, Config):
        return given or Config()
    if isinstance(given, Mapping):
        return Config.parse(dict(given))
    raise UsageError(
        f"A {type(given).__name__} is no configuration.",
        fix="give a Config, or a mapping such as {'algorithm': {'rounds': 5}}; a file: Config.load",
    )


def own_root(root: str | None) -> Path:
    """Return the folder of own data; raises UsageError if the configuration names none."""
    if root is None:
        raise UsageError(
            "Own data need a folder.", fix="set data.root to the folder that holds spec.yaml"
        )
    return Path(root).expanduser()
