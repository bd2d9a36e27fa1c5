"""What attack A11 is given: the canaries of a run, made again from the secrets that were opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from algorithms.tasks.client_model import ClientModel, predictions
from algorithms.tasks.site import Site
from audits.attacks import Canaries, Candidates
from audits.checks.parties.canaries import doubt, secrets_of
from audits.evidence.steps import Case
from protocols.evidence.canaries import coins
from secure_fgl.attack_inputs.again.records import Asked
from secure_fgl.config import Config
from secure_fgl.data.canaries import made_up, with_canaries
from secure_fgl.errors import UsageError
from secure_fgl.run.driver import one_thread_and_deterministic

__all__ = ["canary_material", "training_sites"]

Array = np.ndarray[Any, np.dtype[np.float64]]


def training_sites(case: Case, sites: Mapping[str, Site], spec: Any) -> dict[str, Site]:
    """Return the clients' sites as they trained, with those canaries that won their flip.

    Without canaries these are the sites themselves.

    Raises:
        EvidenceError: coins were opened that nobody committed to.
        UsageError: a client has not opened its coins.
    """
    canaries = case.policy.canaries
    if canaries is None:
        return dict(sites)
    secrets = secrets_of(case)
    if missing := sorted(set(sites) - set(secrets)):
        raise UsageError(
            f"{len(missing)} clients have not opened the coins of their canaries, so nobody can "
            "compute again what they trained on.",
            why="their ledgers were not closed: the run was killed, or they left it",
            fix="attack a run that ended, or gather the sides of those that are missing",
        )
    found, hidden = {}, case.policy.training is not None
    for name, site in sites.items():
        made = made_up(site.data, spec, secrets[name], canaries.records, hidden=hidden)
        found[name] = site.on(
            with_canaries(site.data, made, coins(secrets[name], canaries.records))
        )
    return found


def canary_material(
    case: Case, config: Config, task: Any, sites: Mapping[str, Site], training: Mapping[str, Site]
) -> Canaries | None:
    """Return all canaries of a run; None if it has none.

    Args:
        case: the run, verified.
        config: with the auditor's own paths.
        task: of the run.
        sites: of all clients, without canaries.
        training: as they trained.
    """
    if (canaries := case.policy.canaries) is None:
        return None
    spec, secrets, records = task.spec, secrets_of(case), canaries.records
    hidden = case.policy.training is not None
    made = {
        name: made_up(site.data, spec, secrets[name], records, hidden=hidden)
        for name, site in sites.items()
    }
    every = np.ones(records, dtype=bool)
    whole = {name: with_canaries(sites[name].data, one, every) for name, one in made.items()}
    asked = _Asking(config, task, case.plan.seed, training, whole, records)
    return Canaries(
        coins={name: coins(secret, records) for name, secret in secrets.items()},
        features={name: one.x for name, one in made.items()} if spec.task == "node" else {},
        model=asked.model,
        confidence=asked.confidence,
        alone=asked.alone,
        doubt=doubt(case),
    )


@dataclass(frozen=True, repr=False)
class _Asking:
    """Asks models about canaries, and trains models of one client."""

    config: Config
    task: Any
    seed: int
    training: Mapping[str, Site]
    whole: Mapping[str, Any]
    records: int

    def model(self, weights: Array) -> object | None:
        """Return the model of a flat vector; None if that is no whole model."""
        if weights.shape != (self.task.size,):
            return None
        return ClientModel((np.asarray(weights, dtype=np.float32),))

    def alone(self, client: str, seed: int) -> object:
        """Return what a client makes of its own records; see `audits.attacks.Canaries`."""
        chosen = self.config.algorithm
        site = Site(self.training[client].data, seed=seed)
        weights = self.task.initial(np.random.default_rng(self.seed))
        with one_thread_and_deterministic():
            for _ in range(chosen.rounds):
                weights = self.task.fit(weights, site, epochs=chosen.epochs)
        return ClientModel((weights,))

    def confidence(self, model: object, client: str) -> Array:
        """Return how sure a model is of the truth of each canary; see `audits.attacks.Canaries`.

        All canaries stand in the data alike, so that these tell nothing of which of them trained.
        """
        data = self.whole[client]
        numbers = np.arange(len(data.train) - self.records, len(data.train))
        none = np.zeros(self.records, dtype=bool)
        marks = np.zeros(self.records, dtype="S1")
        asked = Asked(data, self.task.spec, numbers, Candidates(none, none[None] * 1.0, marks))
        with one_thread_and_deterministic():
            found = predictions(self.task, cast(ClientModel, model), Site(data, seed=0))
        return asked.confidence(found)
