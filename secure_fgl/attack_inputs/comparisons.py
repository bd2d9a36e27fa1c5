"""What the attack on cosines is given: captured matrices, the exact ones, and who holds like data.

As `secure_fgl.attack_inputs.materials` for updates: the vectors that were compared are computed
again, and their cosines held against what the aggregator read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithms.tasks import DataSpec, Site
from audits.attacks import Compared, Matrix
from audits.attacks._methods.likeness import unit_rows
from audits.attacks._shared.payloads import payload_of
from audits.evidence.steps import Case
from crypto.homomorphic.similarity import SKETCH_ABOVE
from protocols.disclosures.names import Disclosure
from protocols.disclosures.similarity.disclosure import Compared as Opened
from protocols.errors import EvidenceError
from protocols.forms import Exchange
from protocols.messages import SimilarityMessage
from protocols.plan.steps import Step
from protocols.rounds import Reply
from protocols.sessions.store.recording import Captured
from secure_fgl.attack_inputs.captured_sent import labels_of
from secure_fgl.attack_inputs.mixtures import Replayed, answered
from secure_fgl.data.sources import tu_groups

__all__ = ["compared_material", "compares"]

Array = np.ndarray[Any, np.dtype[np.float64]]

_OFF, _SKETCHED = 2e-3, 5e-2  # how far an opened cosine may be from the exact one


def compares(case: Case) -> bool:
    """Tell whether clients send vectors that are compared."""
    return bool(case.plan.all_of(Disclosure.SIMILARITY, Step.UP))


def compared_material(
    run: Replayed, answers: Mapping[str, Sequence[Captured]], replies: Mapping[int, Reply]
) -> Compared:
    """Return every captured matrix of cosines.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.
        replies: exchange number -> what the aggregator captured of it.

    Raises:
        EvidenceError: a matrix is not that of the vectors, computed again.
    """
    clients = tuple(sorted(run.sites))
    asked = {
        exchange.name: (exchange, kind)
        for exchange in run.form.exchanges
        for kind in exchange.back
        if issubclass(kind, SimilarityMessage)
    }
    by_ask: dict[int, dict[str, Captured]] = {}
    for client in clients:
        for answer in answers.get(client, ()):
            if answer.exchange in asked and answer.number in replies:
                by_ask.setdefault(answer.number, {})[client] = answer
    matrices = [
        _matrix(run, clients, ask, replies[number], *asked[next(iter(ask.values())).exchange])
        for number, ask in sorted(by_ask.items())
    ]
    alike, by = _alike(run, clients)
    name = next(iter(asked))
    item = run.case.plan.find(name, Disclosure.SIMILARITY, Step.UP)
    records = np.array([run.sites[client].count for client in clients], dtype=np.int64)
    payload = payload_of(item, run.case.plan, run.case.policy)
    return Compared(payload, clients, tuple(matrices), alike, by, records)


def _matrix(
    run: Replayed,
    clients: Sequence[str],
    ask: Mapping[str, Captured],
    reply: Reply,
    exchange: Exchange,
    kind: type[SimilarityMessage],
) -> Matrix:
    """Return what one Ask opened, and the same of the vectors as they are."""
    one = next(iter(ask.values()))
    there = sorted(run.case.exchanges.all[one.number].arrived)
    said = {c: answered(run.training[c], ask[c], exchange, kind) for c in there}
    raw = np.asarray(Opened.clear(kind, said, {}), dtype=np.float64)
    seen = np.asarray(reply.similarity(kind), dtype=np.float64)
    (field,) = kind.fields
    found = [np.asarray(getattr(said[c], field.name), dtype=np.float64).ravel() for c in there]
    # What was trained with noise is drawn from the operating system, and nobody computes it again.
    exact = run.case.plan.training is None
    limit = _SKETCHED if found[0].size > SKETCH_ABOVE else _OFF
    if seen.shape != raw.shape or (exact and np.abs(seen - raw).max() > limit):
        raise EvidenceError(
            "captured",
            f"the cosines of {kind.__name__}, computed again, are not what was read; the data, the "
            "configuration or the code are other than in the run",
        )
    places = np.array([clients.index(c) for c in there], dtype=np.int64)
    return Matrix(one.round, places, seen, raw, unit_rows(np.stack(found)))


def _alike(run: Replayed, clients: Sequence[str]) -> tuple[Array | None, str]:
    """Return how alike the clients' data are, (K, K), and by what; None if nobody can say."""
    spec: DataSpec = run.task.spec
    sites = [run.sites[client] for client in clients]
    if run.config.data.name in tu_groups.NAMES:  # sets whose classes mean something else each
        found = np.array([_shape(site, spec) for site in sites])
        spread = found.std(axis=0)
        scaled = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return -_apart(scaled, 2), "size and edges of graphs, and balance of classes"
    counts = [labels_of(site, spec) for site in sites]
    rows = np.array([c for c in counts if c is not None], dtype=np.float64)
    if len(rows) < len(sites) or not rows.sum(axis=1).all():
        return None, "labels"
    return 1.0 - _apart(rows / rows.sum(axis=1, keepdims=True), 1) / 2.0, "overlap of labels"


def _apart(rows: Array, order: int) -> Array:
    found: Array = np.linalg.norm(rows[:, None, :] - rows[None, :, :], ord=order, axis=2)
    return found


def _shape(site: Site, spec: DataSpec) -> list[float]:
    """Return what a public data set of graphs is known by; its graphs may be in any order."""
    data: Any = site.data
    labels = labels_of(site, spec)
    commonest = 0.0 if labels is None else float(labels.max() / max(labels.sum(), 1))
    nodes = float(np.mean(data.sizes))
    return [np.log(nodes), data.edges.shape[1] / (nodes * len(data.sizes)), commonest]
