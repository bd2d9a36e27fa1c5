"""Whether a run stood at the score of a model that always answers the commonest class.

The simulator sees it, as it holds all labels; nobody else could. It is no message of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from algorithms.tasks import Predictions, Site, Task, Weights, predictions
from algorithms.tasks.evaluation import kept_model, total
from algorithms.tasks.scores import mean_reference
from protocols.forms import Algorithm
from protocols.messages import Message
from secure_fgl.config import OWN, Config
from secure_fgl.data import Dataset, Masks, Ratings, induce
from secure_fgl.data.kinds import site_data
from secure_fgl.run.naming import learning_seed

if TYPE_CHECKING:
    from algorithms.tasks.inputs import NodeData

LONG = 10
"""Rounds, one after the other, from which on a run is said to have stood."""

NEAR = 0.015
"""How near a score is to a share, per share of the other classes.

Where one class is rare, every model's accuracy is within a hundredth of the commonest one's share;
only one that gives all records that class is as near as this.
"""


def commonest(sites: Sequence[Site], records: str = "val") -> float | None:
    """Return the share of the commonest class among all sites' records of a split.

    None where records have no classes (ratings, several questions a graph), or there are none.

    Args:
        sites: all of them.
        records: the name of their mask, ``val`` or ``test``.
    """
    found = []
    for site in sites:
        y, mask = getattr(site.data, "y", None), getattr(site.data, records, None)
        if y is None or mask is None or y.ndim != 1 or y.dtype.is_floating_point:
            return None
        found.append(y[mask].numpy())
    labels = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    return float(np.bincount(labels).max() / len(labels)) if len(labels) else None


def stood(
    after: Sequence[int], scores: Sequence[Mapping[str, Any]], share: float | None
) -> dict[str, Any] | None:
    """Return the longest stretch of rounds whose validation accuracy is near a share.

    Args:
        after: per score, after how many rounds it was taken.
        scores: the metrics.
        share: of the commonest class; None: there is none.

    Returns:
        ``first`` and ``last`` round, and ``share``; None for no stretch of `LONG` rounds.
    """
    best: list[int] = []
    now: list[int] = []
    if share is None:
        return None
    for number, metrics in zip(after, scores, strict=True):
        score = metrics.get("val_accuracy")
        near = score is not None and abs(score - share) <= NEAR * (1.0 - share)
        now = [*now, number] if near else []
        best = max(best, now, key=len)
    if len(best) < LONG:
        return None
    return {"first": best[0], "last": best[-1], "share": round(share, 4)}


# --- References found outside the federation, in the simulator only: local-only, centralised, …
# ---
#
# They say what federation is worth. A real federation cannot compute those that need all data: the
# centralised model, and the clients' models on the whole graph.
#
# For others nothing leaves a site. Where nodes are classified these are, beside each site's own
# model: ``propagation``, the site's labels alone, run along its own edges; ``local_propagation``,
# its own model's predictions run along them; ``logistic`` and ``boosted``, scikit-learn's logistic
# regression and gradient-boosted trees on the features alone. Each site chooses their settings by
# its own validation nodes; their test nodes are pooled as the federation's are.

Metrics = dict[str, float | None]

PMF: dict[str, Any] = {
    "hidden": 16, "lr": 0.01, "weight_decay": 0.5, "optimiser": "adamw", "batch": 4096,
}  # fmt: skip
PMF_ROUNDS = 20
"""Settings of the reference `pmf`, and passes over all ratings; the best on validation counts."""
RESTARTS = (0.1, 0.02, 0.05, 0.2, 0.5, 0.8)
"""Shares of each step that return to the seeds. Of equals on validation the first counts."""
STEPS = 50  # 0.98^50 is 0.36, and what is added later is spread over the component alike
INVERSE_PENALTIES = (1.0, 0.01, 0.1, 10.0)
TREES = 100
SMALLEST_LEAVES = (20, 5)
"""Settings of `boosted`: at most so many rounds of boosting, records in a leaf."""


class Bystander:
    """What only a simulator can look at, since it holds all data.

    Args:
        task: what is learnt.
        sites: the clients' sites after the run.
        whole: the whole data set with its split; None where nobody holds it.
        config: rounds, epochs, seed, and which references are wanted.
    """

    def __init__(
        self,
        task: Task,
        sites: Sequence[Site],
        whole: tuple[Dataset, Masks] | None,
        config: Config,
    ) -> None:
        self._task, self._sites, self._whole, self._config = task, sites, whole, config
        self.not_computed: dict[str, str] = {}
        """Wanted references without a value, and why; filled by `references`."""

    def references(self) -> dict[str, float | None]:
        """Return the headline metric of each reference that is wanted.

        None for one whose training diverged, or that nobody could train or look up: the federated
        result stands without it.
        """
        found: dict[str, float | None] = {}
        for name in self._config.evaluation.references:
            why = "not there"
            try:
                found[name] = self._reference(name)
            except ArithmeticError:
                found[name], why = None, "diverged"
            except ImportError:
                found[name], why = None, "scikit-learn"
            if found[name] is None:
                apart = self._config.data.name == OWN and self._whole is None
                self.not_computed[name] = "own tables" if apart and name in _OF_ALL else why
        return found

    def _reference(self, name: str) -> float | None:
        if name == "local_propagation" or name in _ON_RECORDS:
            return self._at_sites(name)
        if name == "local":
            return self._alone.metrics[self._headline]
        if self._whole is None:
            return None
        if name == "mean":
            return self._mean()
        if name == "pmf":
            return self._pmf()
        if name == "whole_graph":
            return self._on_the_whole_graph()
        return self._trained([self._centre()]).metrics[self._headline]

    def _trained(self, sites: Sequence[Site]) -> Trained:
        chosen = self._config.algorithm
        start = self._task.initial(np.random.default_rng(self._seed("reference")))
        return best_metrics(self._task, sites, start, rounds=chosen.rounds, epochs=chosen.epochs)

    @cached_property
    def _alone(self) -> Trained:
        return self._trained(self._fresh())

    def _at_sites(self, name: str) -> float | None:
        """Return a reference of nodes that each site computes from what it holds, and sends none.

        Raises:
            ImportError: scikit-learn is not installed.
        """
        if self._task.spec.task != "node":
            return None
        classes, scores = self._task.spec.classes, []
        for place, site in enumerate(self._sites):
            if (makes := _ON_RECORDS.get(name)) is not None:
                tried = makes(site.data, classes)
            else:
                tried = _corrected(site.data, self._alone.outputs[place])
            counts = [self._task.score(found, site) for found in tried]
            scores.append(max(counts, key=self._merit))  # of equals the first
        return self._task.scoring.read(total(scores))[self._headline]

    def _merit(self, counts: Any) -> float:
        """Return how good a score is; a site without a validation record has none to go by."""
        merit = self._task.scoring.merit(counts)
        return -np.inf if merit is None else merit

    def test_records(self) -> int | None:
        """Return how many test records all sites hold together; None where they have no masks."""
        masks = [getattr(site.data, "test", None) for site in self._sites]
        known = [mask for mask in masks if mask is not None]
        return sum(int(mask.sum()) for mask in known) if len(known) == len(masks) else None

    def test_commonest(self) -> float | None:
        """Return the share of the commonest class among all sites' test records."""
        share = commonest(self._sites, "test")
        return None if share is None else round(share, 4)

    def _mean(self) -> float | None:
        """Return the error of predicting the mean of all training ratings."""
        if self._whole is None:
            return None
        ratings, masks = self._whole
        if not isinstance(ratings, Ratings):
            return None  # only ratings have a mean
        mae, rmse = mean_reference(ratings.rating[masks.train], ratings.rating[masks.test])
        return rmse if self._headline == "test_rmse" else mae

    @property
    def _headline(self) -> str:
        return self._task.scoring.names[0]

    def _on_the_whole_graph(self) -> float | None:
        """Return how well the clients' models do where no edge is missing, on average.

        Each is the model that its client keeps: where all share one, it is that one.
        """
        kept = [found[0] for site in self._sites if (found := kept_model(site)) is not None]
        if self._task.spec.task != "node" or not kept:
            return None
        centre, scoring = self._centre(), self._task.scoring
        scores = [self._task.score(predictions(self._task, m, centre), centre) for m in kept]
        read = [scoring.read(score)[self._headline] for score in scores]
        known = [value for value in read if value is not None]
        return float(np.mean(known)) if known else None

    def _pmf(self) -> float | None:
        """Return the error of biased matrix factorisation trained on everybody's ratings.

        Salakhutdinov and Mnih (NIPS 2007) with biases; width and decay by validation on ML-100K.
        """
        if self._whole is None or self._task.spec.task != "rating":
            return None
        from algorithms.tasks.rating import RatingTask

        task = RatingTask(self._task.spec, model="dot", **PMF)
        start = task.initial(np.random.default_rng(self._seed("reference")))
        found = best_metrics(task, [self._centre()], start, rounds=PMF_ROUNDS, epochs=1)
        return found.metrics[self._headline]

    def stood(
        self, after: Sequence[int], metrics: Callable[[int], Metrics]
    ) -> dict[str, Any] | None:
        """Return where the run stood at the share of the commonest class; see `run.standing`."""
        return stood(after, list(map(metrics, range(len(after)))), commonest(self._sites))

    def look(self, algorithm: Algorithm[Any], state: Message) -> float | None:
        """Return the headline metric of a released model that no client was asked to score."""
        scoring = self._task.scoring
        task = self._task
        scores = [
            task.score(predictions(task, algorithm.model(site, state), site), site)
            for site in self._sites
        ]
        return scoring.read(total(scores))[self._headline]

    def _seed(self, *labels: str) -> int:
        return learning_seed(self._config.seed, *labels)

    def _fresh(self) -> list[Site]:
        return [
            Site(site.data, seed=self._seed("local", str(i))) for i, site in enumerate(self._sites)
        ]

    def _centre(self) -> Site:
        if self._whole is None:
            raise ValueError("nobody holds all of this data")
        whole, masks = self._whole
        part = induce(whole, np.arange(whole.records), masks)
        return Site(site_data(part, self._task.spec), seed=self._seed("centralised"))


