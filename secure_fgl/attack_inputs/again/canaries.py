"""What attack A11 is given: the canaries of a run, made again from the secrets that were opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from algorithms.tasks import ClientModel, Site, predictions
from audits.attacks import Canaries, Candidates
from audits.checks.parties.canaries import secrets_of
from audits.evidence.openable import may_be_opened
from audits.evidence.steps import Case
from protocols.evidence.canaries import coins, content_key
from protocols.plan.steps import Step
from secure_fgl.attack_inputs.again.records import Asked
from secure_fgl.config import Config
from secure_fgl.data.canaries import made_up, planted, with_canaries
from secure_fgl.errors import UsageError
from secure_fgl.run.driver import one_thread_and_deterministic

__all__ = ["canary_material", "check_opened", "training_sites", "unopened_of"]

Array = np.ndarray[Any, np.dtype[np.float64]]


def training_sites(case: Case, sites: Mapping[str, Site], spec: Any) -> dict[str, Site]:
    """Return the clients' sites as they trained, with those canaries that won their flip.

    Without canaries these are the sites themselves. Who has not opened its coins is left out:
    nobody can compute again what it trained on. At one party's side all other sites are drawn;
    nobody trained on them, and they stay as they are.

    Raises:
        EvidenceError: coins were opened that nobody committed to.
        UsageError: no client of the run, or not the one whose side it is, has opened its coins.
    """
    canaries, side = case.policy.canaries, case.view.side
    if canaries is None:
        return dict(sites)
    secrets, hidden = secrets_of(case), case.policy.training is not None
    if not set(secrets) & ({side} if side else set(sites)):
        raise UsageError(
            "The coins of canaries were not opened, so nobody can compute again what was trained "
            "on.",
            why="a client opens them when it closes its ledger: the run was killed, or it left it",
            fix="attack a run that ended, or gather the sides of those that are missing",
        )
    found = {name: site for name, site in sites.items() if side and name != side}
    for name in sites.keys() & secrets.keys() - found.keys():
        key, flips = content_key(secrets[name]), coins(secrets[name], canaries.records)
        data = planted(sites[name].data, spec, key, flips, hidden=hidden)
        found[name] = sites[name].on(data)
    return {name: found[name] for name in sites if name in found}


def unopened_of(sites: Collection[str], training: Collection[str]) -> tuple[str, ...]:
    """Return the clients that never opened their canaries' coins: nobody knows what they said.

    Args:
        sites: names of all clients.
        training: names of those of which `training_sites` knows what they trained on.
    """
    return tuple(sorted(set(sites) - set(training)))


def check_opened(sites: Collection[str], training: Collection[str]) -> None:
    """Raise UsageError where what is looked at is of all clients together, and one is missing.

    A cosine, or the sum of all others' answers, can only be held against what everybody said.
    """
    if missing := unopened_of(sites, training):
        raise UsageError(
            "The messages of this run compare or join all clients, and some have not opened "
            f"the coins of their canaries: {', '.join(missing[:8])}.",
            fix="gather the sides of those that are missing, or run again",
        )


def canary_material(
    case: Case,
    config: Config,
    task: Any,
    sites: Mapping[str, Site],
    training: Mapping[str, Site],
    asked: Collection[str],
) -> Canaries | None:
    """Return all canaries of a run; None if it has none.

    Args:
        case: the run, verified.
        config: with the auditor's own paths.
        task: of the run.
        sites: of all clients, without canaries.
        training: as they trained; see `training_sites`.
        asked: names of the Asks to which clients answer with what changes the model.

    Raises:
        UsageError: at one party's side: what its client sent was lost, and only the aggregator's
            ledger shows whether any of it ever counted.
    """
    if (canaries := case.policy.canaries) is None:
        return None
    spec, records, side = task.spec, canaries.records, case.view.side
    hidden = case.policy.training is not None
    secrets = {name: s for name, s in secrets_of(case).items() if name in training}
    made = {
        name: made_up(sites[name].data, spec, content_key(secret), records, hidden=hidden)
        for name, secret in secrets.items()
    }
    every = np.ones(records, dtype=bool)
    whole = {name: with_canaries(sites[name].data, one, every) for name, one in made.items()}
    again = _Asking(config, task, case.plan.seed, training, whole, records)
    return Canaries(
        coins={name: coins(secret, records) for name, secret in secrets.items()},
        features={name: one.x for name, one in made.items()} if spec.task == "node" else {},
        model=again.model,
        confidence=again.confidence,
        alone=again.alone,
        arrived=_arrived(case, asked),
        controls=tuple(sorted(training.keys() - secrets.keys())) if side else (),
        unopened=unopened_of(sites, training),
    )


def _arrived(case: Case, asked: Collection[str]) -> frozenset[str]:
    """Return the clients of which an answer to some of these Asks counted, by the ledgers.

    A client whose updates never arrived is no member of any model: its canaries are as if none had
    trained.
    """
    if side := case.view.side:
        entries = case.ledger_index.entries.get(side, [])
        if any(entry["kind"] == "heads" and entry.get("missing") for entry in entries):
            raise UsageError(
                "Something that this client sent was lost, and here nobody can tell what counted.",
                why="its canaries prove nothing where its updates never arrived",
                fix="only the aggregator's ledger shows it: gather all sides",
            )
        sent = ((s.party, s.step, s.ask) for s in case.ledger_index.releases())
        members = {party for party, step, ask in sent if step is Step.UP and ask in asked}
        return frozenset({side} & members)  # a lot may never have fallen on it
    asks = [ask for ask in case.exchanges.all.values() if ask.name in asked]
    smallest = case.plan.smallest_cohort
    counted = [ask.arrived - {ask.reader} for ask in asks if not ask.lost(smallest)]
    # The aggregator alone says that a round was lost: what it may have opened counts all the same.
    counted += [one - {ask.reader} for ask in asks for one in may_be_opened(case, ask)]
    return frozenset[str]().union(*counted)


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
