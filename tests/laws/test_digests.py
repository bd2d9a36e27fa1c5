"""What examples end with does not move when code is renamed, merged or moved; see scripts/digests.

Only a machine of a kind on which digests were recorded can compare them: floats round differently
elsewhere. That they follow labels, and not names or numbers of Asks, is tested everywhere
(tests/protocols/test_labels.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols.policy.policy import PRESETS
from scripts.digests import EXAMPLES, digest, known, machine

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("policy", ["masks", "pilot", "unsafe_plaintext"])
def test_the_banks_end_with_the_recorded_model(policy: str) -> None:
    if "banks" not in known():
        pytest.skip(f"no digest of banks was recorded on this kind of machine ({machine()})")
    assert digest("banks", policy) == known()["banks"][policy]


if known():  # elsewhere a skip would say that the data is not there, and it is

    @pytest.mark.long
    @pytest.mark.parametrize("example", [name for name in EXAMPLES if name in known()])
    @pytest.mark.parametrize("policy", sorted(PRESETS))
    def test_every_example_ends_with_the_recorded_model(
        example: str, policy: str, data_root: Path
    ) -> None:
        assert digest(example, policy) == known()[example][policy]


def test_every_example_that_a_preset_runs_is_listed() -> None:
    files = {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    own = {name for name in files if "policy" in name}  # policies, and runs under one of them
    own |= {"fed_gcn_cora", "fed_gnn_cora", "fed_per_gnn_matched", "molecules_dp"}
    assert set(EXAMPLES) == files - own
