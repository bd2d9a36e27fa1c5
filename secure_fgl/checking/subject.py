"""Small runs that every law is asked of: five clients, two rounds, generated data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from algorithms.tasks import Kind as TaskKind
from algorithms.tasks import Task
from protocols.disclosures.names import Disclosure
from protocols.forms import Algorithm
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.catalogue import preferred_model
from secure_fgl.checking.probe import Played, Probe, play
from secure_fgl.config import Config, set_key
from secure_fgl.data import Dataset
from secure_fgl.data.datasets import power_of_two
from secure_fgl.data.loading import load
from secure_fgl.errors import UsageError
from secure_fgl.plugins.in_use import Given, Plugins
from secure_fgl.plugins.plugin import Kind

ROUNDS, CLIENTS, HIDDEN = 2, 5, 8
BANKS: dict[str, Any] = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 60},
    "partition": {"name": "by_owner", "clients": CLIENTS},
}
RATINGS: dict[str, Any] = {
    "name": "synthetic_ratings",
    "options": {"users": CLIENTS, "items": 12, "each": 8},
    "split": [0.6, 0.2, 0.2],
    "partition": {"name": "user_per_client", "clients": CLIENTS},
}
OPTIONS: dict[str, Any] = {"fed_sage_plus": {"steps": 2}}
"""What would only take time."""


def rated(name: str) -> bool:
    """Tell whether an algorithm is a recommender, which takes ratings alone."""
    return set(preferred_model(name)) == {"rating"}


def document(
    name: str,
    policy: str = "pilot",
    *,
    seed: int = 1,
    rounds: int = ROUNDS,
    drop: str = "",
    store: Path | None = None,
    **model: Any,
) -> dict[str, Any]:
    """Return the small configuration that all laws share, on data of a kind an algorithm takes.

    Args:
        name: of the algorithm.
        policy: a preset's name.
        seed: of learning randomness.
        rounds: how many.
        drop: clients that vanish.
        store: of budgets; None: the user's.
        model: settings of the model.
    """
    return {
        "algorithm": {"name": name, "rounds": rounds, "options": OPTIONS},
        "faults": {"drop": drop},
        "budget": {"store": str(store) if store else None},
        "model": {"hidden": HIDDEN, **model},
        "data": RATINGS if rated(name) else BANKS,
        "policy": policy,
        "seed": seed,
    }


def mixes(built: tuple[Task, Algorithm[Any]]) -> bool:
    """Tell whether an algorithm has a form that mixes records."""
    kinds = {kind.disclosure for form in built[1].forms for kind in form.messages()}
    return Disclosure.MIXED in kinds


def steadied(policy: str) -> PrivacyPolicy:
    """Return a preset without its rule for mixtures.

    Who stands in which mixture is drawn from the operating system (O15), so runs that mix do not
    repeat. Without that rule the same algorithm takes a form that does.
    """
    preset = PrivacyPolicy.preset(policy)
    rules = {d: chain for d, chain in preset.rules.items() if d is not Disclosure.MIXED}
    return preset.model_copy(update={"rules": rules})


# --- What is checked: a plug-in, the small configuration around it, and its runs, each made once
# ---

CLEAR = "unsafe_plaintext"
"""The policy of most runs: nothing of the operating system's chance is in it."""

_SPREAD: dict[TaskKind, str] = {
    "node": "iid_nodes",
    "graph": "dirichlet_label",
    "rating": "item_category",
}
"""Partitions for data of a plug-in, whose clients nobody named."""


