"""What a report says of a run that compares and weighs: each kind by itself, and its limits."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import ClientModel, Site
from audits.attacks import attack
from audits.attacks._shared.material import Material
from audits.attacks._shared.payloads import payloads_of
from audits.evidence.steps import Case
from audits.formats import render
from audits.report.build import build_report
from audits.report.limits import limits
from audits.report.models import Report
from protocols.disclosures._evaluated.disclosure import CRAFTED, UNWITNESSED
from protocols.disclosures._evaluated.uploads import facts_of_rows
from protocols.disclosures.similarity.disclosure import COSINES
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR
from protocols.disclosures.weighted_sum.disclosure import ROWS
from protocols.errors import NotAdmitted
from protocols.forms import Algorithm, Form
from protocols.messages import ReleasedMessage, SumMessage, count
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Round
from secure_fgl.cli._shared.plan_tables import _head
from secure_fgl.cli.run import _summary
from secure_fgl.store.files import Folder
from tests.audits.toy_run import Toy, lose, run_toy
from tests.protocols.pub import changed
from tests.toys.weighted_sum import Go, Model, Portrait, softmax, weighted_sum

SIX = tuple(f"client-{i}" for i in range(1, 7))


class Close(ReleasedMessage):
    """Asks for the scores."""

    step: int = count(unit="round", meaning="rounds done so far")


class Score(SumMessage):
    """How many of a client's test records are classified rightly."""

    right: int = count(unit="record", meaning="test records classified rightly")


def mixing() -> Algorithm[Go]:
    """Return a toy whose clients are compared, weighed, and scored by sums."""

    def train(site: Site, given: Go) -> tuple[Model, Portrait]:
        own = site.data
        return Model(weights=own.weights, bias=own.bias), Portrait(outputs=own.outputs)

    def round(state: Go, cohort: Cohort) -> Round[Go]:
        reply = yield Ask(cohort, given=state, back=(Model, Portrait))
        alpha = softmax(3.0 * reply.similarity(Portrait))
        yield Ask(cohort, given=reply.weighted(Model, alpha))
        yield Ask(cohort, given=Close(step=state.step), back=Score)
        return Go(step=state.step + 1)

    def receive(site: Site, given: Model) -> None:
        return None

    def score(site: Site, given: Close) -> Score:
        return Score(right=3)

    answers: Any = {Go: train, Model: receive, Close: score}
    return Algorithm(
        name="mixing",
        citation="none",
        init=lambda rng: Go(step=0),
        model=lambda site, given: ClientModel((np.zeros(0, np.float32),)),
        forms=(Form.of("personal", round, answers=answers),),
        dims={"d": 7, "p": 3},
    )


def site(name: str) -> Any:
    rng = np.random.default_rng(int(name[-1]))
    facts = {"weights": rng.normal(size=7), "bias": 0.5, "outputs": rng.normal(size=3)}
    return Site(SimpleNamespace(**facts), seed=1)


def run(policy: str | PrivacyPolicy = "pilot", **facts: Any) -> Toy:
    rounds = facts.pop("rounds", 2)
    return run_toy(policy, rounds=rounds, clients=SIX, site=site, algorithm=mixing(), **facts)


@pytest.fixture(scope="module")
def honest() -> Toy:
    return run()


@pytest.fixture(scope="module")
def told(honest: Toy) -> Report:
    return build_report(honest.view(reports=False))


def test_the_first_paragraph_names_all_that_the_clients_computed(told: Report) -> None:
    said = told.summary
    assert (
        "12 envelopes of these carried what the clients computed, Model (encrypted, only weighted "
        "rows opened, sealed): each client got one weighted combination of them a round, over at "
        "least 3 others in effect, or of its own alone." in said
    )
    assert (
        "12 envelopes of these carried what the clients computed, Portrait (encrypted, only "
        "cosines opened, sealed): a matrix of cosines a round went to the aggregator and the key "
        "authority." in said
    )
    assert (
        "12 envelopes of these carried what the clients computed, Score (masked and encrypted sum, "
        "sealed): the smallest total that was opened is over 6 clients" in said
    )


def test_the_first_paragraph_says_what_was_never_opened() -> None:
    losing = lose("witness-1", ".witness.SIMILARITY")
    said = build_report(run(losing=losing, rounds=1).view(reports=False)).summary
    assert "no cosine of them was opened" in said and "a matrix of cosines" not in said
    assert "no combination of them was handed out" in said and "each client got" not in said


def test_the_smallest_total_is_of_totals_and_not_of_rows_or_cosines() -> None:
    """Six are compared, weighed and scored; no total is opened of a round that one left (O5)."""
    for losing, smallest in ((None, "6 clients"), (lose("client-3", "score.down"), "none was")):
        report = build_report(run(losing=losing).view(reports=False))
        facts = {fact.name: fact.value for fact in report.scope.data}
        assert facts["Smallest cohort whose total was opened"] == smallest
    toy = weighted_sum(d=7, p=3)
    bare = run_toy("pilot", rounds=1, clients=SIX, site=site, algorithm=toy).view(reports=False)
    facts = {fact.name: fact.value for fact in build_report(bare).scope.data}
    assert facts["Smallest cohort whose total was opened"] == "none was"


