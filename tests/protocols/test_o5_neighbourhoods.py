"""O5 without an aggregator: no combination of what receivers read rests on too few others."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from protocols.errors import NotInPlan, PolicyError
from protocols.neighbourhoods import (
    Thinnest,
    Topology,
    Weights,
    connected,
    edges_of,
    metropolis,
    thinnest,
)
from protocols.plan.cohorts import TopologyPlan
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.toys import changed_policy, names_of
from tests.protocols.wire import World
from tests.toys.neighbours import neighbours


def matrix(weights: Weights) -> np.ndarray:
    """Return W as integers over one denominator, (K, K)."""
    found = np.diag(weights.own)
    for i, row in enumerate(weights.rows):
        for j, share in row.items():
            found[i, j] = share
    return found


def graph(kind: str, count: int, degree: int = 0) -> Weights:
    return metropolis(edges_of(Topology(kind, degree), count), count)


def drawn(rng: np.random.Generator, count: int, chance: float) -> Weights | None:
    """Return the weights of a random graph; None if it falls into pieces."""
    pairs = combinations(range(count), 2)
    edges = tuple(pair for pair in pairs if rng.random() < chance)
    return metropolis(edges, count) if connected(edges, count) else None


@pytest.mark.parametrize("seed", range(20))
def test_mixing_matrices_are_doubly_stochastic_and_symmetric(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = [drawn(rng, 9, 0.4), graph("ring", 9), graph("regular", 8, 3), graph("complete", 5)]
    for weights in (one for one in found if one is not None):
        table = matrix(weights)
        assert (table >= 0).all() and (table == table.T).all()
        assert (table.sum(axis=0) == weights.whole).all()
        assert (np.diag(table) > 0).all()


def test_a_ring_of_three_and_the_complete_graph_are_the_full_mean() -> None:
    assert (matrix(graph("ring", 3)) == 1).all() and graph("ring", 3).whole == 3
    assert (matrix(graph("complete", 7)) == 1).all() and graph("complete", 7).whole == 7


@pytest.mark.parametrize(
    ("topology", "count", "text"),
    [
        (Topology("regular", 3), 9, "even"),
        (Topology("regular", 9), 9, "degree"),
        (Topology("ring"), 2, "three"),
        (Topology("edges", edges=((0, 1), (2, 3))), 4, "pieces"),
        (Topology("edges", edges=((0, 1), (1, 0), (1, 2))), 3, "twice"),
        (Topology("edges", edges=((0, 1), (1, 5))), 3, "place"),
    ],
)
def test_what_is_no_graph_is_refused(topology: Topology, count: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        edges_of(topology, count)


# --- the floor ----------------------------------------------------------------------------------


def oracle(weights: Weights, together: int) -> int:
    """Return the fewest others by brute force: every set of them that could be all that is left.

    A combination that is not nothing, be it modulo some number, rests on others within S alone just
    if whole multiples of the other columns do not make those of S: if striking these takes rank
    away, or makes the lattice coarser.
    """
    table, count = matrix(weights), len(weights.rows)
    np.fill_diagonal(table, 0)
    best = count
    for size in range(1, together + 1):
        for receivers in combinations(range(count), size):
            others = [place for place in range(count) if place not in receivers]
            rows = table[np.ix_(receivers, others)]
            whole = lattice(rows)
            for few in range(1, best):
                for inside in combinations(range(len(others)), few):
                    if lattice(np.delete(rows, inside, axis=1)) != whole:
                        best = few
                        break
                if best == few:
                    break
    return best


def lattice(rows: np.ndarray) -> tuple[int, int]:
    """Return the rank of whole columns, and by how much the lattice that they span is coarse."""
    rank = int(np.linalg.matrix_rank(rows)) if rows.size else 0
    minors = [
        round(float(np.linalg.det(rows[np.ix_(some, columns)])))
        for some in combinations(range(rows.shape[0]), rank)
        for columns in combinations(range(rows.shape[1]), rank)
    ]
    return rank, math.gcd(*minors) if rank else 0


def holds(weights: Weights, found: Thinnest) -> bool:
    """Tell whether a combination rests on just the others that it names."""
    table = matrix(weights)[list(found.receivers)]
    sums = np.asarray(found.factors) @ table
    left = sums % found.modulus if found.modulus else sums
    others = [j for j in range(len(weights.rows)) if j not in found.receivers and left[j]]
    return tuple(others) == found.others


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_check_is_exhaustive_on_small_graphs(together: int) -> None:
    rng = np.random.default_rng(together)
    graphs = [drawn(rng, int(rng.integers(4, 8)), 0.6) for _ in range(12)]
    graphs += [graph("ring", 6), graph("regular", 6, 3), graph("complete", 6)]
    seen = set()
    for weights in (one for one in graphs if one is not None):
        found = thinnest(weights, together)
        assert len(found.others) == oracle(weights, together)
        assert holds(weights, found)
        seen.add((len(found.others), bool(found.modulus)))
    assert len(seen) > 2  # else everything would look alike
    assert any(modulo for _, modulo in seen)


def test_looking_at_single_sums_alone_is_not_enough() -> None:
    """Control: each sum of this graph rests on four, and two receivers read a difference of two."""
    weights = graph("regular", 10, 4)
    assert len(thinnest(weights, 1).others) == 4
    assert len(thinnest(weights, 2).others) == 2


def plan_of(topology: Topology, clients: int, policy: PrivacyPolicy | str) -> TopologyPlan:
    chosen = PrivacyPolicy.preset(policy) if isinstance(policy, str) else policy
    return TopologyPlan.of(topology, names_of(clients), chosen)


def test_a_ring_is_refused_with_receivers_and_combination() -> None:
    with pytest.raises(PolicyError) as refused:
        plan_of(Topology("ring"), 5, "masks")
    text = str(refused.value)
    assert "client-1 can compute 1 x the sum of client-1, less their own models" in text
    assert "rests on client-2, client-5 alone" in text and "topology_floor" in text


HUB = Topology(
    "edges",
    edges=(*((0, b) for b in range(1, 6)), (1, 2), (1, 3), (1, 4), (2, 5), (3, 5), (4, 5)),
)
"""Everybody has three neighbours or more; client-1 has five."""


def test_a_sum_of_three_that_is_one_client_s_modulo_six_is_refused() -> None:
    """As real numbers each sum rests on three; of 5 a + 6 b + 6 c a reader knows a modulo 6."""
    with pytest.raises(PolicyError) as refused:
        plan_of(HUB, 6, "masks")
    text = str(refused.value)
    assert "modulo 6, less their own models, which rests on client-1 alone" in text


# --- what the floor does not look at --------------------------------------------------------------


def over_rounds(weights: Weights) -> tuple[int, int]:
    """Return on how few others rests what client-1 reads: in one round, and in many untrained."""
    mixing = matrix(weights) / weights.whole
    read = [np.linalg.matrix_power(mixing, round)[0, 1:] for round in range(1, 9)]
    read.append(np.zeros(len(weights.rows) - 1))
    found = []
    for rows in (np.array(read[:1]), np.array(read)):
        rank = np.linalg.matrix_rank(rows, tol=1e-8)
        for size in range(1, rows.shape[1] + 1):
            inside = combinations(range(rows.shape[1]), size)
            rests = (np.delete(rows, some, axis=1) for some in inside)
            if any(not r.size or np.linalg.matrix_rank(r, tol=1e-8) < rank for r in rests):
                found.append(size)
                break
    return found[0], found[1]


def test_over_rounds_models_that_are_mixed_and_not_trained_are_read_one_by_one() -> None:
    """LIMITATIONS says so. The complete graph is the control: there all rounds tell one sum."""
    assert over_rounds(graph("regular", 10, 4)) == (4, 1)
    assert over_rounds(graph("complete", 6)) == (5, 5)


def told_apart(*, kept_from_mixing: bool) -> float:
    """Return how alike what client-6 reads is to the model that client-1's data alone ask for."""
    rng, rate = np.random.default_rng(5), 0.1
    best = rng.normal(size=(6, 2000))  # of each client, on data of its own
    models = np.zeros_like(best)
    for _ in range(30):
        mean = models.mean(axis=0)
        alone = models[0].copy()
        models[:] = mean
        if kept_from_mixing:  # whoever reads, client-6, sends client-1 nothing
            models[0] = alone
        models += rate * (best - models)
    seen = models[:5].sum(axis=0) - 4 * mean  # its sum, and the mean that four went on from
    return float(np.corrcoef(seen, best[0])[0, 1])


