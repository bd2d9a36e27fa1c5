"""A11 on planted updates and models: found where nothing hides them, not where noise does.

Trials: 4 to 16 clients of 60 to 200 canaries, a fair coin each; 20 seeds for the null. All draws
are pinned, so nothing here fails by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import Canaries, Exposure, Material, Released, Samples, Truth, attack
from audits.attacks._shared import records_asked
from audits.attacks._shared.verdicts import NotApplicable
from audits.attacks.canaries import ATTACK, PROVED
from audits.elsewhere.sites import figures_of
from audits.evidence.steps import Case
from protocols.privacy.training import TrainingPlan
from tests.audits.attacks.planted import judged

pytestmark = pytest.mark.usefixtures("same_chance")

WIDE = 400  # weights of the planted model
CLAIM = 1.0


class World:
    """Clients whose updates move along the gradients of the canaries that trained.

    Args:
        clients, records: how many, and canaries of each.
        noise: on what the receiver reads of each client, in lengths of a gradient.
        total: the receiver reads the sum over all.
        lift: how far a canary that trained moves its client's model; 0: the attack cannot work.
        seed: of everything, coins included.
    """

    def __init__(
        self,
        clients: int = 8,
        records: int = 60,
        *,
        noise: float = 0.0,
        total: bool = False,
        lift: float = 1.0,
        seed: int = 1,
    ) -> None:
        rng = np.random.default_rng([seed, 11])
        names = [f"client-{n:02d}" for n in range(clients)]
        self.coins = {name: rng.integers(2, size=records).astype(bool) for name in names}
        slopes = rng.normal(size=(clients, records, WIDE)) / np.sqrt(WIDE)
        self.slopes = dict(zip(names, slopes, strict=True))
        self.own = {n: lift * self.coins[n] @ self.slopes[n] + self._rest(rng) for n in names}
        told = {n: v + noise * rng.normal(size=WIDE) for n, v in self.own.items()}
        self.whole = np.sum(list(told.values()), axis=0)
        self.told = {name: self.whole if total else told[name] for name in names}
        self.total = total

    @staticmethod
    def _rest(rng: np.random.Generator) -> np.ndarray:
        return 0.05 * rng.normal(size=WIDE)

    def exposures(self, rounds: int = 1) -> tuple[Exposure, ...]:
        return tuple(
            Exposure(
                client=name, round=number, known={"weights": np.zeros(WIDE)},
                raw={"delta": self.own[name]}, seen={"delta": self.told[name]},
                cohort=len(self.coins) if self.total else 1, truth=Truth(), lr=0.1, steps=1,
            )
            for number in range(1, rounds + 1) for name in self.coins
        )  # fmt: skip

    def canaries(self, **changes: Any) -> Canaries:
        facts: dict[str, Any] = {
            "coins": self.coins,
            "features": {},
            "model": lambda weights: weights,
            "confidence": lambda model, client: self.slopes[client] @ np.asarray(model),
            "alone": lambda client, seed: self.own[client],
            "arrived": frozenset(self.coins),
        }
        return Canaries(**{**facts, **changes})

    def released(self, model: np.ndarray) -> Released:
        none: Mapping[str, Any] = {}
        return Released(
            "node", {}, {"final": model}, none, lambda parts, seed: 0, lambda m, c: np.asarray(m)
        )

    def material(self, case: Any, **changes: Any) -> Material:
        facts = {"canaries": self.canaries(), "exposures": self.exposures(), **changes}
        return Material(case=case, **facts)


def claiming(epsilon: float = CLAIM) -> Any:
    """Return a run that claims to hide single records."""
    plan = TrainingPlan(
        unit="graph", clip="1.0", rate="0.1", batch="8", steps=1, releases=1, levels=1,
        noise="1.0", epsilon=str(epsilon), delta="1e-6",
    )  # fmt: skip
    return SimpleNamespace(
        plan=SimpleNamespace(training=plan, items=()), policy=SimpleNamespace(canaries=object())
    )


def by_what(case: Any, world: World, **changes: Any) -> dict[str, Any]:
    rows = judged(ATTACK, world.material(case, **changes))
    return {f"{row.payload} {str(row.metric).split()[0]} {row.what}": made for row, made in rows}


def test_one_clients_update_without_clip_or_noise_fails(clear: Case) -> None:
    report = attack(World().material(clear, released=World().released(World().whole)), ["A11"])
    message, model = [row for row in report.rows if row.id == "A11"]
    assert (message.verdict, message.payload) == ("FAIL", "P01")
    assert message.protected is not None and float(message.protected.value) > 0.95
    assert "epsilon at least" in message.reason and "ceiling" in message.reason
    assert (model.verdict, model.payload) == ("FAIL", "P19")
    assert not report.claims and "client-" not in report.text()


def test_a_claim_is_falsified_where_nothing_hides_and_not_where_noise_does() -> None:
    found = ATTACK.run(World().material(claiming()), np.random.default_rng(3), "quick")
    (claim,) = found.claims
    assert claim.status == "falsified" and float(claim.epsilon_lb) > CLAIM
    assert claim.trials == 8 * 60 and float(claim.ceiling) > float(claim.epsilon_lb) > 2
    rows = by_what(claiming(), World())
    assert {name: made.verdict for name, made in rows.items()} == {
        "P01 AUC canaries of a client, from its own messages, by loss": "FAIL",
        "P01 epsilon canaries of a client, from its own messages, by loss: graph": "FAIL",
    }
    noised = World(16, 200, noise=60.0, seed=2)
    made = by_what(claiming(), noised)
    assert [one.verdict for one in made.values()] == ["PASS", "PASS"], made
    (claim,) = ATTACK.run(noised.material(claiming()), np.random.default_rng(3), "quick").claims
    assert claim.status == "not_falsified" and float(claim.ceiling) > CLAIM


def test_a_claim_is_not_held_against_a_model_that_stays_at_its_site() -> None:
    """The noise is on what leaves; the shared model is made of that, a client's own is not."""
    world = World()
    own = replace(world.released(world.whole), own=world.own)
    rows = judged(ATTACK, world.material(claiming(), exposures=(), released=own))
    assert [(row.what.partition(", from ")[2], str(row.metric).split()[0]) for row, _ in rows] == [
        ("the final model", "AUC"),
        ("the final model: graph", "epsilon"),
        ("a client's own model", "AUC"),
    ]