def test_the_limits_repeat_what_the_plan_warns_of(honest: Toy, told: Report) -> None:
    for warning in (COSINES, ROWS, CRAFTED):
        assert warning in honest.plan.warnings
        assert sum(warning[1:] in limit for limit in told.limits) == 1
    apart = "must not collude with the key authority"
    assert sum(apart in limit for limit in told.limits) == 1
    sums = run_toy("pilot", rounds=1)
    bare = limits(sums.plan, simulated=True)
    assert not any(w[1:] in limit for w in (COSINES, ROWS, CRAFTED, apart) for limit in bare)


def test_what_is_known_without_a_test_names_rows_and_cosines(told: Report) -> None:
    (line,) = [x for x in told.verdict_strip if x.question == "Can a person be singled out?"]
    assert line.answer.endswith(
        "Known without a test: the totals of each cohort are disclosed as they are; each client "
        "gets weighted combinations of others' messages; the aggregator and the key authority get "
        "the cosine of every two clients."
    )


def test_o4_a_policy_without_witnesses_is_a_high_finding_with_its_reason(told: Report) -> None:
    assert "UNWITNESSED" not in {f.rule for f in told.findings}
    assert not any(UNWITNESSED[1:] in limit for limit in told.limits)
    toy = run(changed(witnesses=0))
    assert UNWITNESSED in toy.plan.warnings and ACTIVE_AGGREGATOR not in toy.plan.warnings
    bare = build_report(toy.view(reports=False))
    (finding,) = [f for f in bare.findings if f.rule == "UNWITNESSED"]
    assert finding.severity == "high" and "witnesses: 1" in finding.remediation
    assert any(UNWITNESSED[1:] in limit for limit in bare.limits)
    # Its sums are masked: the finding about bare sums, and its remedy, would mislead.
    assert "ACTIVE_AGGREGATOR" not in {f.rule for f in bare.findings}
    assert not any("sums are not masked" in limit for limit in bare.limits)


def test_totals_that_were_attacked_do_not_make_rows_tested(honest: Toy) -> None:
    case = Case(honest.view(reports=False))
    found = attack(Material(case=case))
    tested = {row.payload for row in found.rows if row.prior is not None}
    assert "P05" in tested
    why = {one.payload: one.why for one in found.not_tested}
    assert why["P21"].startswith("A04: ")  # which had no captures to look at here
    view = honest.view(reports=False)
    attacked = build_report(replace(view, attacks_text=found.text().encode()))
    (finding,) = [f for f in attacked.findings if (f.rule, f.payload) == ("NOT_TESTED", "P21")]
    assert finding.severity == "low"  # so that --strict counts it


def test_payloads_of_what_is_compared_and_weighed(honest: Toy) -> None:
    found = {item.id: payloads_of(item, honest.plan, honest.policy) for item in honest.plan.items}
    assert found["train.up.WEIGHTED_SUM"] == ("P21", "P04") == found["receive.down"]
    assert found["train.up.SIMILARITY"] == ("P15", "P04") == found["train.open.SIMILARITY"]
    assert found["train.opened.SIMILARITY"] == ("P15",)
    assert found["receive.witness.WEIGHTED_SUM"] == ("P15", "P04")
    assert found["receive.opened.WEIGHTED_SUM"] == ("P04",) == found["train.witness.SIMILARITY"]
    assert found["train.witnessed.SIMILARITY"] == ("P18",)
    clear = run("unsafe_plaintext", rounds=1)
    found = {item.id: payloads_of(item, clear.plan, clear.policy) for item in clear.plan.items}
    assert found["train.up.WEIGHTED_SUM"] == ("P01",)
    assert found["train.up.SIMILARITY"] == ("P14",)
    assert found["receive.down"] == ("P21",)


def test_what_left_in_clear_is_told_by_who_receives_it() -> None:
    report = build_report(run("unsafe_plaintext", rounds=1).view(reports=False))
    said = {f.item: f.message for f in report.findings if f.rule == "UNSAFE_CLEAR"}
    assert "the aggregator can read every single message" in said["train.up.WEIGHTED_SUM"]
    assert "the network can read what each client was sent" in said["receive.down"]
    assert "every single message" not in said["receive.down"]


def test_o10_every_rounds_rows_stand_in_the_report(honest: Toy, told: Report) -> None:
    assert [row.round for row in told.rows] == [1, 2]
    first, second = told.rows
    assert (first.receivers, first.others, first.rank, first.solved) == (6, 5, 1, 0)
    assert 3.0 <= float(first.group) <= 5.0 and first.group == second.group
    assert sum(row.flattened for row in told.rows) > 0
    page, text = (data.decode() for data in render(told, ["html", "md"]).values())
    assert "Weighted rows, round by round" in page and f'<td class="num">{first.group}</td>' in page
    assert "**Weighted rows, round by round**" in text
    assert f"| 1 | 6 | {first.flattened} | {first.group} | 1 of 5 | 0 |" in text
    sums = render(build_report(run_toy("pilot", rounds=1).view(reports=False)), ["html", "md"])
    assert not any(b"Weighted rows" in data for data in sums.values())


