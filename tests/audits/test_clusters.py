"""Ledgers show by which cuts a run's clients fell into clusters, and that nobody was set apart."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from audits.formats import FORMATS, render
from audits.report.build import build_report
from audits.report.sections import Clustering
from protocols.clusters import Cut
from protocols.evidence.ledger import Entry
from protocols.rounds import Ask, Cohort
from protocols.sessions.clusters import ClusterHistory
from tests.audits.forging import Change, rewrite
from tests.audits.lies import both, drop, finds, matches, setting
from tests.audits.report_tools import Page
from tests.audits.toy_run import Bus, Toy, run_toy
from tests.protocols.toys import changed_policy
from tests.toys.clusters import Centre, Update, clusters

EIGHT = tuple(f"client-{n}" for n in range(1, 9))
CUT = {"kind": "cut"}
TOLD = {"kind": "cluster"}


def site(name: str) -> SimpleNamespace:
    """Let clients with odd numbers pull one way, and all others the other way."""
    number = int(name.rpartition("-")[2])
    noise = np.random.default_rng(number).normal(0, 0.01, 8)
    return SimpleNamespace(data=SimpleNamespace(change=(0.2 if number % 2 else -0.2) + noise))


@pytest.fixture(scope="module")
def made() -> Toy:
    places: object = site
    return run_toy("masks", rounds=2, clients=EIGHT, site=places, algorithm=clusters(d=8))


def detail(view: RunView) -> str:
    return next(step.detail for step in verify(view).steps if step.name == "opened")


def test_o5_a_run_with_signed_cuts_verifies_and_says_so(made: Toy) -> None:
    view = made.view()
    assert verify(view).ok, verify(view).failed
    assert "clusters of 8 clients; from round 2 on 4, 4, by signed cuts" in detail(view)
    index = LedgerIndex.read(view.ledgers, made.plan)
    assert len([*index.of_kind("cut")]) == 1 and len([*index.of_kind("cluster")]) == 8
    report = build_report(view)
    assert any("Clients are split by these cosines" in limit for limit in report.limits)


ALL = Clustering(round=1, sizes=(8,), apart=0, signed=())
HALVES = Clustering(round=2, sizes=(4, 4), apart=0, signed=(1,))


def test_a_report_shows_the_clusters_over_the_rounds_and_by_whose_word(made: Toy) -> None:
    report = build_report(made.view())
    assert report.clusters is not None
    assert report.clusters.rows == (ALL, HALVES)
    assert (report.clusters.signed, report.clusters.unused) == (True, 0)
    files = render(report, FORMATS)
    assert files == render(build_report(made.view()), FORMATS)
    assert "| 2 | 2 | 4, 4 | 0 | 1 |" in files["report.md"].decode()
    page = files["report.html"].decode()
    assert page.count('<rect class="cluster"') == 3 and "By signed cuts" in page
    assert page.index('<svg class="clusters"') < page.index("Clusters over the rounds<small>")
    assert Page(page).open == []


def test_a_split_by_the_aggregators_word_is_told_as_one() -> None:
    places: object = site
    toy = run_toy("unsafe_plaintext", rounds=2, clients=EIGHT, site=places, algorithm=clusters(d=8))
    report = build_report(toy.view(reports=False))
    assert report.clusters is not None
    assert report.clusters.rows == (ALL, HALVES.model_copy(update={"signed": ()}))
    assert "By the aggregator's word" in render(report, ["md"])["report.md"].decode()


def test_a_run_that_never_splits_has_no_clusters_in_its_report(toy: Toy) -> None:
    report = build_report(toy.view())
    assert report.clusters is None
    for data in render(report, ["html", "md"]).values():
        assert b"Clusters" not in data and b"Into which clusters" not in data


def test_a_report_of_ledgers_that_lie_about_clusters_is_made_all_the_same(made: Toy) -> None:
    beyond, last = (1 << 4000).to_bytes(501, "little").hex(), ALL.model_copy(update={"round": 3})
    lies: tuple[tuple[Change, object, int], ...] = (
        (setting("", TOLD, cluster="x"), (ALL,), 1),
        (setting("", TOLD, cluster=beyond), (ALL,), 1),
        (setting("", TOLD, cluster=""), (ALL,), 1),
        (setting("client-1", TOLD, cluster="x"), (ALL, HALVES), 0),
        (drop("key-authority", **CUT), (ALL, HALVES.model_copy(update={"signed": ()})), 0),
        (setting("", TOLD, round=1 << 40, cluster=FOUR),
         (ALL, last.model_copy(update={"sizes": (4,), "apart": 4})), 1),
    )  # fmt: skip
    for change, rows, unused in lies:
        report = build_report(rewrite(made, made.view(), change))
        assert report.clusters is not None
        assert (report.clusters.rows, report.clusters.unused) == (rows, unused)
        assert render(report, ["html"])


def beside(exchange: int) -> Change:
    """Let the authority sign the cut once more, by the cosines that it opens in another Ask."""
    held: list[Entry] = []

    def change(party: str, entry: Entry) -> list[Entry]:
        if matches(entry, **CUT):
            held.append(entry)
        if party == "key-authority" and matches(entry, kind="release", exchange=exchange):
            where = {name: entry[name] for name in ("exchange", "round", "cohort")}
            return [{**held[0], **where}, entry]
        return [entry]

    return change


ALONE = bytes([0b00000001]).hex()
FOUR = bytes([0b00001111]).hex()
LIES: dict[str, tuple[Change, str]] = {
    "a cut that nobody signed": (drop("key-authority", **CUT), "comes of no cut"),
    "a cut that leaves one apart": (
        setting("key-authority", CUT, side=ALONE),
        "sets fewer than 4 clients apart",
    ),
    "a cut of no cluster": (setting("key-authority", CUT, cluster=FOUR), "no cut of a cluster"),
    "a cut by cosines that were not opened": (
        setting("key-authority", CUT, exchange=1),
        "cosines that were not opened",
    ),
    "a cut by cosines of a part of the cluster": (beside(5), "cosines of others than"),
    "a cut of a round that was another": (
        setting("key-authority", CUT, round=7),
        "cosines that were not opened",
    ),
    "a cut of another cohort": (
        setting("key-authority", CUT, cohort="0" * 64),
        "cosines that were not opened",
    ),
    "a cluster since a round that never was": (
        setting("", TOLD, round=9),
        "of no Ask that went to",
    ),
    "a cluster of an Ask that went to others": (
        setting("client-1", TOLD, exchange=3),
        "of no Ask that went to client-1",
    ),
    "another split than was signed": (setting("", TOLD, cluster=FOUR), "comes of no cut"),
    "a client that was told another cluster": (drop("client-1", **TOLD), "of no cluster that its"),
    "a set of clients that is none": (setting("client-1", TOLD, cluster="x"), "no set of clients"),
}


@pytest.mark.parametrize("lie", LIES)
def test_o5_what_ledgers_say_of_clusters_is_held_to_the_rule(lie: str, made: Toy) -> None:
    change, words = LIES[lie]
    finds("opened", words, rewrite(made, made.view(), change))


def test_o5_clusters_where_the_plan_never_splits_fail(made: Toy) -> None:
    plain = run_toy("masks", rounds=1, clients=EIGHT)
    entry = {"kind": "cluster", "cluster": FOUR, "cohort": "0" * 64, "exchange": 1, "round": 1}

    def added(party: str, old: dict[str, object]) -> list[dict[str, object]]:
        last = party == "client-1" and matches(old, kind="close")
        facts = {key: old[key] for key in ("party", "prev", "run", "salt", "seq", "time")}
        return [{**facts, **entry}, old] if last else [old]

    finds("opened", "the plan never splits", rewrite(plain, plain.view(), both(added)))


def test_o5_a_run_that_sets_one_client_apart_fails_though_all_parties_let_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterHistory, "_check", lambda *_: None)
    monkeypatch.setattr(ClusterHistory, "_apart", lambda self, groups, cluster: groups)
    places: object = site
    bus = Bus(changed_policy("masks", rekey_rounds=4), 2, EIGHT, places, True, clusters(d=8))
    bus.deliver(bus.aggregator.start())
    cut = Cut(1, 1, EIGHT, EIGHT[:1])
    for number, part in ((1, Cohort(EIGHT)), (2, Cohort(cut.rest, (cut,)))):
        bus.ask(Ask(part, given=Centre(weights=np.zeros(8)), back=Update), number)
    finds("opened", "comes of no cut that was signed", bus.finish().view())