def test_noise_in_sums_claims_two_steps_and_noise_of_ones_own_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coin exchanges a client's vector; noise in sums is for one that is there or not."""
    for local, epsilon, delta in ((True, 1.0, 1e-6), (False, 2.0, 1e-6 * (1 + np.e))):
        noise = SimpleNamespace(epsilon="1.0", delta="1e-6", local=local)
        monkeypatch.setattr(records_asked, "noises", lambda items, one=noise: {"sum": one})
        case: Any = SimpleNamespace(plan=SimpleNamespace(training=None, items=()))
        (target,) = records_asked.targets(case)
        assert (target.epsilon, target.unit) == (epsilon, "client")
        assert target.delta == pytest.approx(delta)


def test_a_bound_is_of_all_coins_whatever_side_they_fell_on() -> None:
    """Fair coins are no longer fair once clients are left out for what theirs show."""
    world = World(6, 12)
    world.coins["client-02"][:] = True
    world.coins["client-04"][:] = False
    found = ATTACK.run(world.material(claiming()), np.random.default_rng(3), "quick")
    ranked, proved, *_ = found.rows
    assert isinstance(ranked, Samples) and isinstance(proved, Samples)
    assert proved.positives == 6 * 12  # every canary, both clients' among them
    assert len(ranked.units) == 4 and not {"client-02", "client-04"} & {*ranked.units}
    for name in world.coins:
        world.coins[name][:] = True
    found = ATTACK.run(world.material(claiming()), np.random.default_rng(3), "quick")
    alone, bound, *_ = found.rows
    assert isinstance(alone, NotApplicable) and alone.arises and isinstance(bound, Samples)


