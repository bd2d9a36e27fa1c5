"""Evidence of a matching that somebody left out (O24, O30): each must be missed."""

from __future__ import annotations

import pytest

from audits.evidence.verify import verify
from audits.exporters import assessment
from audits.report.build import build_report
from protocols.evidence.ledger import Entry
from tests.audits.forging import Change, entries_of, rewrite
from tests.audits.lies import both, drop, finds, setting
from tests.audits.test_matching import GONE, honest, run  # noqa: F401 - a fixture
from tests.audits.toy_run import Toy, lose

FIRST = {"kind": "match", "exchange": 1}
SERVERS = ("tag-server-1", "tag-server-2")


def every(kind: str) -> Change:
    def change(party: str, entry: Entry) -> list[Entry]:
        return [] if entry.get("kind") == kind else [entry]

    return change


@pytest.mark.parametrize(
    "change",
    [
        drop(GONE, **FIRST),
        drop("aggregator", **FIRST),
        drop("tag-server-1", kind="tags", exchange=1),
        drop("tag-server-1", kind="tags"),
        every("match"),
        every("tags"),
        both(every("match"), every("tags")),
        setting("matcher", FIRST, clients=5),
        setting("aggregator", FIRST, clients=5),
        both(*(setting(s, {"kind": "tags"}, quota=9999) for s in SERVERS)),
        both(*(setting(s, {"kind": "tags", "exchange": 1}, clients=4) for s in SERVERS)),
    ],
    ids=["client", "aggregator", "server", "server-all", "all-match", "all-tags", "everything",
         "matcher-clients", "aggregator-clients", "quota", "served-clients"],
)  # fmt: skip
def test_o30_what_was_left_out_of_the_ledgers_is_missed(honest: Toy, change: Change) -> None:  # noqa: F811
    forged = rewrite(honest, honest.view(reports=False), change)
    assert verify(forged).failed is not None, "nothing failed"


def test_control_the_same_view_verifies(honest: Toy) -> None:  # noqa: F811
    same = rewrite(honest, honest.view(reports=False), lambda party, entry: [entry])
    assert verify(same).ok


def test_o24_the_ledger_of_a_client_that_was_given_another_key_fails_the_audit() -> None:
    """It was never told of its cell, so its tags are gone, and nobody else's record tells."""
    made = run(losing=lose(GONE, ".told", round=2))
    assert verify(made.view()).ok, verify(made.view()).failed
    (last,) = [e for e in entries_of(made.view().ledgers[GONE])
               if e["kind"] == "canary" and e["round"] == 2]  # fmt: skip
    other = setting(GONE, {"kind": "canary", "round": 2}, canary="ab" * 32)
    finds("opened", "more than one canary", rewrite(made, made.view(reports=False), other))
    gone = drop(GONE, kind="canary", round=2)
    finds("opened", "lacks the matching", rewrite(made, made.view(reports=False), gone))
    aside = setting(GONE, {"kind": "canary", "round": 2}, exchange=last["exchange"] + 1)
    finds("opened", f"a canary of {GONE}", rewrite(made, made.view(reports=False), aside))


def test_a_pia_draft_does_not_say_that_nobody_makes_tags_where_all_clients_hold_the_key() -> None:
    draft = assessment.cnil(build_report(run("hmac").view())).decode()
    assert "Matched by tags" in draft
    assert "tags that no single party can make" not in draft


def test_the_report_says_that_aggregator_and_client_learn_which_named_cell_holds_an_item(
    honest: Toy,  # noqa: F811
) -> None:
    rows = build_report(honest.view()).views
    sees = {v.viewer: [" ".join(o.sees) for o in rows if o.viewer == v.viewer] for v in rows}
    assert "item" in " ".join(sees["aggregator and one client"])
    assert "item" in " ".join(sees["all of a cell but one"])  # with a client outside: all of them
    assert not any(
        "nothing else of a single client" in s for s in sees["aggregator and one client"]
    )
