"""Noise on rows under attack: what else tells of a node's features, or claims more than holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from protocols.disclosures.row_sum import run as sums
from protocols.disclosures.row_sum.protocol.wire import MOST
from protocols.disclosures.row_sum.run import _kept, _term
from protocols.errors import NotInPlan, PolicyError
from protocols.plan.plan import CountPlan
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.row_noise import check_row_noise, plan_row_noise
from tests.protocols.rowed import CLIP, FEATURES, row_plan, row_policy, row_round
from tests.protocols.test_row_noise import noise, noisy

EXAMPLES = Path(__file__).parents[2] / "examples"
REAL = sums.NoisedRows.row


def recorded(features: Any) -> dict[str, int]:
    """Return what clients' ledgers say of clipping, where one node has these features."""
    world = noisy()
    world.sites["client-2"].terms[1, :-1] = features
    row_round(world.start())
    return {
        name: entry["clipped"]
        for name in world.names
        for entry in world.entries(name)
        if entry["kind"] == "rows" and "clipped" in entry
    }


ZEROS, LONG = np.zeros(FEATURES), np.full(FEATURES, 9.0 * CLIP)


def test_no_ledger_tells_whether_a_nodes_features_were_clipped() -> None:
    """One bit, without noise, of a single node: no epsilon holds for who reads the ledger."""
    found = recorded(LONG)
    assert len(found) == 6 and found == recorded(ZEROS)


def test_the_control_that_records_it_tells_the_two_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def telling(self: Any, tag: bytes, terms: Any) -> Any:
        cut = any(np.linalg.norm(term) > self._clip for term in terms)
        return REAL(self, tag, terms)[0], cut

    monkeypatch.setattr(sums.NoisedRows, "row", telling)
    assert recorded(LONG) != recorded(ZEROS)


FINE = (1 << 19) - 1
"""Levels of the finest grid that a chain may have."""


def cut_off(counted: CountPlan, clients: int) -> float:
    """Return which part of the noise on a row does not fit into a client's share of a word."""
    most = MOST // clients
    made = sums.NoisedRows(CLIP, 20, counted, most, bytes(32))
    return float(np.mean(np.abs(made.row(b"", [np.zeros(4096)])[0]) == most))


def test_o19_no_noise_is_planned_that_words_of_all_clients_have_no_room_for() -> None:
    few = plan_row_noise(noise(epsilon=1.0), FINE, 4096, 6)
    assert cut_off(few, 6) == 0.0
    assert cut_off(few, 1000) > 0.5  # the control: the same noise, and rows that are no sums
    with pytest.raises(PolicyError, match="reaches epsilon 1") as error:
        plan_row_noise(noise(epsilon=1.0), FINE, 4096, 1000)
    assert "words that so many clients share" in error.value.why
    coarser = plan_row_noise(noise(epsilon=1.0), FINE >> 8, 4096, 1000)
    assert float(coarser.scale) * (FINE >> 8) * 8 <= MOST // 1000


def test_a_plan_of_noised_rows_promises_no_floor_that_nobody_holds() -> None:
    plan, bare = row_plan(row_policy(noise=noise())), row_plan(row_policy())
    assert any("colluders are counted on top" in text for text in bare.warnings)
    assert not any("colluders are counted on top" in text for text in plan.warnings)
    assert any("no number of colluders changes that" in text for text in plan.warnings)


@pytest.mark.parametrize(
    "change",
    [
        {"dims": {}},
        {"dims": {}, "counted": None},
        {"dims": {"row_width": 10**400}},
        {"dims": {"row_width": -1}},
        {"counted": None},
    ],
)
def test_a_plan_of_any_sizes_is_refused_and_breaks_nothing(change: Any) -> None:
    """A plan is a file of whoever wrote it: an audit reads it, too."""
    policy = row_policy(noise=noise())
    plan = row_plan(policy)
    check_row_noise(plan, policy)
    (item,) = [one for one in plan.items if one.counted is not None]
    bare = item.model_copy(update={"messages": (), **change})
    others = tuple(one for one in plan.items if one is not item)
    with pytest.raises(NotInPlan, match="noise on rows is not what"):
        check_row_noise(plan.model_copy(update={"items": (*others, bare)}), policy)
    with pytest.raises(PolicyError):
        check_row_noise(plan.model_copy(update={"clients": ()}), policy)


def test_rows_in_clear_have_no_noise_and_need_none() -> None:
    policy = PrivacyPolicy.load(EXAMPLES / "rows_published_policy.yaml")
    plan = row_plan(row_policy())
    (item,) = [one for one in plan.items if one.id == "link.up.ROW_SUM"]
    (message,) = item.messages
    number = message.fields[0].model_copy(update={"shape": ()})  # as FedGCN's `Block` begins
    clear = message.model_copy(update={"fields": (number, *message.fields)})
    bare = item.model_copy(update={"messages": (clear,), "dims": {}})
    check_row_noise(plan.model_copy(update={"items": (bare,)}), policy)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_a_nodes_term_is_its_own_row_however_a_plug_in_stores_it(form: str) -> None:
    """By columns, one node's features moved every term, and the noise is for one a row."""
    held = sp.random_array((5, 7), density=0.6, rng=np.random.default_rng(1))
    kept = _kept(held.asformat(form), dense=False)
    for node in range(5):
        assert np.array_equal(_term(kept, node, 7), held.toarray()[node])
