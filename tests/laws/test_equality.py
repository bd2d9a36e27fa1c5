"""The same learning under every policy, and again in every repetition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Plan
from protocols.policy.policy import PRESETS
from protocols.rounds import Ask, Cohort, Reply
from protocols.wire.envelope import Envelope
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking.laws import used
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.run.driver import Driver
from tests.laws.conftest import Recorded
from tests.laws.runs import (
    ALIKE,
    LONG,
    POLICIES,
    PROTECTED,
    WHOLE,
    Recording,
    config,
    grouped,
    policies_of,
    quick,
    record,
    spread,
    steady,
)

NAMES = algorithm_names()
KEYS = {
    "run_dir", "algorithm", "form", "backend", "rounds", "clients", "metrics", "bytes_up",
    "bytes_down", "exchanges", "wall_s", "protect_s", "peak_mb", "model_sha256", "verdict",
}  # fmt: skip


CLEAR = "unsafe_plaintext"
LEAST = 0.02  # of 200 nodes, what a weight that moved by one in 128 may change
EXCUSED = {"fed_ego": {"grid"}, "fed_pub": {"cosines", "grid"}}
"""What may come between two policies' runs of one seed; all other algorithms are bit-equal."""


def learnt(recording: Recording) -> tuple[Any, Any]:
    return recording.result["model_sha256"], recording.result["metrics"]


def reasons(one: Recording, other: Recording) -> set[str]:
    """Return why two runs of one seed may differ; empty where they must be equal to the bit.

    * ``cosines``: a run reads cosines from ciphertexts. Their noise comes from the operating system
      and now and then moves a weight by one.
    * ``groups``: a run draws its groups of records from the operating system (O15), so whoever is
      mixed with whom is not the same again.
    * ``grid``: one run weighs levels on a grid, the other, in clear, the reals themselves.
    """
    items = [item for run in (one, other) for item in used(run.plan)]
    closed = {item.disclosure for item in items if not item.unsafe}
    rows = {item.unsafe for item in items if item.disclosure is Disclosure.WEIGHTED_SUM}
    found = {
        "cosines": Disclosure.SIMILARITY in closed,
        "groups": Disclosure.MIXED in closed,
        "grid": len(rows) > 1,
    }
    return {reason for reason, applies in found.items() if applies}


def same(one: Recording, other: Recording) -> bool:
    """Tell whether two runs learnt the same: to the bit, unless there are `reasons`.

    Where cosines are read from ciphertexts, groups come from the operating system, or rows are on a
    grid in one run alone, scores agree within `LEAST`, and both runs or neither have a model.
    """
    if not reasons(one, other):
        return learnt(one) == learnt(other)
    (model, found), (twin, expected) = learnt(one), learnt(other)
    scores = {name for name in expected if "accuracy" in name}
    near = all(abs(found[name] - expected[name]) <= LEAST for name in scores)
    held = (model is None) == (twin is None)
    return bool(scores) and held and set(found) == set(expected) and near


@pytest.mark.parametrize(("name", "policies"), grouped(NAMES))
def test_no_other_algorithm_is_excused_from_equal_bits(
    name: str, policies: tuple[str, ...], recorded: Recorded
) -> None:
    *protected, clear = (recorded(name, policy, repeats=True) for policy in policies)
    excused = EXCUSED.get(name, set())
    for one, other in combinations(protected, 2):
        assert reasons(one, other) == excused - {"grid"}
    assert all(reasons(one, clear) == excused for one in protected)
    assert not reasons(clear, clear)


@pytest.mark.parametrize(("name", "policies"), grouped(NAMES))
def test_every_policy_gives_the_same_model_and_metrics(
    name: str, policies: tuple[str, ...], recorded: Recorded
) -> None:
    found = [recorded(name, policy, repeats=True) for policy in policies]
    assert all(same(one, other) for one, other in combinations(found, 2))
    backends = {one.result["backend"] for one in found}
    assert len(backends) == len(policies)  # they did not take one road


def test_make_test_records_each_algorithm_and_with_some_each_policy() -> None:
    cells = {name: policies_of(name) for name in NAMES}
    assert all(cells.values()) and {*WHOLE, *ALIKE} <= {*NAMES}
    for policy in POLICIES:
        assert sum(policy in policies for policies in cells.values()) > len(WHOLE) + 2, policy
    for cell in (*quick([(n, p) for n in NAMES for p in POLICIES]), *spread(NAMES, PROTECTED)):
        name, policy = (str(value) for value in cell.values)
        assert cell.marks or policy in policies_of(name) or name in ALIKE


def test_the_pilot_is_the_he_policy_under_another_name() -> None:
    pilot, he = (PRESETS[name].document() for name in ("pilot", "he"))
    assert {**pilot, "name": ""} == {**he, "name": ""}


