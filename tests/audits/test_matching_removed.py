"""Evidence of a matching that somebody left out (O24, O30): each must be missed."""

from __future__ import annotations

import pytest

from audits.verify import verify
from protocols.ledger import Entry
from tests.audits.forging import Change, rewrite
from tests.audits.lies import both, drop, setting
from tests.audits.test_matching import GONE, honest  # noqa: F401 - a fixture
from tests.audits.toy_run import Toy

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