class Trained(NamedTuple):
    """Sites that trained alone.

    Attributes:
        metrics: pooled, at the round that is best on all validation records.
        outputs: each site's predictions at the round that is best on its own.
    """

    metrics: Metrics
    outputs: list[Predictions]


def best_metrics(
    task: Task, sites: Sequence[Site], start: Weights, *, rounds: int, epochs: int
) -> Trained:
    """Train each site alone and return how good the models of the best rounds are.

    Args:
        task: what is learnt.
        sites: one site (centralised) or one per client (local-only).
        start: common starting weights.
        rounds: number of evaluations.
        epochs: epochs between two evaluations.
    """
    weights = [start for _ in sites]
    best: float | None = None
    found = dict[str, float | None]()
    own: list[float | None] = [None for _ in sites]
    outputs: list[Predictions] = [np.zeros((0, 0), np.float32) for _ in sites]
    for _ in range(rounds):
        weights = [task.fit(w, s, epochs=epochs) for w, s in zip(weights, sites, strict=True)]
        tried = [task.predict(w, s) for w, s in zip(weights, sites, strict=True)]
        scores = [task.score(p, s) for p, s in zip(tried, sites, strict=True)]
        pooled = total(scores)
        merit = task.scoring.merit(pooled)
        if best is None or (merit is not None and merit > best):  # without merits the last one
            best, found = merit, task.scoring.read(pooled)
        for place, score in enumerate(scores):
            mine, before = task.scoring.merit(score), own[place]
            if before is None or (mine is not None and mine >= before):
                own[place], outputs[place] = mine, tried[place]
    return Trained(found, outputs)


