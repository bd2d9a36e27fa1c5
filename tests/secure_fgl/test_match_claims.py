"""What the example and the attack say of matching, held to what the protocol does (O24)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from protocols.match_guards import Match
from secure_fgl import tag_material

EXAMPLES = Path(__file__).parents[2] / "examples"
CATALOGUE = 1682  # of MovieLens-100K


def test_the_example_names_the_popular_items_that_its_policy_leaves_out() -> None:
    """Without the list the first of the catalogue's numbers are left out, popular or not."""
    config = yaml.safe_load((EXAMPLES / "fed_per_gnn_matched.yaml").read_text("utf-8"))
    rules = yaml.safe_load((EXAMPLES / "matched_policy.yaml").read_text("utf-8"))["rules"]
    (guard,) = [g for g in rules["MATCH"] if g["guard"] == "match"]
    named = config["algorithm"]["options"]["fed_per_gnn"].get("popular", ())
    assert len(named) >= int(guard["popular"] * CATALOGUE) > 0


def test_a02_spends_all_places_of_a_batch() -> None:
    """A client that guesses needs no canary: its quota is `places`, as the tag server counts."""
    guard = Match(cap=8, canaries=4)
    algorithm = SimpleNamespace(name="toy", options={})
    case = SimpleNamespace(plan=SimpleNamespace(dims={"items": 40}))
    replayed: Any = SimpleNamespace(case=case, config=SimpleNamespace(algorithm=algorithm))
    made = tag_material._tagged(replayed, guard, 1, {}, {}, ())
    assert made.quota == guard.places == 12
