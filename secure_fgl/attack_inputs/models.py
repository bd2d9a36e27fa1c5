"""What the attacks on released models are given: records, canaries, models to train."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from algorithms.nn._shared.ratings import Bipartite
from algorithms.tasks import ClientModel, DataSpec, Predictions, Site, predictions
from audits.attacks import Canaries, Candidates, Released
from audits.checks.canaries import secrets_of
from audits.evidence.openable import may_be_opened
from audits.evidence.steps import Case
from audits.evidence.taken_models import taken_models
from protocols.errors import SecureFglError
from protocols.evidence.captures import coins, content_key
from protocols.plan.steps import Step
from secure_fgl.attack_inputs.captured_sent import rows_of
from secure_fgl.config import Config
from secure_fgl.data.canaries import made_up, planted, with_canaries
from secure_fgl.errors import UsageError
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.run.model_digest import npz_digest
from secure_fgl.store.finished_run import Run

# --- A client's records, one by one, as the attack on released models asks about them ---

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LEAST = 1e-30  # of a probability, so that its logarithm is finite


@dataclass(frozen=True, repr=False)
class Asked:
    """Records of one client of which it is asked whether they trained.

    Attributes:
        data: the client's, as the task takes it.
        spec: of the data.
        numbers: (N,), their numbers at the site, ascending: training and held-out records.
        candidates: what an attack is told of them.
    """

    data: Any
    spec: DataSpec
    numbers: npt.NDArray[np.int64]
    candidates: Candidates

    def training_on(self, marked: Bools) -> Any:
        """Return the client's data with the marked of these records, (N,), to train on."""
        train = np.zeros(len(self.data.train), dtype=bool)
        train[self.numbers[marked]] = True
        return training_on(self.data, self.spec, train)

    def without(self, kept: Bools) -> Asked:
        """Return only some of these records."""
        one = self.candidates
        cut = Candidates(one.members[kept], one.known[:, kept], one.marks[kept])
        return replace(self, numbers=self.numbers[kept], candidates=cut)

    def confidence(self, predictions: Predictions) -> Array:
        """Return how sure predictions for all of the site's records are of the truth, (N,)."""
        p = np.asarray(predictions, dtype=np.float64)[self.numbers]
        if self.spec.task == "rating":
            off: Array = np.abs(p[:, 0] - self.data.rating.numpy()[self.numbers])
            return -off
        y = self.data.y.numpy()[self.numbers]
        if y.ndim > 1:  # a yes-or-no question a column, some without an answer
            p = np.clip(p, 1e-7, 1.0 - 1e-7)
            odds = np.log(p) - np.log1p(-p)
            found: Array = np.nanmean(
                np.where(np.isnan(y), np.nan, np.where(y > 0, odds, -odds)), 1
            )
            return found
        own = np.arange(p.shape[1]) == y[:, None]
        right, wrong = (np.where(side, p, 0.0).sum(axis=1) for side in (own, ~own))
        logit: Array = np.log(np.maximum(right, _LEAST)) - np.log(np.maximum(wrong, _LEAST))
        return logit


def training_on(data: Any, spec: DataSpec, train: Bools) -> Any:
    """Return a client's data with other records to train on; none is held out."""
    none = torch.zeros(len(train), dtype=torch.bool)
    roles: dict[str, Any] = {"train": torch.from_numpy(train), "val": none, "test": none}
    if spec.task == "node":
        roles["kept"] = {}
    if spec.task == "rating":
        pairs = torch.stack([data.user, data.item])[:, roles["train"]]
        sizes = len(data.users), len(data.items)
        roles["graph"] = Bipartite(pairs, *sizes, data.rating[roles["train"]])
    return replace(data, **roles)


def asked_of(data: Any, spec: DataSpec) -> Asked:
    """Return the records of a client that trained, and those that it held out with an answer.

    Args:
        data: of a site.
        spec: of the data.
    """
    train = data.train.numpy()
    there = train | data.val.numpy() | data.test.numpy()
    if spec.multilabel:
        there = there & ~np.isnan(data.y.numpy()).all(axis=1)
    numbers = np.flatnonzero(there)
    look = {"node": _nodes, "graph": _graphs, "rating": _ratings}[spec.task]
    known, marks = look(data, numbers)
    return Asked(data, spec, numbers, Candidates(train[numbers], np.stack(known), marks))