def propagated(
    edges: npt.NDArray[np.int64], seeds: npt.NDArray[np.float64], restart: float
) -> npt.NDArray[np.float64]:
    """Return what seeds become along edges, float64 (N, C).

    F <- (1 - restart) D^-1/2 A D^-1/2 F + restart * seeds, `STEPS` times from the seeds on: label
    propagation of Zhou et al. (NIPS 2003), a personalised PageRank of each class.

    Args:
        edges: int64 (2, M), each undirected pair once.
        seeds: float64 (N, C), for example a 1 for each labelled node in the column of its class.
        restart: in (0, 1]; 1 leaves the seeds as they are.
    """
    import scipy.sparse as sp

    nodes = len(seeds)
    ends = (np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))
    links = sp.csr_array((np.ones(len(ends[0])), ends), shape=(nodes, nodes))
    scale = sp.diags_array(1.0 / np.sqrt(np.maximum(links.sum(axis=1), 1.0)))
    step = sp.csr_array(scale @ links @ scale)
    found = seeds
    for _ in range(STEPS):
        found = (1.0 - restart) * (step @ found) + restart * seeds
    return found


def _labels(data: NodeData, classes: int) -> npt.NDArray[np.float64]:
    """Return a 1 for each node whose label its site may learn from, (N, C)."""
    nodes = np.flatnonzero((data.train | data.tune).numpy())
    seeds = np.zeros((data.nodes, classes))
    seeds[nodes, data.y.numpy()[nodes]] = 1.0
    return seeds