class Subject:
    """A plug-in and what is around it.

    Args:
        given: the plug-in, and others that it needs, behind it.
        settings: ``key.sub=value``, over the small configuration.
        folder: a new one, for runs.

    Raises:
        UsageError: a plug-in cannot be used, or there is no generated data of its kind.
    """

    def __init__(self, given: Sequence[Given], settings: Sequence[str], folder: Path) -> None:
        self.plugins = Plugins((), given)
        first = Plugins((), given[:1])
        (self.main,) = first
        self.folder, self._settings = folder, settings
        self._made: dict[str, Played] = {}
        with self.plugins.in_use():
            self._document = self._small()
        if self.main.kind is Kind.PARTITION:
            self._bound()

    @property
    def module(self) -> ModuleType:
        """The plug-in's module."""
        return self.plugins.modules(self.main.kind)[self.main.name]

    def _small(self) -> dict[str, Any]:
        name, kind = self.main.name, self.main.kind
        if kind is Kind.ALGORITHM:
            return document(name)
        if kind is Kind.DATA:
            data = sorted(self.module.NAMES)[0]
            task = self.module.describe(data, {}).task
            shared = {"name": _SPREAD[task], "clients": CLIENTS}
            return {**document("fed_avg"), "data": {"name": data, "partition": shared}}
        tasks = (self.module.TASK,) if kind is Kind.MODEL else self.module.KINDS
        around = next((d for t, d in _DATA.items() if t in tasks), None)
        if around is None and not any(s.startswith("data.name=") for s in self._settings):
            raise UsageError(
                f"There is no generated data for {' or '.join(tasks)} tasks.",
                fix="name a data set of that kind, for example --set data.name=tu/MUTAG --set "
                "data.partition.name=iid_nodes",
            )
        made = {**document("fed_avg"), "data": around or {}}
        if kind is Kind.MODEL:
            return {**made, "model": {**made["model"], "name": name}}
        shared = {"name": name, "clients": CLIENTS}
        return {**made, "data": {**made["data"], "partition": shared}}

    def _bound(self) -> None:
        """Choose `data.records` by what the partition gives: the default is another rule's."""
        loose = self.config(CLEAR)
        loose = loose.model_copy(update={"data": loose.data.model_copy(update={"records": _ANY})})
        with suppress(Exception), self.plugins.in_use():  # where it raises, a law says so
            task, _ = Probe(config=loose, plugins=tuple(self.plugins)).build()
            most = max(site.count for site in load(loose, task).sites)
            self._document["data"] = {**self._document["data"], "records": power_of_two(most)}

    def config(self, policy: str, **more: Any) -> Config:
        """Return the small configuration under a preset."""
        chosen = Config.parse({**self._document, "policy": policy}).model_dump(mode="json")
        for setting in self._settings:
            set_key(chosen, setting)
        return Config.parse({**chosen, "policy": policy, "isolate": False, **more})

    def probe(self, policy: str, *, data: Dataset | None = None, **more: Any) -> Probe:
        """Return a federation that may be looked at; under a preset that repeats."""
        config = self.config(policy, **more)
        steady = None
        plain = Probe(data, config=config, plugins=tuple(self.plugins))
        if mixes(plain.build()):
            steady = steadied(policy)
        return Probe(data, config=config, policy=steady, plugins=tuple(self.plugins))

    def preset(self, policy: str) -> Probe:
        """Return a federation under a preset as it is."""
        chosen = PrivacyPolicy.preset(policy)
        return Probe(config=self.config(policy), policy=chosen, plugins=tuple(self.plugins))

    def played(self, policy: str = CLEAR) -> Played:
        """Return the small run under a policy, made once."""
        if policy not in self._made:
            self._made[policy] = play(self.probe(policy), self.place(policy))
        return self._made[policy]

    def place(self, name: str) -> Path:
        """Return a new place for a run."""
        return self.folder / f"{len(list(self.folder.iterdir()))}-{name}"

    @property
    def generated(self) -> bool:
        """Whether it runs on the generated data of the laws, in which a value can be planted."""
        return self.config(CLEAR).data.name in (BANKS["name"], RATINGS["name"])


_ANY = 1 << 31  # training records of a client, where nobody asks how many
_DATA: dict[str, dict[str, Any]] = {"node": BANKS, "rating": RATINGS}


@contextmanager
def subject_of(given: Sequence[Given], settings: Sequence[str] = ()) -> Iterator[Subject]:
    """Give a subject; its runs, their kept state and their captures go when the context ends."""
    names = ("SECURE_FGL_STATE", "SECURE_FGL_BUDGETS")
    before = {name: os.environ.get(name) for name in names}
    with TemporaryDirectory(prefix="secure-fgl-check-") as place:
        try:
            for name in names:
                folder = Path(place) / name.lower()
                folder.mkdir(mode=0o700)
                os.environ[name] = str(folder)
            runs = Path(place) / "runs"
            runs.mkdir()
            yield Subject(given, settings, runs)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