Known = tuple[list[Array], npt.NDArray[np.bytes_]]


def _nodes(data: Any, numbers: Any) -> Known:
    """Degree, share of the class and closeness to the mean; marked by features and label."""
    chosen = np.zeros(data.nodes, dtype=bool)
    chosen[numbers] = True
    x, y = rows_of(data.x, chosen), data.y.numpy()[numbers]
    degree = np.bincount(data.edges.numpy().ravel(), minlength=data.nodes)[numbers]
    marks = _marks(row.tobytes() + label.tobytes() for row, label in zip(x, y, strict=True))
    return [degree.astype(np.float64), _share(y), _near(x)], marks


def _graphs(data: Any, numbers: Any) -> Known:
    """Nodes, edges, share of the class and closeness to the mean; marked by all of a graph."""
    sizes, edges = data.sizes, data.edges.numpy()
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x: Any = data.x if sp.issparse(data.x) else sp.csr_array(data.x.numpy())
    member = sp.csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))))
    means = np.asarray((member @ x).todense())[numbers] / sizes[numbers, None]
    count = np.bincount(owner[edges[0]], minlength=len(sizes))[numbers]
    y, starts = data.y.numpy(), np.cumsum(sizes) - sizes
    order = np.argsort(owner[edges[0]], kind="stable")
    ends = np.searchsorted(owner[edges[0]][order], np.arange(len(sizes) + 1))

    def whole(number: int) -> bytes:
        first = starts[number]
        rows: bytes = x[first : first + sizes[number]].toarray().tobytes()
        own = edges[:, order[ends[number] : ends[number + 1]]] - first
        ends_of, label = bytes(own.tobytes()), bytes(y[number].tobytes())
        return rows + ends_of + label

    known = [sizes[numbers].astype(np.float64), count.astype(np.float64)]
    known += [_near(means)] + ([_share(y[numbers])] if y.ndim == 1 else [])
    return known, _marks(map(whole, numbers))


def _ratings(data: Any, numbers: Any) -> Known:
    """How many ratings user and item have, share of the value and closeness to the mean."""
    user, item = data.user.numpy()[numbers], data.item.numpy()[numbers]
    rating = data.rating.numpy()[numbers].astype(np.float64)
    known = [_often(user), _often(item), _share(rating), -np.abs(rating - _middle(rating))]
    pairs = zip(data.users[user].tolist(), data.items[item].tolist(), strict=True)
    return known, _marks(f"{one} {other}".encode() for one, other in pairs)


def _often(values: Any) -> Array:
    """Return of each value how many there are."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    found: Array = count[place].astype(np.float64)
    return found


def _share(values: Any) -> Array:
    return _often(values) / max(len(values), 1)


def _near(rows: Any) -> Array:
    found: Array = -np.linalg.norm(rows - _middle(rows), axis=1).astype(np.float64)
    return found


def _middle(rows: Any) -> Any:
    """Return the mean of rows; zero where there are none, as at a site below the floor."""
    return rows.sum(axis=0) / max(len(rows), 1)


def _marks(records: Any) -> npt.NDArray[np.bytes_]:
    return np.array([hashlib.sha256(one).hexdigest().encode() for one in records], dtype="S64")


# --- What the attack on released models is given: the run's models, and a way to train more ---
#
# The shared models are those of the checkpoints that the ledgers name; a client's own opens where
# its key is. Models for comparison are trained by the run's task, rounds and epochs from its public
# start, each client by steps along its own records' loss, and the mean by numbers of records. All
# models are asked on the site's own graph, without what others told it of their nodes (FedGCN's
# rows): that is in nobody's records.

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


# --- What attack A11 is given: the canaries of a run, made again from the secrets that were opened
# ---


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