def test_over_rounds_who_is_kept_from_mixing_is_read_through_its_neighbours_sums() -> None:
    """LIMITATIONS says so. Control: who mixes is one update among five in every sum."""
    assert told_apart(kept_from_mixing=True) > 0.95
    assert told_apart(kept_from_mixing=False) < 0.6


COLLUDER = changed_policy("masks", colluders=1)
TWO_SIDES = Topology("edges", edges=tuple((a, b) for a in range(4) for b in range(4, 8)))
"""Four clients on either side, all neighbours of the other side."""


@pytest.mark.parametrize(
    ("topology", "clients", "policy", "fewest"),
    [
        (Topology("complete"), 4, "masks", 3),
        (Topology("regular", 3), 6, "masks", 3),
        (Topology("regular", 4), 10, "masks", 4),
        (Topology("complete"), 5, COLLUDER, 3),
        (TWO_SIDES, 8, COLLUDER, 3),
    ],
)
def test_what_rests_on_enough_is_admitted(
    topology: Topology, clients: int, policy: PrivacyPolicy | str, fewest: int
) -> None:
    found = plan_of(topology, clients, policy)
    assert (found.fewest, found.floor) == (fewest, "checked")
    assert found.again(PrivacyPolicy.preset("masks") if policy == "masks" else COLLUDER) == found