@pytest.mark.parametrize("policy", ["he", "masks"])
def test_o9_keys_made_anew_every_round_do_not_change_the_model(
    policy: str, recorded: Recorded, tmp_path: Path
) -> None:
    often = PRESETS[policy].model_copy(update={"name": "often", "rekey_rounds": 1})
    rekeyed = record(config("fed_avg"), tmp_path / "run", policy=often)
    assert learnt(rekeyed) == learnt(recorded("fed_avg", policy))
    calls = [e for e in rekeyed.entries() if e["kind"] == "release" and e["item"] == "pair.call"]
    assert {e["round"] for e in calls} == {0, 2}


# --- drop-outs ----------------------------------------------------------------------------------


@contextmanager
def without_client(place: int, round: int) -> Iterator[None]:
    """Ask everybody but one client in one round: the control of a client that vanished in it."""
    ask = Driver.ask

    def asked(self: Driver, wanted: Ask, number: int) -> Reply:
        if number == round:
            members = wanted.cohort._members
            cohort = Cohort([m for n, m in enumerate(members, 1) if n != place])
            wanted = replace(wanted, cohort=cohort)
        return ask(self, wanted, number)

    with patch.object(Driver, "ask", asked):
        yield


ALONE = {Disclosure.NEIGHBOUR_SUM}
"""What is protected by the same code whatever protects sums: one policy shows it."""


def shown(name: str, loss: str = "asked") -> tuple[str, ...]:
    """Return the protected policies under which an algorithm loses a client in `make test`.

    What is lost is an upload of some disclosure: who shares every disclosure with one of `WHOLE`
    goes through the same code as that one, and is seen under one policy, another for each. Once
    it has arrived, `fed_avg` shows that each policy counts it, `fed_pub` that it may be a row.
    """
    if name == "fed_pub" and loss in MOMENTS:
        return ("masks",) if loss == "before_shares" else ("he",)
    if name in WHOLE:
        return PROTECTED
    others = [other for other in NAMES if other not in WHOLE]
    return (PROTECTED[others.index(name) % len(PROTECTED)],)


MOMENTS = ("after_upload", "before_shares")
LOSSES = ("asked", *MOMENTS)


