"""What must hold once MAXIMUM and `fed_share` were dropped into a copy of the tree.

tests/toys/test_maximum.py puts this file into the copy's tests/laws and runs it there.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from algorithms.fed_share import Level
from audits.attacks import attacks
from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import facet
from protocols.errors import NotAdmitted, NotInPlan
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.run_context import RunContext
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking.subject import CLIENTS
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.laws import test_admission as admission
from tests.laws import test_evidence as evidence
from tests.laws import test_resume as resume
from tests.laws import test_wiretap as wiretap
from tests.laws.conftest import Recorded
from tests.laws.killing import play
from tests.laws.runs import config
from tests.protocols.pub import (
    GRID,
    RECEIVE,
    STEP,
    Go,
    Model,
    Portrait,
    Size,
    all_at_once,
    cosines,
    even,
    hand_out,
    models,
    pub,
    received,
    trained,
)
from tests.secure_fgl.cli_tools import invoke

NAME, TOP = "fed_share", 8
RULES = {
    "SUM": [{"guard": "clip"}, {"guard": "quantise"}, {"guard": "mask"}, {"guard": "seal"}],
    "MAXIMUM": [{"guard": "levels", "top": TOP}, {"guard": "seal"}],
    "SEALED": [{"guard": "seal"}],
    "RELEASED": [{"guard": "seal"}],
    "PUBLIC": [{"guard": "sign"}],
}
MAXIMUM = Disclosure("MAXIMUM")


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("policy") / "largest.yaml"
    file.write_text(yaml.safe_dump({"name": "largest", "rules": RULES, "capture": {}}), "utf-8")
    return str(file)


@pytest.fixture
def run(policy: str, recorded: Recorded) -> Run:
    return Run(recorded(NAME, policy).path)


def test_it_is_found_admitted_and_planned(policy: str) -> None:
    assert MAXIMUM in Disclosure and NAME in algorithm_names()
    plan = Federation.from_config(config(NAME, policy)).plan()
    assert plan.form == "shares_of_the_largest" and "maximum" in plan.code
    steps = {item.step for item in plan.all_of(MAXIMUM)}
    assert steps == {Step.UP, Step.OPEN, Step.OPENED}


def test_a_policy_that_does_not_name_it_admits_nothing_with_it(policy: str) -> None:
    """Presets know nothing of it: they take the form without it, and refuse the one with it."""
    _, algorithm = Federation.from_config(config(NAME, policy)).build()
    (with_it, without) = algorithm.forms
    for preset in ("pilot", "masks", "unsafe_plaintext"):
        chosen = PrivacyPolicy.preset(preset)
        assert chosen.admit(algorithm) is without
        with pytest.raises(NotAdmitted) as refused:
            chosen.admit(replace(algorithm, forms=(with_it,)))
        assert "MAXIMUM, which it does not name" in refused.value.why


def test_the_laws_of_algorithms_hold(policy: str, recorded: Recorded) -> None:
    admission.test_admitted_in_some_form(NAME, policy)
    admission.test_every_field_has_shape_unit_and_meaning(NAME, policy)
    admission.test_planned_bytes_are_the_bytes_sent_and_counts_stay_within_times(
        NAME, policy, recorded
    )
    evidence.test_one_entry_at_the_sender_and_one_at_each_receiver(NAME, policy, recorded)
    wiretap.test_a_wiretap_sees_no_clear_payload(NAME, policy, recorded)


def test_it_is_recorded_and_verified(run: Run) -> None:
    verification = run.verify()
    assert verification.verdict == "self-consistent only", verification.steps
    (opened,) = (step.detail for step in verification.steps if step.name == "opened")
    assert "2 MAXIMUM results, opened once" in opened
    entries = run.path.joinpath("ledger", "key-authority.jsonl").read_text("utf-8").splitlines()
    said = [one["disclosure"] for one in map(json.loads, entries) if one["kind"] == "open"]
    assert said == ["MAXIMUM"] * 2


def test_the_report_says_it_in_the_disclosure_s_words(run: Run) -> None:
    text = run.path.joinpath("report", "report.md").read_text("utf-8")
    assert "only the largest of the cohort's integers" in text
    assert "EVERY single integer" in text  # aggregator and key authority together
    limits = facet(MAXIMUM, "words").limits
    assert all(limit[1:40] in text for limit in limits)


def test_attacks_say_whether_they_apply(run: Run, tmp_path: Path) -> None:
    place = Path(shutil.copytree(run.path, tmp_path / "run", symlinks=True))
    found = invoke("audit", "attack", str(place))
    assert place.joinpath("attacks.json").is_file(), (found.output, found.exception)
    rows = json.loads(place.joinpath("attacks.json").read_text("utf-8"))["rows"]
    assert {one.id for one in attacks()} == {row["id"] for row in rows}
    unread = [row["what"] for row in rows if row["reason"].startswith("no attack is written for")]
    assert [what.partition(":")[0] for what in unread] == ["values"]  # what the levels are


def test_a_killed_run_goes_on_to_the_same_result(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    chosen = config(NAME, policy)
    expected = play(chosen, tmp_path / "whole")
    for part in (3, 4):  # while levels are collected or opened, in either round
        out = tmp_path / f"run-{part}"
        at = expected.messages * part // 6
        resume._same(resume._killed_at(chosen, out, at, after=True), expected, out)


def test_it_runs_between_sites_as_in_memory(
    policy: str, recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every party with a folder of its own, in its session of a run between organisations."""
    from tests import forked
    from tests.sites.one_process import played
    from tests.sites.stage import assemble, gather

    forked.use(monkeypatch)
    parties = assemble(config(NAME, policy), tmp_path / "parties")
    played(parties)
    assert parties.result()["model_sha256"] == recorded(NAME, policy).result["model_sha256"]
    assert Run(gather(parties, tmp_path / "run")).verify().verdict == "self-consistent only"