def test_o10_the_smallest_group_is_what_a_witness_saw(honest: Toy) -> None:
    ledger_index = Case(honest.view(reports=False)).ledger_index
    told = [entry["group"] for _, entry in ledger_index.of_kind("weights")]
    seen = [entry["group"] for _, entry in ledger_index.of_kind("witness") if "group" in entry]
    assert told == seen and len(told) == 2 and all(group >= 3000 for group in told)


@pytest.mark.parametrize(
    ("rows", "group"),
    [
        ([[0, 64, 64, 0], [128, 0, 0, 0], [0, 0, 128, 0], [32, 32, 32, 32]], 1000),
        ([[128, 0], [0, 128]], 0),
        ([[32, 32, 32, 32], [32, 32, 32, 32], [32, 32, 32, 32], [32, 32, 32, 32]], 3000),
        ([[64, 16, 48], [0, 128, 0], [0, 0, 128]], 1600),
    ],
)
def test_o10_the_smallest_group_is_of_the_others_only(rows: list[list[int]], group: int) -> None:
    assert facts_of_rows([np.array(rows)], [bytes(32)])["group"] == group


def test_o10_the_plan_says_from_which_round_on_rows_may_tell_everybody() -> None:
    few, many = run(rounds=4), run(rounds=5)
    assert not any("from round" in warning for warning in few.plan.warnings)
    (told,) = [warning for warning in many.plan.warnings if "from round" in warning]
    assert told.startswith("from round 5 on") and "(5)" in told
    assert any("from round 5 on" in text.lower() for text in limits_of(many))


def limits_of(toy: Toy) -> tuple[str, ...]:
    return limits(toy.plan, simulated=True)


def test_a_step_and_a_seed_are_called_no_model(honest: Toy) -> None:
    said = {item.id: item.learns.get("client", "") for item in honest.plan.items}
    assert said["train.down"] == "flags, counters and public seeds; no model"
    assert "global model" not in " ".join(said.values())
    model = run_toy("pilot", rounds=1).plan.item("step.down").learns["client"]
    assert "global model" in model


def test_what_encrypts_cosines_and_rows_is_named(told: Report) -> None:
    facts = {fact.name: fact.value for fact in told.scope.data}
    assert facts["Encryption of what is compared"] == "ckks-cosine"
    assert facts["Encryption of what is weighed"] == "bfv-weighted"
    sums = build_report(run_toy("pilot", rounds=1).view(reports=False))
    assert not any(fact.name.startswith("Encryption of") for fact in sums.scope.data)


def test_the_plans_head_names_all_encryptions_and_who_else_takes_much(honest: Toy) -> None:
    head = dict(_head(honest.plan))
    assert head["policy"] == (
        "pilot, sums under masks inside bfv-sealapi, what is weighed under bfv-weighted, what is "
        "compared under ckks-cosine"
    )
    assert head["witness"].startswith("takes at most ") and "gives at most" in head["key authority"]
    sums = dict(_head(run_toy("pilot", rounds=1).plan))
    assert sums["policy"] == "pilot, sums under masks inside bfv-sealapi"
    assert not {"witness", "key authority"} & set(sums)


def test_a_refusal_names_all_that_is_missing_once_and_who_admits_it() -> None:
    policy = PrivacyPolicy.preset("calibrated")
    algorithm = mixing()
    (form,) = algorithm.forms
    twice = replace(algorithm, forms=(form, replace(form, name="impersonal")))
    with pytest.raises(NotAdmitted) as error:
        policy.admit(twice)
    assert error.value.why == (
        "forms 'personal', 'impersonal': message Model needs WEIGHTED_SUM and message Portrait "
        "needs SIMILARITY, which it does not name"
    )
    assert "of the presets pilot, he, shuffled, masks, strict, ckks do" in str(error.value.fix)


def test_pictures_cut_no_item_and_no_protection(told: Report) -> None:
    page = render(told, ["html"])["report.html"].decode()
    assert ">receive.witness.WEIGHTED_SUM<" in page and "aggregator → witness, " in page
    figure = page[page.index('aria-labelledby="flows-title') :].partition("</svg></figure>")[0]
    lines = re.findall(r'class="soft">([^<]+)<', figure)
    assert any("more" in line for line in lines) and not any("…" in line for line in lines)


def test_the_end_of_a_run_says_whose_bytes_and_why_there_is_no_model(capsys, tmp_path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "aggregator.jsonl").write_bytes(b"")
    metrics = {"best_round": 1, "test_accuracy": 0.5, "val_accuracy": 0.5}
    result = {
        **{"metrics": metrics, "data": {"synthetic": False}, "bytes_up": 2000, "bytes_down": 1000},
        **{"wall_s": 1.0, "protect_s": 0.5, "model_sha256": "", "verdict": "self-consistent only"},
    }
    ended = SimpleNamespace(result=result, path=tmp_path, folder=Folder(tmp_path))
    _summary(ended, "test_accuracy")  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "clients sent" in said and "2.0 kB, all together, and got 1.0 kB" in said
    assert "none: each client has its own" in said
