"""FED-PUB through `pilot`: the rows that were asked for, and who can compute what from what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from algorithms.fed_pub import Model, Portrait, fed_pub, shares
from algorithms.tasks import Site
from algorithms.tasks.evaluation import evaluated
from crypto.homomorphic.weighted import flatten
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.control import Cosines, RowSeeds
from protocols.wire.gateway import Gateway
from tests.toys.kinds import sites_of
from tests.toys.stage import plan_of, play

from .test_fed_pub import lively, memories, task

CLIENTS, TAU = 10, 1.0
GRID = 4.0 / (2**14 - 1)  # of the presets: clip 4, 15 bits
GROUPS = np.arange(CLIENTS) % 2 == 0  # two planted communities


def planted() -> list[Site]:
    """Return two groups of five: nearly the same graph, which means other classes in each group."""
    sites = sites_of("node", clients=CLIENTS, alike=True)
    for number, site in enumerate(sites):
        own = torch.Generator().manual_seed(number)
        x = site.data.x + 0.3 * torch.randn(site.data.x.shape, generator=own)
        y = site.data.y if GROUPS[number] else (site.data.y + 1) % 3
        site.data = replace(site.data, x=x, y=y, kept={}, _propagation={})
    return sites


@dataclass
class Seen:
    """What clients held after `rounds`, and what key authority and witness were last shown.

    Attributes:
        trained, received: (K, d).
        alike: the cosines as the key authority returned them, (K, K); in clear None.
        table: the weights as the witness read them, (K, K); in clear None.
        portraits: of the last round, (K, p).
    """

    trained: Any
    received: Any
    portraits: Any
    alike: Any = None
    table: Any = None


@contextmanager
def overheard() -> Iterator[list[Any]]:
    """Note every message that any party releases, before it is protected."""
    release, said = Gateway.release, []

    def released(self: Gateway, id: str, messages: Any, recipient: str, *more: Any) -> Any:
        said.extend(messages)
        return release(self, id, messages, recipient, *more)

    with patch.object(Gateway, "release", released):
        yield said


def symmetric(levels: Any) -> Any:
    """Return the matrix of cosines from 1 + cosine in 2^-14, row by row from i to j >= i."""
    upper = np.triu_indices(CLIENTS)
    found = np.zeros((CLIENTS, CLIENTS))
    found[upper] = found.T[upper] = np.asarray(levels)[: len(upper[0])] / 2**14 - 1
    return found


def seen(policy: str | PrivacyPolicy, rounds: int, **options: Any) -> Seen:
    sites = planted()
    with overheard() as said:
        play(fed_pub(lively(), **{"tau": TAU, **options}), sites, policy, rounds=rounds)
    portraits = [m.embedding for m in said if isinstance(m, Portrait)][-CLIENTS:]
    found = Seen(memories(sites, "trained"), memories(sites, "received"), np.array(portraits))
    if policy != "unsafe_plaintext":
        found.alike = symmetric([m.cosines for m in said if isinstance(m, Cosines)][-1])
        weights = np.asarray([m.weights for m in said if isinstance(m, RowSeeds)][-1])
        found.table = weights[:CLIENTS, :CLIENTS]
    return found


@pytest.fixture(scope="module")
def pilot() -> Seen:
    return seen("pilot", 2)


@pytest.fixture(scope="module")
def clear() -> Seen:
    return seen("unsafe_plaintext", 2)


def mixed(weights: Any, found: Seen) -> Any:
    return weights @ found.trained.astype(np.float64)


def test_under_pilot_everybody_receives_its_own_mixture_to_the_grid(pilot: Seen) -> None:
    alpha = shares(pilot.alike, TAU)
    expected = mixed(flatten(alpha).table / 128, pilot)
    assert np.abs(pilot.received - expected).max() < GRID
    assert np.ptp(alpha) > 0.05
    mean = np.full_like(alpha, 1 / CLIENTS)  # the control: a mean would not pass for it
    assert np.abs(mixed(mean, pilot) - expected).max() > 20 * GRID


def test_the_cosines_behind_the_rows_are_those_of_the_portraits(pilot: Seen) -> None:
    units = pilot.portraits / np.linalg.norm(pilot.portraits, axis=1, keepdims=True)
    assert np.abs(units @ units.T - pilot.alike).max() < 2**-13
    assert np.ptp(pilot.alike) > 0.02


def test_planted_communities_weigh_their_own_more_in_clear_and_protected(
    pilot: Seen, clear: Seen
) -> None:
    units = clear.portraits / np.linalg.norm(clear.portraits, axis=1, keepdims=True)
    own = np.equal.outer(GROUPS, GROUPS) & ~np.eye(CLIENTS, dtype=bool)
    across = ~np.equal.outer(GROUPS, GROUPS)
    for weights, found in ((shares(units @ units.T, TAU), clear), (pilot.table / 128, pilot)):
        assert np.abs(found.received - mixed(weights, found)).max() < GRID
        assert weights[own].mean() > 2 * weights[across].mean()


def test_tau_of_zero_is_the_mean_to_within_one_part_in_128() -> None:
    found = seen("pilot", 1)  # a first round: whatever tau is
    assert set(np.unique(found.table)) == {12, 13} and (found.table == found.table[0]).all()
    assert np.abs(found.table / 128 - 1 / CLIENTS).max() < 1 / 128
    assert np.abs(found.received - mixed(found.table / 128, found)).max() < GRID
    size = np.abs(found.trained).sum(axis=0)  # so the mean is met as nearly as weights are
    mean = mixed(np.full((CLIENTS, CLIENTS), 1 / CLIENTS), found)
    assert (np.abs(found.received - mean) <= size / 128 + GRID).all()


def test_o10_a_policys_top_leaves_the_plain_mean_whole() -> None:
    preset = PrivacyPolicy.preset("pilot")
    cut = {
        kind: tuple(g.model_copy(update={"top": 4}) if g.guard == "weigh" else g for g in chain)
        for kind, chain in preset.rules.items()
    }
    found = seen(preset.model_copy(update={"name": "cut", "rules": cut}), 1)
    assert (found.table == found.table[0]).all() and (found.table > 0).all()


# --- what docs/threat-model.md says of cosines and weights --------------------------------------


def test_who_opened_the_cosines_has_the_weights(pilot: Seen) -> None:
    """Nothing is drawn between what the key authority returns and what the witness is shown."""
    np.testing.assert_array_equal(flatten(shares(pilot.alike, TAU)).table, pilot.table)
    other = flatten(shares(pilot.alike, TAU / 2)).table  # the control: tau matters, and is public
    assert (other != pilot.table).any()


def test_who_sees_the_weights_has_the_cosines_roughly(pilot: Seen) -> None:
    """a_ij / a_ii is exp(tau (S_ij - 1)); rounding to 128ths is all that stands between."""
    others = ~np.eye(CLIENTS, dtype=bool)
    own = pilot.table.diagonal()[:, np.newaxis]
    guessed, true = (1 + np.log(pilot.table / own) / TAU)[others], pilot.alike[others]
    spread = np.abs(true - true.mean()).mean()
    assert np.abs(guessed - true).mean() < 0.1 * spread and spread > 0.5
    assert np.corrcoef(guessed, true)[0, 1] > 0.99
    for kind in (Model, Portrait):  # and the plan says so
        item = next(
            i for i in plan().items if i.messages and i.id.endswith(f"up.{kind.disclosure}")
        )
        who = "witness" if kind is Portrait else "key_authority"
        assert "computed from" in item.learns[who]


def plan() -> Any:
    model = task()
    return plan_of(evaluated(fed_pub(model), model), PrivacyPolicy.preset("pilot"), CLIENTS, 2)


def test_flags_are_called_flags_and_no_model() -> None:
    """Keep and Last say which score was best, which was computed from data."""
    said = {item.id: item.learns.get("client") for item in plan().items}
    found = {
        id for id, text in said.items() if text == "flags, counters and public seeds; no model"
    }
    assert found >= {"train.down", "evaluate.down", "close.down"}
    assert "nothing that was computed" not in str(said)
