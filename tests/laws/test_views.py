"""O30: what the report lists for a role is what the wire brought that role, whatever is disclosed.

The captured view is the wiretap's: every envelope, by the role that it is addressed to. One run a
family of disclosures, all of which other laws look at, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from audits.report.build import build_report
from audits.report.models import Report
from audits.views.seen import View, roles_there, seen, spelt
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE
from secure_fgl.checking import small
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from tests.laws.conftest import Recorded
from tests.laws.runs import Recording, record
from tests.secure_fgl.cli_tools import invoke

FAMILIES = {
    ("fed_avg", "he"): "sums",
    ("fed_pub", "he"): "cosines and rows",
    ("fed_ego", "shuffled"): "mixtures by a relay",
    ("d_fed_gnn", "masks"): "neighbours",
    ("fed_avg", "unsafe_plaintext"): "in clear",
}
OPENED: dict[tuple[str, str], set[str]] = {
    ("sums", "aggregator"): {"P05", "P17", "P18", "P19", "P20"},
    ("sums", "authority"): set(),
    ("sums", "client"): {"P05", "P17", "P18", "P19"},
    ("cosines and rows", "aggregator"): {"P15", "P17", "P18", "P20"},
    ("cosines and rows", "authority"): {"P15"},
    ("cosines and rows", "witness"): {"P15", "P18"},
    ("cosines and rows", "client"): {"P17", "P18", "P21"},
    ("mixtures by a relay", "relay"): {"P18"},
    ("mixtures by a relay", "authority"): set(),
    ("mixtures by a relay", "aggregator"): {"P10", "P11", "P17", "P18", "P19", "P20"},
    ("neighbours", "aggregator"): {"P17", "P18", "P20"},
    ("neighbours", "client"): {"P17", "P18", "P21"},
    ("in clear", "aggregator"): {"P01", "P17", "P19", "P20"},
    ("matching", "tag_server"): set(),
}
"""What each role can open, less what only a run with refusals sends."""


@cache
def report_of(path: Any) -> Report:
    return build_report(Run(path).view())


def captured(recording: Recording, role: Role) -> dict[tuple[str, str], list[Any]]:
    """Return what the wire brought a role: (item, sender's role) -> envelopes, bytes, rounds."""
    roster, found = recording.parties.roster, defaultdict[tuple[str, str], list[Any]](list)
    roles = {party["name"]: party["role"] for party in roster.document()}
    for envelope in recording.envelopes().values():
        header = envelope.header
        to = header.recipient
        mine = roles[header.sender] != role if to == EVERYONE else roles[to] == role
        if mine:
            found[header.item, roles[header.sender]].append(
                (header.round, len(envelope.encode()), to)
            )
    return found


def rows(folder: Path) -> tuple[dict[str, Any], PrivacyPolicy]:
    document = PrivacyPolicy.load("examples/rows_policy.yaml").document()
    guard = next(g for g in document["rules"]["ROW_SUM"] if g["guard"] == "rows")
    guard.update({"cap": 512, "links": 4096, "rows": 16})
    linked = {"name": "dirichlet_linked", "clients": 5, "options": {"beta": 10000.0}}
    banks = {"customers": 12, "transactions": 60}
    found = small.document("fed_gcn")
    found["data"] = {"name": "synthetic_banks", "options": banks, "partition": linked}
    found["algorithm"]["options"] = {"fed_gcn": {"hops": 2, "nodes": 1024, "block": 256}}
    return found, PrivacyPolicy.model_validate(document)


def matched(folder: Path) -> tuple[dict[str, Any], PrivacyPolicy]:
    document = PrivacyPolicy.load("examples/matched_policy.yaml").document()
    guard = next(g for g in document["rules"]["MATCH"] if g["guard"] == "match")
    guard.update({"cap": 16, "canaries": 2, "floor": 3, "popular": 0.0})
    found = small.document("fed_per_gnn")
    found["algorithm"]["options"] = {"fed_per_gnn": {"expand_after": 1}}
    return found, PrivacyPolicy.model_validate(document)


def own(folder: Path) -> tuple[dict[str, Any], PrivacyPolicy]:
    document = PrivacyPolicy.preset("ldp").document()
    document["name"] = "accepting"
    del document["rules"]["SUM"]
    noise = next(g for g in document["rules"]["NOISED"] if g["guard"] == "own_noise")
    noise["accept_noise"] = True
    found = small.document("fed_avg", store=folder / "budgets")
    return found, PrivacyPolicy.model_validate(document)


OWN: dict[str, Callable[[Path], tuple[dict[str, Any], PrivacyPolicy]]] = {
    "rows of neighbours": rows,
    "matching": matched,
    "own noise": own,
}


def listed(view: View) -> dict[tuple[str, str], tuple[int, int, int, int, int]]:
    return {
        (row.item, row.sender_role): (
            row.count, row.bytes, row.first_round, row.last_round, row.most_bytes,
        )
        for row in view.reached
    }  # fmt: skip


@pytest.mark.parametrize(("name", "policy"), FAMILIES)
def test_o30_what_a_role_is_listed_to_get_is_what_the_wire_brought_it(
    name: str, policy: str, recorded: Recorded
) -> None:
    held(recorded(name, policy), FAMILIES[name, policy])


@pytest.mark.long
@pytest.mark.parametrize("family", ["rows of neighbours", "matching", "own noise"])
def test_o30_likewise_where_only_a_policy_of_one_s_own_protects(
    family: str, tmp_path: Path
) -> None:
    chosen, policy = OWN[family](tmp_path)
    held(record(Config.parse(chosen), tmp_path / "run", policy=policy), family)


def held(recording: Recording, family: str) -> None:
    """Compare every role's view of a run with what a wiretap saw go to that role."""
    report = report_of(recording.path)
    there = roles_there(report)
    assert {"aggregator", "client"} <= set(there)
    assert {role for what, role in OPENED if what == family} <= set(there)
    for spelling in there:
        (role,) = spelt(spelling, report)
        view = seen(report, [role])
        wire = captured(recording, role)
        expected = {}
        for key, rows in wire.items():
            each = defaultdict[str, int](int)
            for _, size, to in rows:
                each[to] += size
            rounds = [number for number, _, _ in rows]
            sizes = sum(size for _, size, _ in rows)
            expected[key] = (len(rows), sizes, min(rounds), max(rounds), max(each.values()))
        assert listed(view) == expected, spelling
        wanted = OPENED.get((family, spelling))
        if wanted is not None:
            assert set(view.opened) | {"P20"} == wanted | {"P20"}, spelling
        assert all(row.payload in view.opened for row in view.attacks if row.payload)
        assert view.unseen and view.keys


def test_a_view_of_a_whole_run_exits_0(recorded: Recorded) -> None:
    path = recorded("fed_avg", "he").path
    shown = invoke("audit", "report", path, "--view", "authority")
    assert shown.exit_code == 0 and "the secret key of the encryption" in shown.stdout
