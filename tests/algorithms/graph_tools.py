"""Toy graphs for the tests of graph tasks."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from algorithms import nn
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData

SPEC = DataSpec("graph", features=4, classes=2, records=128, clients=3, synthetic=True, name="toy")
SEVERAL = dataclasses.replace(SPEC, multilabel=True)
BOTH = pytest.mark.parametrize("spec", [SPEC, SEVERAL], ids=["one", "several"])
MODELS = nn.model_names("graph")


def toy(several=False, *, seed=0, count=120, dense=False):
    """Rings and stars, which is the class; and as a second label, which kind of node prevails."""
    rng = np.random.default_rng(seed)
    sizes, ring, many = rng.integers(5, 12, size=count), *(rng.random((2, count)) < 0.5)
    pairs, start = [], 0
    for size, closed in zip(sizes, ring, strict=True):
        rest = range(start + 1, start + size)
        pairs += [(k - 1 if closed else start, k) for k in rest]
        pairs += [(start, start + size - 1)] * int(closed)
        start += size
    owner = np.repeat(np.arange(count), sizes)
    kinds = np.where(rng.random(start) < 0.1 + 0.5 * many[owner], 0, rng.integers(1, 4, size=start))
    x = sp.csr_array(np.eye(4, dtype=np.float32)[kinds])
    y = ring.astype(np.int64)
    if several:
        y = np.stack([ring, many], axis=1).astype(np.float32)
        y[rng.random(y.shape) < 0.2] = np.nan
    role = rng.random(count)
    return SimpleNamespace(
        sizes=sizes,
        edges=np.array(pairs, dtype=np.int64).T,
        x=x.toarray() if dense else x,
        y=y,
        train=role < 0.5,
        val=(role >= 0.5) & (role < 0.7),
        test=role >= 0.7,
    )


def toy_of(spec, **options):
    return toy(spec.multilabel, **options)


def site_of(graphs, seed=1):
    return Site(GraphsData.from_graphs(graphs), seed=seed)


def start_of(task):
    return task.initial(np.random.default_rng(0))


def fitted(spec=SPEC, *, seed=1, epochs=3, graphs=None, **options):
    task = GraphTask(spec, **{"hidden": 8, "batch": 16, **options})
    return task.fit(start_of(task), site_of(graphs or toy_of(spec), seed), epochs=epochs)
