"""The table of forms that one client's own noise can cover, held to what policies admit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.fed_gate import fed_gate
from algorithms.fed_mf import fed_mf
from algorithms.fed_per import fed_per
from protocols.errors import NotAdmitted
from protocols.forms import Algorithm
from protocols.messages import NoisedMessage, SumMessage
from protocols.policy.guards import OwnNoise
from protocols.policy.policy import PRESETS, PrivacyPolicy
from secure_fgl.catalogue import algorithm_names
from secure_fgl.federation import Federation
from tests.algorithms.test_fed_per_gnn import site_of, task_of
from tests.laws.runs import config as law
from tests.toys import kinds
from tests.toys.stage import play

PAGE = Path("docs/equal-weights.md")


def rows() -> dict[str, tuple[str, str, str]]:
    """Return the page's table: per algorithm both forms, and why there is none."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: (sums, noised, why) for name, sums, noised, why in cells}


def alone(disclosure: str) -> PrivacyPolicy:
    """Return the preset with own noise for one disclosure only."""
    document = PRESETS["ldp"].document()
    other = "NOISED" if disclosure == "SUM" else "SUM"
    rules = {name: chain for name, chain in document["rules"].items() if name != other}
    return PrivacyPolicy.model_validate({**document, "name": "alone", "rules": rules})


@pytest.mark.parametrize("name", algorithm_names())
def test_own_noise_admits_what_the_table_says_and_covers_all_of_it(name: str) -> None:
    sums, noised, why = rows()[name]
    _, algorithm = Federation.from_config(law(name, "ldp")).build()
    for policy, expected, kind in (
        (PRESETS["ldp"], sums, SumMessage),
        (alone("SUM"), sums, SumMessage),
        (alone("NOISED"), noised, NoisedMessage),
    ):
        if not expected:
            assert why, f"{name} has no form, and the page gives no reason"
            with pytest.raises(NotAdmitted):
                policy.admit(algorithm)
            continue
        form = policy.admit(algorithm)
        assert form.name == expected.split(", ")[0]
        assert set(expected.split(", ")) <= {one.name for one in algorithm.forms}
        for back in (one for exchange in form.exchanges for one in exchange.back):
            assert issubclass(back, kind) and back.disclosure in policy.rules
            assert any(isinstance(guard, OwnNoise) for guard in policy.rules[back.disclosure])
            assert all(field.wire != "u8" and not field.scale for field in back.fields)
    assert bool(why) == (not sums or not noised or name in ("local", "loc_sage"))


def test_the_table_has_one_row_an_algorithm() -> None:
    assert list(rows()) == sorted(algorithm_names())


MAKERS: list[Callable[[], Algorithm[Any]]] = [
    lambda: fed_per(kinds.task_of("node")),
    lambda: fed_gate(kinds.task_of("node")),
    lambda: fed_mf(task_of("user_dot")),
]


@pytest.mark.parametrize("make", MAKERS)
def test_without_noise_both_forms_take_the_same_steps(make: Callable[[], Algorithm[Any]]) -> None:
    """In clear, through the real sessions; sums stand on a grid, noised messages do not."""
    sums, noised, _ = rows()[make().name]
    begun, *ended = [
        getattr(state, "start", state).weights
        for state in (make().init(np.random.default_rng(0)), played(make(), sums),
                      played(make(), noised.split(", ")[-1]))
    ]  # fmt: skip
    np.testing.assert_allclose(ended[1], ended[0], atol=2e-3)
    assert np.abs(ended[1] - begun).max() > 1e-2


def played(algorithm: Algorithm[Any], form: str) -> Any:
    """Return the state after two rounds in clear."""
    people = [site_of(user) for user in range(4)]
    if algorithm.name != "fed_mf":
        people = kinds.sites_of("node")
    (chosen,) = (one for one in algorithm.forms if one.name == form)
    return play(replace(algorithm, forms=(chosen,)), people, "unsafe_plaintext", rounds=2).state
