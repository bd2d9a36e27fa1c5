"""Noise on rows under attack: what else tells of a node's features, or claims more than holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.disclosures.row_sum import sums
from tests.protocols.rowed import CLIP, FEATURES, row_round
from tests.protocols.test_row_noise import noisy

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
    def telling(self: Any, terms: Any) -> Any:
        cut = any(np.linalg.norm(term) > self._clip for term in terms)
        return REAL(self, terms)[0], cut

    monkeypatch.setattr(sums.NoisedRows, "row", telling)
    assert recorded(LONG) != recorded(ZEROS)