def _along(data: NodeData, classes: int) -> Iterator[Predictions]:
    """Yield predictions from labels alone; the commonest class where no label reaches."""
    seeds = _labels(data, classes)
    for restart in RESTARTS:
        found = propagated(data.edges.numpy(), seeds, restart)
        unreached = found.sum(axis=1) == 0
        found[unreached] = seeds.sum(axis=0)
        yield found.astype(np.float32)


def _corrected(data: NodeData, outputs: Predictions) -> Iterator[Predictions]:
    """Yield a model's predictions, known labels in their place, run along edges, and as they are.

    The second half of "correct and smooth" (Huang et al., ICLR 2021).
    """
    labels = _labels(data, outputs.shape[1])
    seeds = np.where(labels.any(axis=1, keepdims=True), labels, outputs)
    for restart in RESTARTS:
        yield propagated(data.edges.numpy(), seeds, restart).astype(np.float32)
    yield outputs


def _tabular(data: NodeData) -> tuple[Any, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the features, (N, F), dense or CSR, and the training nodes with their labels."""
    import scipy.sparse as sp

    from algorithms.nn._shared.sparse import Sparse

    nodes = np.flatnonzero((data.train | data.tune).numpy())
    if not isinstance(data.x, Sparse):
        return data.x.numpy(), nodes, data.y.numpy()[nodes]
    m = data.x.matrix
    parts = (m.values().numpy(), m.col_indices().numpy(), m.crow_indices().numpy())
    return sp.csr_array(parts, shape=(data.nodes, data.features)), nodes, data.y.numpy()[nodes]


def _spread(found: Any, labels: Any, classes: int) -> Predictions:
    """Return probabilities of the labels that a model knows as one column a class."""
    whole = np.zeros((len(found), classes), np.float32)
    whole[:, labels] = found
    return whole


def _one_answer(data: NodeData, classes: int) -> Predictions:
    """Return what a site can say that knows one class at most: that class."""
    return np.tile(_labels(data, classes).sum(axis=0).astype(np.float32), (data.nodes, 1))


def _logistic(data: NodeData, classes: int) -> Iterator[Predictions]:
    """Yield predictions of logistic regression on scaled features, one for each penalty."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x, nodes, y = _tabular(data)
    if len(np.unique(y)) < 2:
        yield _one_answer(data, classes)
        return
    scaler = StandardScaler(with_mean=isinstance(x, np.ndarray)).fit(x[nodes])
    scaled = scaler.transform(x)
    for inverse in INVERSE_PENALTIES:
        with warnings.catch_warnings():  # one that is not done after 500 steps may still be chosen
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(C=inverse, max_iter=500).fit(scaled[nodes], y)
        yield _spread(model.predict_proba(scaled), model.classes_, classes)


def _boosted(data: NodeData, classes: int) -> Iterator[Predictions]:
    """Yield predictions of boosted trees after every tenth round of boosting, the last first."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, nodes, y = _tabular(data)
    for leaf in SMALLEST_LEAVES:
        # With fewer entries than a leaf holds no split can part a column; of words these are most.
        told = np.flatnonzero((x[nodes] != 0).sum(axis=0) >= leaf)
        if len(np.unique(y)) < 2 or not len(told):
            yield _one_answer(data, classes)
            continue
        seen = x[:, told] if isinstance(x, np.ndarray) else x[:, told].toarray()
        model = HistGradientBoostingClassifier(
            max_iter=TREES, min_samples_leaf=leaf, early_stopping=False, random_state=0
        ).fit(seen[nodes], y)
        after = list(islice(model.staged_predict_proba(seen), 9, None, 10))
        for found in reversed(after):
            yield _spread(found, model.classes_, classes)


_OF_ALL = ("centralised", "mean", "pmf", "whole_graph")
"""References that need all data in one place."""

_ON_RECORDS: dict[str, Callable[[NodeData, int], Iterator[Predictions]]] = {
    "propagation": _along,
    "logistic": _logistic,
    "boosted": _boosted,
}
"""What a site predicts by its records alone, once for each setting among which it chooses."""
