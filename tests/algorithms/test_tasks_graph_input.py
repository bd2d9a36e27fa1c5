"""Graphs that are broken or do not fit are refused, without a word of what they hold."""

from __future__ import annotations

import numpy as np
import pytest

from algorithms.tasks.inputs import GraphsData
from tests.algorithms.graph_tools import SEVERAL, SPEC, fitted, toy

SENTINEL = 424_242


def broken(several=False, **changes):
    graphs = toy(several)
    for name, change in changes.items():
        setattr(graphs, name, change(getattr(graphs, name).copy()))
    return graphs


def _first(value):
    def change(array):
        array[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("graphs", "match"),
    [
        (broken(edges=lambda e: np.where(e == e.max(), SENTINEL, e)), "outside its graph"),
        (broken(edges=lambda e: np.where(e == 0, -1, e)), "outside its graph"),
        (broken(edges=lambda e: np.append(e, [[0], [20]], axis=1)), "outside its graph"),
        (broken(edges=lambda e: e.T), "shape"),
        (broken(sizes=lambda s: np.append(s, SENTINEL)), "number of nodes"),
        (broken(sizes=lambda s: np.append(s, 0)), "1 or more"),
        (broken(y=lambda y: np.append(y, SENTINEL)), "number of graphs"),
        (broken(val=lambda m: m[1:]), "number of graphs"),
        (broken(train=lambda m: ~m), "overlap"),
        (broken(y=lambda y: y * 0 - 1), "unlabelled"),
        (broken(x=lambda x: x * np.nan), "NaN"),
        (broken(several=True, y=_first(SENTINEL)), "none of 0, 1 and NaN"),
    ],
    ids=[
        "edge far",
        "edge below",
        "edge across",
        "edges turned",
        "sizes more",
        "size zero",
        "labels more",
        "mask short",
        "overlap",
        "unlabelled",
        "nan",
        "label",
    ],
)
def test_broken_graphs_are_refused_without_a_word_of_their_content(graphs, match):
    with pytest.raises(ValueError, match=match) as refused:
        GraphsData.from_graphs(graphs)
    assert str(SENTINEL) not in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "graphs", "match"),
    [
        (SPEC, broken(y=_first(SENTINEL)), "label outside"),
        (SPEC, toy(several=True), "another kind"),
        (SEVERAL, toy(), "another kind"),
        (SEVERAL, broken(several=True, y=lambda y: y[:, :1]), "label outside"),
        (SPEC, broken(x=lambda x: x[:, :3]), "feature columns"),
    ],
    ids=["class", "several for one", "one for several", "columns", "features"],
)
def test_what_does_not_fit_the_model_is_refused_mutely(spec, graphs, match):
    with pytest.raises(ValueError, match=match) as refused:
        fitted(spec, graphs=graphs)
    assert str(SENTINEL) not in str(refused.value)


@pytest.mark.parametrize("dense", [False, True])
def test_graphs_data_is_a_copy_with_a_mute_representation(dense):
    graphs = toy(dense=dense)
    data = GraphsData.from_graphs(graphs)
    (graphs.x if dense else graphs.x.data)[:] = 7
    graphs.y[:] = 0
    graphs.sizes[:] = 1
    assert data.x.max() <= 1
    assert data.y.max() == 1
    assert data.sizes.sum() > 120
    assert (data.count, data.graphs, data.features) == (graphs.train.sum(), 120, 4)
    assert repr(data) == "<GraphsData>"