def test_totals_and_all_kept_rounds_are_looked_at_together() -> None:
    world = World(total=True)
    rows = judged(ATTACK, world.material(claiming(), exposures=world.exposures(3)))
    assert [(row.payload, row.rounds) for row, _ in rows] == [("P05", (1, 2, 3))] * 2
    assert rows[0][1].verdict == "FAIL" and "totals over the cohort" in rows[0][0].what


def test_a_claim_above_the_ceiling_is_not_tested() -> None:
    """Not even right guesses of all coins could falsify it."""
    rows = by_what(claiming(30.0), World())
    assert [made.verdict for made in rows.values()] == ["FAIL", "INCONCLUSIVE"]
    found = ATTACK.run(World().material(claiming(30.0)), np.random.default_rng(3), "quick")
    assert not found.claims


def test_weakened_it_is_inconclusive_and_never_pass() -> None:
    for made in by_what(claiming(), World(lift=0.0)).values():
        assert made.verdict == "INCONCLUSIVE" and made.reason.startswith("weak attack")


def test_nulls_are_at_chance_in_nineteen_of_twenty_seeds() -> None:
    """Other clients' updates hold none of a client's canaries. The seeds are pinned."""
    above, proved, means = 0, 0, []
    for seed in range(20):
        ranks, held = by_what(claiming(), World(6, 40, seed=seed)).values()
        above += ranks.values["null"].low > 0.5
        proved += held.values["null"].value > 0
        means.append(ranks.values["null"].value)
    assert above <= 1 and proved <= 1
    assert abs(float(np.mean(means)) - 0.5) < 0.02


def test_a_client_whose_updates_never_counted_is_in_no_model_that_was_handed_out() -> None:
    """Its canaries are as if none had trained; its own model, which it trained itself, has them."""
    world = World()
    lost = "client-03"
    there = {name: one for name, one in world.own.items() if name != lost}
    whole = world.released(np.sum(list(there.values()), axis=0))
    released = replace(whole, own=world.own)
    found = {}
    for arrived in (frozenset(world.coins), frozenset(there)):
        given = world.canaries(arrived=arrived)
        material = world.material(claiming(), exposures=(), released=released, canaries=given)
        rows = ATTACK.run(material, np.random.default_rng(3), "quick").rows
        found[lost in arrived] = [row for row in rows if isinstance(row, Samples)]
    for row in found[False]:
        own = "own model" in row.what
        if row.client_clusters:
            assert (lost in row.units) == own and len(row.units) == (8 if own else 7)
        else:
            assert row.positives == 7 * 60
    # The control: counted as a member it is near chance, and takes off what the others give away.
    (first, *_), (without, *_) = found[True], found[False]
    assert first.protected[first.units.index(lost)] < 0.75 < without.protected.min()


def test_of_clients_that_never_counted_no_model_is_asked() -> None:
    world = World()
    given = world.canaries(arrived=frozenset())
    material = world.material(
        claiming(), exposures=(), released=world.released(world.whole), canaries=given
    )
    missing, row = ATTACK.run(material, np.random.default_rng(3), "quick").rows
    assert isinstance(row, NotApplicable) and row.arises and "no model" in row.reason
    assert isinstance(missing, NotApplicable)