@pytest.mark.parametrize(
    ("topology", "clients", "policy"),
    [
        (Topology("regular", 2), 6, "masks"),
        (Topology("complete"), 3, "masks"),
        (Topology("regular", 4), 10, COLLUDER),
        (Topology("complete"), 4, COLLUDER),
        (TWO_SIDES, 8, changed_policy("masks", colluders=1, minimum_cohort=4)),
    ],
)
def test_the_other_side_of_the_border_is_refused(
    topology: Topology, clients: int, policy: PrivacyPolicy | str
) -> None:
    with pytest.raises(PolicyError, match="too few clients hide each other"):
        plan_of(topology, clients, policy)


def test_a_policy_may_let_it_run_and_the_plan_says_unsafe() -> None:
    unsafe = changed_policy("masks", topology_floor="unsafe")
    found = plan_of(Topology("ring"), 5, unsafe)
    assert (found.fewest, found.floor) == (2, "unsafe")
    assert plan_of(Topology("complete"), 5, unsafe).floor == "checked"
    assert unsafe.digest != PrivacyPolicy.preset("masks").digest
    assert PrivacyPolicy.preset("masks").document()["topology_floor"] == "checked"
    algorithm = neighbours(d=4, topology=Topology("ring"))
    plan = World(algorithm.forms[0], unsafe, clients=5, d=4).plan
    assert any(text.startswith("UNSAFE: topology_floor") for text in plan.warnings)


def test_one_neighbour_is_refused_where_masks_should_hide_it() -> None:
    """Whatever the floor: no pair shares a mask then, and clients would end the run in round 1."""
    path, clear = Topology("edges", edges=((0, 1), (1, 2), (2, 3))), "unsafe_plaintext"
    with pytest.raises(PolicyError, match="client-1 has one neighbour"):
        plan_of(path, 4, changed_policy("masks", topology_floor="unsafe"))
    assert plan_of(path, 4, changed_policy(clear, topology_floor="unsafe")).fewest == 1


def test_a_topology_of_as_many_clients_as_have_sparse_pairs_is_refused() -> None:
    with pytest.raises(PolicyError, match="secret for every pair"):
        plan_of(Topology("regular", 4), 100, "masks")


def test_too_many_combinations_to_look_at_are_refused() -> None:
    rng = np.random.default_rng(0)
    weights = drawn(rng, 40, 0.3)
    assert weights is not None
    with pytest.raises(ValueError, match="too many combinations"):
        thinnest(weights, 6)


@pytest.mark.parametrize("lie", ["floor", "edges", "shares", "none", "fewest"])
def test_no_party_takes_a_plan_with_another_topology(lie: str) -> None:
    algorithm = neighbours(d=4, topology=Topology("regular", 4))
    plan = World(algorithm.forms[0], "masks", clients=6, d=4).plan
    assert plan.topology is not None
    shares = {name: dict(row) for name, row in plan.topology.shares.items()}
    shares["client-1"]["client-2"] = 2
    ring = plan_of(Topology("ring"), 6, changed_policy("masks", topology_floor="unsafe"))
    changed = {
        "floor": plan.topology.model_copy(update={"floor": "unsafe"}),
        "edges": ring,
        "shares": plan.topology.model_copy(update={"shares": shares}),
        "none": None,
        "fewest": plan.topology.model_copy(update={"fewest": 5}),
    }[lie]
    forged = plan.model_copy(update={"topology": changed})
    with pytest.raises(NotInPlan, match="topology"):
        World(algorithm.forms[0], "masks", clients=6, d=4, plan=forged)