def seen(name: str, loss: str) -> bool:
    """Tell whether `make test` loses a client then: `WHOLE` at each moment, most others at one."""
    if name in WHOLE:
        return True
    if name in ALIKE:
        return False
    place = [other for other in NAMES if other not in WHOLE].index(name)
    return LOSSES[(place + place // len(PROTECTED)) % len(LOSSES)] == loss


def every_algorithm(loss: str) -> list[Any]:
    """Return every algorithm with every protected policy; what `make test` leaves out is `long`."""
    return [
        pytest.param(name, policies, id="-".join((name, *policies)), marks=marks)
        for name in NAMES
        for policies, marks in (
            (shown(name, loss), () if seen(name, loss) else pytest.mark.long),
            (tuple(p for p in PROTECTED if p not in shown(name, loss)), pytest.mark.long),
        )
        if policies
    ]


def test_no_algorithm_uploads_in_a_way_that_is_not_shown_under_every_policy() -> None:
    for policy in PROTECTED:
        ways = {}
        for name in NAMES:
            steadied = steady(name, policy)
            plan = Federation(policy=steadied, config=config(name, policy)).plan()
            ways[name] = {item.part for item in plan.items if ".up." in item.id}
        seen_under_each = set().union(*(ways[name] for name in WHOLE))
        assert set().union(*ways.values()) == seen_under_each | ALONE
    others = [name for name in NAMES if name not in WHOLE]
    assert {policy for name in others for policy in shown(name)} == {*PROTECTED}
    assert all(any(seen(name, loss) for name in others) for loss in LOSSES)


@pytest.mark.parametrize(("name", "policies"), every_algorithm("asked"))
def test_o5_with_a_client_that_vanished_all_policies_learn_what_its_absence_gives(
    name: str, policies: tuple[str, ...], recorded: Recorded, tmp_path: Path
) -> None:
    whole = recorded(name, "unsafe_plaintext", repeats=True, rounds=3)
    if whole.plan.splits is None:
        with without_client(2, round=2):
            clear = steady(name, "unsafe_plaintext")
            chosen = config(name, "unsafe_plaintext", rounds=3)
            control = record(chosen, tmp_path / "run", policy=clear)
    else:  # of clusters nobody answers for another part than one that was cut
        control = recorded(name, "unsafe_plaintext", repeats=True, rounds=3, drop="2@2")
    for policy in (*policies, "unsafe_plaintext"):
        dropped = recorded(name, policy, repeats=True, rounds=3, drop="2@2")
        assert same(dropped, control), policy
        assert dropped.result["lost_rounds"] == []
    assert not same(whole, control)  # the client is missed


@pytest.mark.parametrize(
    ("name", "policies", "moment"),
    [
        pytest.param(*cell.values, moment, id=f"{cell.id}-{moment}", marks=cell.marks)
        for moment in MOMENTS
        for cell in every_algorithm(moment)
    ],
)
def test_o5_an_upload_that_has_arrived_counts(
    name: str, policies: tuple[str, ...], moment: str, recorded: Recorded
) -> None:
    """Its sender may vanish afterwards: the others' shares take its masks off.

    Where a round asks once, nothing else changes. Where it asks again, the client misses that.
    """
    whole = recorded(name, "unsafe_plaintext", repeats=True, rounds=3)
    twin = recorded(name, "unsafe_plaintext", repeats=True, rounds=3, drop="2@2:after_upload")
    assert same(twin, whole) is (asks(whole.plan) == 1)
    if not any(i.part is Disclosure.SUM and i.per_round for i in whole.plan.items):
        moment = "after_upload"  # no share is given in its rounds
    for policy in policies:  # in clear there are no shares, and what arrived is the twin
        dropped = recorded(name, policy, repeats=True, rounds=3, drop=f"2@2:{moment}")
        assert same(dropped, twin), policy
        assert dropped.result["lost_rounds"] == twin.result["lost_rounds"]


def asks(plan: Plan) -> int:
    """Return how often a round asks."""
    own = (i for i in used(plan) if i.id.endswith(".down") and not i.id.startswith("pair."))
    return sum(item.times // plan.rounds for item in own if not item.id.startswith("heads."))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_round_with_too_few_clients_is_skipped_alike(policy: str, recorded: Recorded) -> None:
    lost = recorded("fed_avg", policy, rounds=3, drop="2@2,3@2,4@2")
    assert lost.result["lost_rounds"] == [2]
    twin = recorded("fed_avg", "unsafe_plaintext", rounds=3, drop="2@2,3@2,4@2")
    assert learnt(lost) == learnt(twin) != learnt(recorded("fed_avg", policy, rounds=3))
    assert lost.result["verdict"] == "self-consistent only"


# --- seeds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "policy"), spread(NAMES, ["masks", CLEAR], ALIKE))
def test_a_seed_fixes_the_model_and_another_seed_another(
    name: str, policy: str, recorded: Recorded
) -> None:
    """Runs under four policies give the same bits (above): most need no second run under one."""
    first, other = recorded(name, policy), recorded(name, policy, seed=2)
    if name in {*WHOLE, *EXCUSED}:
        assert same(first, recorded(name, policy, again=1))
    assert not same(first, other)
    if first.result["model_sha256"] is not None:  # None: the aggregator holds no model
        assert first.result["model_sha256"] != other.result["model_sha256"]


def sealed(found: Mapping[bytes, Envelope]) -> list[Envelope]:
    public = ("key.call", "pair.call")  # signed, and with nothing secret in them
    return [e for e in found.values() if e.header.item not in public]


@pytest.mark.parametrize(
    "name", [n if n in WHOLE else pytest.param(n, marks=pytest.mark.long) for n in NAMES]
)
def test_o15_two_runs_of_one_seed_share_no_secret(name: str, recorded: Recorded) -> None:
    """Keys, nonces and blinds come from the operating system, never from the seed."""
    first, again = recorded(name, "he"), recorded(name, "he", again=1)
    one, two = first.envelopes(), again.envelopes()
    assert not set(one) & set(two)
    bodies = [{bytes(e.body) for e in sealed(found)} for found in (one, two)]
    assert bodies[0] and not bodies[0] & bodies[1]
    nonces = [{e.header.nonce for e in found.values()} for found in (one, two)]
    assert not nonces[0] & nonces[1] and len(nonces[0]) == len(one)


@pytest.mark.parametrize(("name", "policy"), quick([(n, p) for n in NAMES for p in POLICIES]))
def test_the_result_has_the_keys_that_were_promised(
    name: str, policy: str, recorded: Recorded
) -> None:
    result = recorded(name, policy).result
    assert set(result) >= KEYS
    assert result["algorithm"] == name and result["rounds"] == 2 and result["clients"] == 5
    assert result["verdict"] == "self-consistent only"
    assert min(result[key] for key in ("bytes_up", "bytes_down", "exchanges")) > 0


@pytest.mark.parametrize("policies", [("he", CLEAR), pytest.param(POLICIES, marks=LONG)], ids=len)
def test_real_data_gives_the_same_model_under_encryption(
    policies: tuple[str, ...], data_root: Path, tmp_path: Path
) -> None:
    results = {}
    for policy in policies:
        example = Path(__file__).resolve().parents[2] / "examples" / "cora.yaml"
        settings = [f"policy={policy}", f"data.root={data_root}", "algorithm.rounds=2"]
        run = Federation.from_config(Config.load(example, settings)).run(tmp_path / policy)
        results[policy] = run.result
        assert set(run.result) >= KEYS
    he = results["he"]
    assert {r["model_sha256"] for r in results.values()} == {he["model_sha256"]} != {None}
    assert all(r["metrics"] == he["metrics"] for r in results.values())
    assert he["metrics"]["test_accuracy"] > 0.3  # the largest class: learning took place
    assert he["data"]["synthetic"] is False