def test_who_never_opened_its_coins_is_named_and_the_others_are_judged() -> None:
    world = World()
    gone = "client-03"
    coins = {name: flips for name, flips in world.coins.items() if name != gone}
    given = world.canaries(coins=coins, unopened=(gone,), arrived=frozenset(coins))
    exposures = tuple(one for one in world.exposures() if one.client != gone)
    material = world.material(claiming(), canaries=given, exposures=exposures)
    for row, made in judged(ATTACK, material):
        assert made.verdict == "FAIL" and f"never opened: {gone}" in row.note
        assert gone not in row.units
    for row, _ in judged(ATTACK, world.material(claiming())):
        assert "never opened" not in row.note  # the control
    few = world.canaries(coins={"client-00": coins["client-00"]}, unopened=(gone,))
    (one,) = ATTACK.run(
        world.material(claiming(), canaries=few), np.random.default_rng(3), "quick"
    ).rows
    assert isinstance(one, NotApplicable) and gone in one.reason


def test_at_one_site_drawn_clients_are_controls_and_no_claim_is_held_against_its_model() -> None:
    world = World(5, 200)
    mine, *drawn = world.coins
    given = world.canaries(coins={mine: world.coins[mine]}, controls=tuple(drawn))
    material = world.material(
        claiming(),
        canaries=given,
        released=world.released(world.own[mine]),
        units=frozenset({mine}),
    )
    found = ATTACK.run(material, np.random.default_rng(3), "quick")
    rows = [row for row in found.rows if isinstance(row, Samples)]
    assert [(row.payload, row.units) for row in rows] == [
        ("P01", (mine,)), ("P01", ("graph",)), ("P19", (mine,)),
    ]  # fmt: skip
    assert rows[1].positives == 200 and found.claims[0].status == "falsified"
    assert abs(float(rows[0].null[0]) - 0.5) < 0.1 < 0.4 < float(rows[0].protected[0])


def test_who_knows_the_coins_is_found_by_the_null() -> None:
    """A known flip: every message, other clients' too, agrees with the coins."""
    world = World()
    given = world.canaries(confidence=lambda model, client: world.coins[client] * np.sum(model**2))
    for made in by_what(claiming(), world, canaries=given).values():
        assert made.verdict == "INVALID"


def test_without_canaries_it_does_not_apply_and_with_lost_ones_it_is_not_tested(
    clear: Case,
) -> None:
    (row,) = [r for r in attack(Material(case=clear), ["A11"]).rows if r.id == "A11"]
    assert row.verdict == "NOT_APPLICABLE" and "canaries: {records" in row.reason
    lost = Material(case=claiming(), uncoined="the data cannot be read here")
    (gone,) = ATTACK.run(lost, np.random.default_rng(3), "quick").rows
    assert gone.arises and gone.reason == "the data cannot be read here"  # type: ignore[union-attr]
    alone = World(1)
    (one,) = ATTACK.run(alone.material(claiming()), np.random.default_rng(3), "quick").rows
    assert one.arises and "two clients" in one.reason  # type: ignore[union-attr]


def test_messages_of_a_part_of_a_model_are_not_tested() -> None:
    world = World()
    parts = tuple(replace(one, known={"weights": np.zeros(WIDE + 1)}) for one in world.exposures())
    found = ATTACK.run(
        world.material(claiming(), exposures=parts), np.random.default_rng(3), "quick"
    )
    assert "no whole model" in found.rows[0].reason  # type: ignore[union-attr]


def test_its_rules_hold_a_claim() -> None:
    assert PROVED in ATTACK.rules and PROVED.claims and PROVED.metric.startswith("epsilon")


def test_claims_of_canaries_go_with_their_own_attack_alone(clear: Case) -> None:
    """What a site hands on is what the policy lets it, claims too."""
    (of_canaries,) = ATTACK.run(
        World().material(claiming()), np.random.default_rng(3), "quick"
    ).claims
    of_noise = of_canaries.model_copy(update={"text": "noise: epsilon 1; as a function"})
    found = attack(World().material(clear), ["A11"])
    found = found.model_copy(update={"claims": (of_canaries, of_noise)})
    for share, told in (
        (("A11",), (of_canaries,)),
        (("A10",), (of_noise,)),
        (("A10", "A11"), (of_canaries, of_noise)),
        (("A05",), ()),
    ):
        assert figures_of(found, "client-00", share).attacks.claims == told