def test_the_maximum_is_that_of_all_clients(policy: str, recorded: Recorded) -> None:
    said = recorded(NAME, policy).said
    levels = [message.level for _, _, message in said if type(message).__name__ == "Level"]
    handed = [message.largest for _, _, message in said if type(message).__name__ == "Start"]
    assert len(levels) == 2 * CLIENTS and len(set(levels)) > 1
    assert handed[0] == 1 and handed[-1] == min(TOP, max(levels))  # one in 2^64: not


def test_other_code_of_a_disclosure_is_another_plan(
    policy: str, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Federation.from_config(config(NAME, policy)).plan()
    other = plan.model_copy(update={"code": {**plan.code, "maximum": "0" * 64}})
    less = plan.model_copy(update={"code": {n: d for n, d in plan.code.items() if n != "maximum"}})
    assert len({plan.digest, other.digest, less.digest}) == 3
    context: RunContext = recorded(NAME, policy).aggregators[0].context
    facts = {name: getattr(context, name) for name in ("me", "roster", "run", "policy")}
    for changed in (other, less):
        with pytest.raises(NotInPlan, match="disclosures/maximum"):
            RunContext(plan=changed, **facts)
    RunContext(plan=plan, **facts)


def test_two_results_and_a_sum_are_opened_in_one_ask() -> None:
    """Levels are added, directions compared and sizes summed, one phase after the other."""
    document = PrivacyPolicy.preset("pilot").document()
    document["rules"]["MAXIMUM"] = RULES["MAXIMUM"]
    chosen = PrivacyPolicy.model_validate({**document, "name": "both"})

    def answer(site: Any, given: Go) -> tuple[Message, ...]:
        return (*all_at_once(site, given), Level(level=site.index + 1))

    train = Exchange("train", (Go,), (Model, Portrait, Size, Level), answer)
    world = pub(chosen, form=Form("both", lambda *_: None, (train, RECEIVE)), clients=8)
    reply = trained(world)
    assert np.abs(reply.similarity(Portrait) - cosines(world)).max() < STEP
    assert reply.total(Size).records == sum(site.count for site in world.sites.values())
    assert reply.read(Level).level == len(world.names)
    hand_out(world, reply.weighted(Model, even(8)))
    assert np.abs(received(world) - models(world).mean(axis=0)).max() < GRID
