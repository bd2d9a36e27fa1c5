"""Cosines and rows in the evidence: witnessed, opened once and whole, or the step fails (O4)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import Site
from audits.evidence.verify import verify
from audits.report.build import build_report
from crypto.homomorphic.weighted import flatten
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum import aggregator as weighing
from protocols.disclosures.weighted_sum import disclosure as views
from protocols.forms import Algorithm, Form
from protocols.messages import SumMessage, count
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Round
from protocols.sessions.survivors import Openings
from tests.audits.forging import edit_last, entries_of, forge
from tests.audits.toy_run import Bus, Lose, Toy, lose, run_toy
from tests.thinned import thinned
from tests.toys.weighted_sum import Go, Model, Portrait, softmax, weighted_sum

SIX = tuple(f"client-{i}" for i in range(1, 7))


def site(name: str) -> Any:
    """Return a site whose model and portrait are its own."""
    rng = np.random.default_rng(int(name[-1]))
    facts = {"weights": rng.normal(size=7), "bias": 0.5, "outputs": rng.normal(size=3)}
    return Site(SimpleNamespace(**facts), seed=1)


def run(policy: str | PrivacyPolicy = "pilot", losing: Lose | None = None, rounds: int = 2) -> Toy:
    toy = weighted_sum(d=7, p=3)
    return run_toy(policy, rounds=rounds, clients=SIX, site=site, algorithm=toy, losing=losing)


@pytest.fixture(scope="module")
def honest() -> Toy:
    return run()


def detail(toy: Toy, name: str) -> str:
    (step,) = [s for s in verify(toy.view()).steps if s.name == name]
    return step.detail


@pytest.mark.parametrize("policy", ["pilot", "masks", "ckks", "unsafe_plaintext"])
def test_an_honest_run_verifies(policy: str, honest: Toy) -> None:
    toy = honest if policy == "pilot" else run(policy)
    assert verify(toy.view()).ok
    said = detail(toy, "opened")
    if policy == "unsafe_plaintext":
        assert "witnessed" not in said
    else:
        assert "4 results of cosines or weights, each witnessed, opened once" in said
        wanted = {"pilot": 3, "masks": 2, "ckks": 3}[policy]
        assert detail(toy, "keys").startswith(f"{wanted} keys, each made and destroyed once; 24")


def test_o10_the_report_says_that_weights_were_flattened(honest: Toy) -> None:
    assert "rows of weights flattened" in detail(honest, "opened")
    found = [f for f in build_report(honest.view()).findings if f.rule == "WEIGHTS_FLATTENED"]
    assert len(found) == 1 and "of 12 rows" in found[0].message and found[0].severity == "info"
    data = honest.stores["aggregator"].lines
    assert b'"flattened":["client-' in data


def test_o10_the_report_says_when_rows_together_cover_everybody(honest: Toy) -> None:
    many = run(rounds=6)
    found = [
        [f for f in build_report(toy.view()).findings if f.rule == "ROWS_RANK"]
        for toy in (honest, many)
    ]
    # The toy's weights stay what they are, so one round tells as much as six.
    assert found == [[], []]
    entries = entries_of(many.stores["aggregator"].lines)
    assert [(e["rank"], e["solved"]) for e in entries if "rank" in e] == [(1, 0)] * 6
    for party, kind in (("aggregator", "weights"), ("witness-1", "witness")):
        view = forge(many, many.view(reports=False), party, edit_last(kind, rank=2, solved=1))
        (told,) = [f for f in build_report(view).findings if f.rule == "ROWS_RANK"]
        assert "From round 6 on" in told.message and told.severity == "medium"
        assert "up to 1 of them" in told.message


def test_o10_an_aggregator_cannot_keep_silent_about_what_rows_tell(monkeypatch):
    """It says so at the time, so that no receipt shows it. The witness saw every table, too."""
    real = weighing.facts_of_rows
    for lie in ({"rank": 0}, {"group": 5000}, {"table": "ab" * 32}):
        monkeypatch.setattr(weighing, "facts_of_rows", lambda *a, lie=lie: {**real(*a), **lie})
        said = failed(run().view(reports=False))
        assert said.startswith("opened: ") and "(O10)" in said, said
    monkeypatch.setattr(weighing, "facts_of_rows", lambda *a: {**real(*a), "rank": 5})
    assert verify(run().view()).ok  # more is no lie: rows may be lost before a witness sees them


def test_o10_what_was_flattened_is_the_aggregators_word(honest, monkeypatch):
    real = views.Mixture.__init__

    def silent(mixture, kind, source, table, flattened):
        real(mixture, kind, source, table, ())

    assert "flattened, as the aggregator states" in detail(honest, "opened")
    (told,) = [f for f in build_report(honest.view()).findings if f.rule == "WEIGHTS_FLATTENED"]
    assert "as the aggregator states" in told.message
    monkeypatch.setattr(views.Mixture, "__init__", silent)
    toy = run()
    assert verify(toy.view()).ok and "flattened" not in detail(toy, "opened")


@pytest.mark.parametrize(
    ("bare", "said"),
    [
        ((), "4 results of cosines or weights, each witnessed, opened once"),
        (("SIMILARITY",), "SIMILARITY NOT witnessed (the policy asks for no witness), opened once"),
        (("SIMILARITY", "WEIGHTED_SUM"), "weights, NOT witnessed (the policy asks for no witness)"),
    ],
)
def test_o4_the_evidence_says_what_nobody_witnessed(bare: tuple[str, ...], said: str) -> None:
    document = PrivacyPolicy.preset("pilot").document()
    for name in bare:
        for guard in document["rules"][name]:
            if "witnesses" in guard:
                guard["witnesses"] = 0
    toy = run(PrivacyPolicy.model_validate({**document, "name": "bare"}))
    assert verify(toy.view()).ok
    assert said in detail(toy, "opened")
    assert ("each witnessed" in detail(toy, "opened")) == (not bare)


def test_o5_rows_over_fewer_than_the_cosines_of_the_same_answers_do_not_verify(monkeypatch):
    """Whatever the authority did: what was opened is not over what had arrived."""
    real, asked = weighing.Weighing._weigh, Openings.once
    kept: dict[int, list[Any]] = {}

    def less_one(session, held, mixture):
        del session._uploads.uploads["client-6"]
        done = flatten(np.full((5, 5), 0.2), 3)
        fewer = views.Mixture(mixture.kind, mixture._source, done.table, done.flattened)
        session._asked.hold(replace(held, members=held.members[:5]))
        return real(session, session._asked.held, fewer)

    def each_alone(session, *facts):
        session.opened = kept
        asked(session, *facts)
        kept.clear()

    monkeypatch.setattr(weighing.Weighing, "_weigh", less_one)
    monkeypatch.setattr(Openings, "once", each_alone)
    said = failed(run(rounds=1).view(reports=False))
    assert said.startswith("opened: ") and "had arrived" in said, said


def test_o30_every_role_has_its_view(honest: Toy) -> None:
    listed = build_report(honest.view()).views
    views = {view.viewer: view.sees for view in listed}
    assert len(views) == len(listed)
    assert any("that the matrix was computed" in seen for seen in views["witness"])
    assert any("cosines" in seen for seen in views["key_authority"])
    for pair in ("aggregator and key authority", "witness and key authority"):
        assert any("EVERY single message" in seen for seen in views[pair])


class Size(SumMessage):
    records: int = count(unit="record", meaning="records")


def counted() -> Algorithm[Go]:
    """Return the toy with a sum beside portraits and models."""
    base = weighted_sum(d=7, p=3)
    models, receive = (exchange.answer for exchange in base.forms[0].exchanges)

    def train(site: Site, given: Go) -> tuple[Model, Portrait, Size]:
        return *models(site, given), Size(records=5)

    def round(state: Go, cohort: Cohort) -> Round[Go]:
        reply = yield Ask(cohort, given=state, back=(Model, Portrait, Size))
        assert reply.total(Size).records == 30
        yield Ask(cohort, given=reply.weighted(Model, softmax(reply.similarity(Portrait))))
        return Go(step=state.step + 1)

    form = Form.of("personal", round, answers={Go: train, Model: receive})
    return replace(base, forms=(form,))


@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_o30_the_report_does_not_say_two_things_of_those_who_collude(policy: str) -> None:
    toy = run_toy(policy, rounds=1, clients=SIX, site=site, algorithm=counted())
    assert verify(toy.view()).ok
    listed = build_report(toy.view()).views
    views = {view.viewer: view.sees for view in listed}
    assert len(views) == len(listed)
    both, client = views["aggregator and key authority"], views["aggregator and one client"]
    assert both[0] == "EVERY single message that is compared or weighed"
    assert (len(both) == 2) == (policy == "pilot")
    assert all(seen.startswith("of sums no more than") for seen in both[1:])
    assert "nothing else of a single client" not in "".join(client)
    for pair in ("aggregator and one client", "witness and one client"):
        assert any("epoch's key" in seen for seen in views[pair])
    assert "one coordinate" in views["key authority and one client"][0]


@pytest.mark.parametrize(
    ("party", "item"),
    thinned(
        [
            ("witness-1", ".witness.SIMILARITY"),
            ("witness-1", ".witnessed.SIMILARITY"),
            ("key-authority", ".opened.SIMILARITY"),
            ("key-authority", ".open.SIMILARITY"),
            ("witness-1", ".witnessed.WEIGHTED_SUM"),
            ("witness-1", ".witness.WEIGHTED_SUM"),
            ("key-authority", ".open.WEIGHTED_SUM"),
            ("key-authority", ".opened.WEIGHTED_SUM"),
        ],
        3,
    ),
)
def test_a_lost_result_costs_its_round_and_the_evidence_explains_it(party: str, item: str) -> None:
    toy = run(losing=lose(party, item, round=1))
    assert toy.lost == [1] and verify(toy.view()).ok, verify(toy.view()).steps
    assert f"1 envelope lost with clients that vanished: {party}" in detail(toy, "receipts")
    assert "1 round skipped" in detail(toy, "opened")


@pytest.mark.parametrize("item", [".up.SIMILARITY", "receive.down"])
def test_a_client_that_vanishes_is_not_in_the_result(item: str) -> None:
    toy = run(losing=lose("client-3", item, round=1))
    assert toy.lost == [] and verify(toy.view()).ok, verify(toy.view()).steps


@pytest.mark.parametrize(
    ("until", "delivered"),
    thinned(
        [
            (until, delivered)
            for until in (
                "train.witness.SIMILARITY",
                "train.open.SIMILARITY",
                "receive.witness.WEIGHTED_SUM",
                "receive.open.WEIGHTED_SUM",
                "receive.down",
            )
            for delivered in (False, True)
        ],
        5,
    ),
)
def test_a_run_that_was_cut_short_verifies(until: str, delivered: bool) -> None:
    class Cut(Exception):
        pass

    bus = Bus(PrivacyPolicy.preset("pilot"), 2, SIX, site, True, weighted_sum(d=7, p=3))

    def cutting(header: Any, to: str) -> bool:
        if header.item == until and header.round == 2 and not delivered:
            raise Cut
        if header.round == 2 and delivered and header.exchange == cutting.number:  # type: ignore
            raise Cut
        if header.item == until and header.round == 2:
            cutting.number = header.exchange  # type: ignore[attr-defined]
        return False

    cutting.number = -1  # type: ignore[attr-defined]
    bus.lose = cutting
    with pytest.raises(Cut):
        bus.play(2)
    view = bus.finish(whole=False).view()
    assert verify(view).ok, [s for s in verify(view).steps if s.status == "FAIL"]


# --- forged ---------------------------------------------------------------------------------------


def failed(view: Any) -> str:
    step = verify(view).failed
    assert step is not None
    return f"{step.name}: {step.detail}"


def without(kind: str, place: int = -1) -> Any:
    def change(entries: list[Any]) -> list[Any]:
        numbers = [n for n, entry in enumerate(entries) if entry["kind"] == kind]
        return [entry for n, entry in enumerate(entries) if n != numbers[place]]

    return change


def again(kind: str) -> Any:
    def change(entries: list[Any]) -> list[Any]:
        (*_, last) = [entry for entry in entries if entry["kind"] == kind]
        return [*entries[:-1], last, entries[-1]]

    return change


CASES = [
    ("witness-1", without("witness"), "witnessed by 0 of the policy's 1"),
    ("witness-1", edit_last("witness", digest="ab" * 32), "witnessed by 0 of the policy's 1"),
    ("witness-1", again("witness"), "witnessed twice"),
    ("witness-1", edit_last("witness", table="ab" * 32), "other weights than witness-1"),
    ("witness-1", edit_last("witness", rank=9), "more of single clients"),
    ("witness-1", edit_last("witness", solved=9), "more of single clients"),
    ("aggregator", edit_last("weights", table="ab" * 32), "other weights than witness-1"),
    ("aggregator", edit_last("weights", rank=0), "more of single clients"),
    ("key-authority", edit_last("open", digest="ab" * 32), "witnessed by 0 of the policy's 1"),
    ("key-authority", edit_last("open", survivors=5), "not over the uploads that had arrived"),
    ("key-authority", edit_last("open", survivors=3), "is over 3 clients"),
    ("key-authority", edit_last("open", uploads=1), "uploads from elsewhere"),
    ("key-authority", edit_last("open", uploads=99), "no such exchange"),
    ("key-authority", edit_last("open", disclosure="SIMILARITY"), "nobody asked for it"),
    ("key-authority", edit_last("open", disclosure="SUM"), "no such exchange"),
    ("key-authority", again("open"), "opened before"),
    ("key-authority", without("open"), "unrecorded"),
    ("aggregator", without("weights"), "did not record"),
    ("aggregator", edit_last("weights", flattened=["client-9"]), "did not record"),
    ("aggregator", edit_last("weights", receivers=5), "did not record"),
]


@pytest.mark.parametrize(("party", "change", "what"), CASES)
def test_o4_a_forged_record_of_a_result_is_found(
    honest: Toy, party: str, change: Any, what: str
) -> None:
    view = forge(honest, honest.view(reports=False), party, change)
    said = failed(view)
    assert said.startswith(("opened: ", "receipts: ", "witnesses: ")), said
    if said.startswith("opened: "):
        assert what in said


def test_o10_a_witness_says_what_weights_it_was_shown_and_of_cosines_nothing(honest: Toy) -> None:
    def last(disclosure: str, **facts: object) -> Any:
        def change(entries: list[Any]) -> list[Any]:
            places = [n for n, e in enumerate(entries) if e.get("disclosure") == disclosure]
            place = max(n for n in places if entries[n]["kind"] == "witness")
            there = {**entries[place], **facts}
            there = {name: value for name, value in there.items() if value is not None}
            return [*entries[:place], there, *entries[place + 1 :]]

        return change

    told = {"rank": 1, "solved": 0, "table": "ab" * 32}
    for change in (
        *(last("WEIGHTED_SUM", **{name: None}) for name in told),
        last("WEIGHTED_SUM", **dict.fromkeys(told)),
        last("SIMILARITY", **told),
    ):
        said = failed(forge(honest, honest.view(reports=False), "witness-1", change))
        assert said.startswith("chain: ") and "exactly the facts" in said, said


def test_o4_the_policy_decides_how_many_witnesses(honest: Toy) -> None:
    """The step itself, on a case whose policy asked for two."""
    from audits.checks.results import results
    from audits.evidence.steps import Case
    from protocols.errors import EvidenceError

    case = Case(honest.view(reports=False))
    document = case.policy.document()
    for name in (Disclosure.SIMILARITY, Disclosure.WEIGHTED_SUM):
        for guard in document["rules"][name]:
            if "witnesses" in guard:
                guard["witnesses"] = 2
    case.__dict__["policy"] = PrivacyPolicy.model_validate(document)
    with pytest.raises(EvidenceError, match="witnessed by 1 of the policy's 2"):
        results(case)
