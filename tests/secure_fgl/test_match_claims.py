"""What the example and the attack say of matching, held to what the protocol does (O24)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from algorithms._shared.item_expansion import Expanding
from protocols.disclosures.match.disclosure import SHARED
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import chosen
from secure_fgl.attack_inputs import tagged as tag_material
from tests.protocols.matched import match_plan, match_policy
from tests.protocols.matching import crowd

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
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
    replayed: Any = SimpleNamespace(config=SimpleNamespace(algorithm=algorithm))
    kind: Any = SimpleNamespace(guard=guard, catalogue=40)
    made = tag_material._tagged(replayed, kind, 1, {}, {}, (), {})
    assert made.quota == guard.places == 12


def test_a_quota_finds_more_than_its_share_of_the_catalogue() -> None:
    """Guesses go to what most hold, so no text may say that they find quota / catalogue."""
    items, guard = 800, Match(cap=32)
    own = crowd(200, items, 60)
    tagged = Counter(i for held in own.values() for i in chosen(held, range(items), guard))
    first = int(guard.popular * items)
    found = sum(tagged[i] for i in range(first, first + guard.places)) / tagged.total()
    assert found > 2 * guard.places / items
    for page in ("docs/adr/0018-matching.md", "LIMITATIONS.md", "docs/threat-model.md"):
        assert "quota / catalogue" not in (ROOT / page).read_text("utf-8")


def test_pages_say_that_deterministic_tags_protect_nothing() -> None:
    for page in ("LIMITATIONS.md", "docs/threat-model.md", "audits/explain/terms.yaml"):
        text = " ".join((ROOT / page).read_text("utf-8").split())
        assert "deterministic" in text and "item" in text.partition("deterministic")[2][:160]


def test_a_plan_says_how_many_epochs_there_may_be() -> None:
    """Clients answer so often, whatever the algorithm means to; quotas add up (O24)."""
    plan = match_plan(match_policy(epochs=7), rounds=9)
    assert plan.item("expand.up.MATCH").times == 7
    assert "as the policy's 'epochs'" in SHARED and SHARED in plan.warnings


def test_the_example_is_matched_as_often_as_its_policy_allows() -> None:
    """Graphs are expanded after 10 rounds and after 20; one lost round is made up for."""
    config = yaml.safe_load((EXAMPLES / "fed_per_gnn_matched.yaml").read_text("utf-8"))
    rules = yaml.safe_load((EXAMPLES / "matched_policy.yaml").read_text("utf-8"))["rules"]
    (guard,) = [g for g in rules["MATCH"] if g["guard"] == "match"]
    options = config["algorithm"]["options"]["fed_per_gnn"]
    wide = Expanding(None, 0.0, 1, 1, options["expand_after"], options["expand_every"])  # type: ignore[arg-type]
    assert wide.expansions(config["algorithm"]["rounds"]) == 2 < guard["epochs"] == 3
