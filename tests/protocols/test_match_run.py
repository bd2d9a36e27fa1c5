"""Items matched within a run: through every session, and as plaintext matching would (O24, O25)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.protocols.matched import Change, cells_of, matched_round, matching, same


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_clients_are_told_what_plaintext_matching_tells(mode):
    world = matching(mode=mode).start()
    reply = matched_round(world)
    same(world)
    assert np.allclose(reply.total(Change).change, 11 * 0.125, atol=1e-3)
    first = cells_of(world)
    matched_round(world, 2)
    same(world)
    assert cells_of(world) == first
