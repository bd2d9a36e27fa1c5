"""What the attack on released models is given: the run's models, and a way to train more.

The shared models are those of the checkpoints that the ledgers name; a client's own opens where its
key is. Models for comparison are trained by the run's task, rounds and epochs from its public
start, each client by steps along its own records' loss, and the mean by numbers of records.
All models are asked on the site's own graph, without what others told it of their nodes (FedGCN's
rows): that is in nobody's records.
"""

from __future__ import annotations

import contextlib
import hmac
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from algorithms.tasks import ClientModel, Site, predictions
from audits.attacks import Released
from audits.evidence.steps import Case
from audits.evidence.taken_models import taken_models
from protocols.errors import SecureFglError
from secure_fgl.attack_inputs.again.records import Asked, asked_of
from secure_fgl.config import Config
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.run.model_digest import npz_digest
from secure_fgl.store.finished_run import Run

__all__ = ["released_models"]

Array = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_NOT_WHOLE = "what the clients share is not a whole model; each keeps the rest for itself"
_CLUSTERS = "clusters of clients have models of their own, looked at as each client's"
_NONE = "no model is handed out to all clients of this run"


def released_models(
    run: Run, case: Case, config: Config, task: Any, sites: Mapping[str, Site]
) -> Released:
    """Return the models that a run handed out, and its code and data once more.

    Args:
        run: its folder.
        case: the run, verified.
        config: with the auditor's own paths.
        task: of the run.
        sites: of all clients.
    """
    asked = _apart({name: asked_of(site.data, task.spec) for name, site in sites.items()})
    again = _Again(config, task, case.plan.seed, asked)
    shared, unshared = _shared(run, case, task.size)
    own, unkept = _own(run, sites, shared)
    return Released(
        task=task.spec.task,
        candidates={name: one.candidates for name, one in asked.items()},
        shared=shared,
        own=own,
        untaken=frozenset(shared) - _taken(case, shared),
        unshared=unshared,
        unkept=unkept,
        train=again.train,
        confidence=again.confidence,
    )


def _apart(asked: Mapping[str, Asked]) -> dict[str, Asked]:
    """Leave out what is called held out at one client and trained at another, or at the same."""
    trained = np.concatenate([a.candidates.marks[a.candidates.members] for a in asked.values()])
    marks = [one.candidates.marks for one in asked.values()]
    # Sought at once: a search for each of a thousand clients sorts all trained ones anew.
    again = np.isin(np.concatenate(marks), trained)
    parts = np.split(again, np.cumsum([len(mine) for mine in marks])[:-1])
    return {
        name: one.without(one.candidates.members | ~mine)
        for (name, one), mine in zip(asked.items(), parts, strict=True)
    }


def _shared(run: Run, case: Case, size: int) -> tuple[dict[str, object], str]:
    """Return the shared models by name, or why there is none."""
    found: dict[str, object] = {}
    why = _NONE
    for name in ("final", "best"):
        content = run.folder.read(f"checkpoints/{name}.npz")
        if not content or not hmac.compare_digest(
            npz_digest(content), case.view.weights.get(name, "")
        ):
            continue
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            weights = file["weights"] if "weights" in file.files else None
            why = _CLUSTERS if any(n.startswith("cluster_") for n in file.files) else _NOT_WHOLE
        if weights is not None and weights.shape == (size,):
            found[name] = ClientModel((np.asarray(weights, dtype=np.float32),))
    if len(found) == 2 and _same(found["final"], found["best"]):
        return {"final and best": found["final"]}, ""
    return found, "" if found else why


def _taken(case: Case, shared: Mapping[str, object]) -> set[str]:
    """Return which of these models, by the digests of their files, clients took."""
    taken = taken_models(case)
    return {name for name in shared if case.view.weights.get(name.split(" ")[0], "") in taken}


def _same(one: Any, other: Any) -> bool:
    return one.own is None and np.array_equal(one.shared, other.shared)


def _own(
    run: Run, sites: Mapping[str, Site], shared: Mapping[str, object]
) -> tuple[dict[str, object], str]:
    """Return the clients' own models that open here and are not the shared one; why some do not.

    Nobody may choose whose model is looked at by taking keys away.
    """
    models, found = run.client_models, dict[str, object]()
    checkpoint = run.checkpoint()[1]
    opened = set[str]()
    for name in sorted(set(models.openable()) & set(sites)):
        with contextlib.suppress(SecureFglError):
            model = models.open(name, checkpoint).model
            opened.add(name)
            if not any(_same(model, one) for one in shared.values()):
                found[name] = model
    if opened:
        locked = len(set(models.clients()) & set(sites) - opened)
        return found, f"{locked} clients' own models do not open here" if locked else ""
    return {}, "no client's own model opens here: none was kept, or its key is at its site only"


@dataclass(frozen=True, repr=False)
class _Again:
    """Trains models for comparison, and asks models about records."""

    config: Config
    task: Any
    seed: int
    asked: Mapping[str, Asked]

    def train(self, parts: Mapping[str, Bools], seed: int) -> object:
        """Return a model; see `audits.attacks.Released`."""
        chosen = self.config.algorithm
        sites = [
            Site(self.asked[name].training_on(part), seed=seed) for name, part in parts.items()
        ]
        counts = np.array([site.count for site in sites], dtype=np.float64)
        weights = self.task.initial(np.random.default_rng(self.seed))
        with one_thread_and_deterministic():
            for _ in range(chosen.rounds):
                fitted = [self.task.fit(weights, site, epochs=chosen.epochs) for site in sites]
                mean = sum(n * one for n, one in zip(counts, fitted, strict=True))
                weights = (mean / max(counts.sum(), 1.0)).astype(np.float32)
        return ClientModel((weights,))

    def confidence(self, model: object, client: str) -> Array:
        """Return how sure a model is of the truth; see `audits.attacks.Released`.

        All candidates stand in the graph that ratings are predicted from, so that it tells nothing
        of which of them trained.
        """
        asked = self.asked[client]
        site = Site(asked.training_on(np.ones(len(asked.numbers), dtype=bool)), seed=0)
        with one_thread_and_deterministic():
            return asked.confidence(predictions(self.task, cast(ClientModel, model), site))
