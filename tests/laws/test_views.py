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

from audits.plots import Sight, matrix
from audits.report.build import build_report
from audits.report.models import Report
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from tests.laws.conftest import Recorded
from tests.laws.runs import Recording, record

FAMILIES = {
    ("fed_avg", "he"): "sums",
    ("fed_pub", "he"): "cosines and rows",
    ("fed_ego", "shuffled"): "mixtures by a relay",
    ("d_fed_gnn", "masks"): "neighbours",
    ("fed_avg", "unsafe_plaintext"): "in clear",
}
READ: dict[tuple[str, str], set[str]] = {
    ("sums", "aggregator"): {"P05", "P17", "P18"},
    ("sums", "key_authority"): {"P18"},
    ("sums", "client"): {"P05", "P17", "P18", "P19"},
    ("cosines and rows", "aggregator"): {"P15", "P17", "P18"},
    ("cosines and rows", "key_authority"): {"P15", "P18", "P21"},
    ("cosines and rows", "witness"): {"P15", "P18", "P21"},
    ("cosines and rows", "client"): {"P17", "P18", "P21"},
    ("mixtures by a relay", "key_authority"): {"P18", "P21"},
    ("mixtures by a relay", "aggregator"): {"P10", "P11", "P17", "P18"},
    ("neighbours", "aggregator"): {"P17", "P18"},
    ("neighbours", "client"): {"P17", "P18", "P21"},
    ("in clear", "aggregator"): {"P01", "P17"},
}
"""What the report shows each role to read of what others sent."""


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
    found = subject.document("fed_gcn")
    found["data"] = {"name": "synthetic_banks", "options": banks, "partition": linked}
    found["algorithm"]["options"] = {"fed_gcn": {"hops": 2, "nodes": 1024, "block": 256}}
    return found, PrivacyPolicy.model_validate(document)


def matched(folder: Path) -> tuple[dict[str, Any], PrivacyPolicy]:
    document = PrivacyPolicy.load("examples/matched_policy.yaml").document()
    guard = next(g for g in document["rules"]["MATCH"] if g["guard"] == "match")
    guard.update({"cap": 16, "canaries": 2, "floor": 3, "popular": 0.0})
    found = subject.document("fed_per_gnn")
    found["algorithm"]["options"] = {"fed_per_gnn": {"expand_after": 1}}
    return found, PrivacyPolicy.model_validate(document)


def own(folder: Path) -> tuple[dict[str, Any], PrivacyPolicy]:
    document = PrivacyPolicy.preset("ldp").document()
    document["name"] = "accepting"
    del document["rules"]["SUM"]
    noise = next(g for g in document["rules"]["NOISED"] if g["guard"] == "own_noise")
    noise["accept_noise"] = True
    found = subject.document("fed_avg", store=folder / "budgets")
    return found, PrivacyPolicy.model_validate(document)


OWN: dict[str, Callable[[Path], tuple[dict[str, Any], PrivacyPolicy]]] = {
    "rows of neighbours": rows,
    "matching": matched,
    "own noise": own,
}


def listed(report: Report, role: Role) -> dict[tuple[str, str], tuple[int, int, int, int, int]]:
    """Return what the report lists for a role, and what one party of it got at most."""
    found = {}
    for row in report.egress:
        everyone = row.recipient_role == EVERYONE and row.sender_role != role
        if row.recipient_role != role and not everyone:
            continue
        each = defaultdict[str, int](int)
        for part in report.inventory:
            if (part.item, part.sender_role) == (row.item, row.sender_role):
                each[part.recipient] += part.bytes
        found[row.item, str(row.sender_role)] = (
            row.count, row.bytes, row.first_round, row.last_round, max(each.values()),
        )  # fmt: skip
    return found


def opened(report: Report) -> dict[str, set[str]]:
    """Return by role the payloads that the report shows it to read."""
    sights = (Sight.READ, Sight.CLEAR)
    table = matrix(report.egress, {party.role for party in report.parties})
    return {
        role: {payload for payload, cells in table.rows if cells[column] in sights}
        for column, role in enumerate(table.roles)
    }


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
    """Compare what the report lists for every role with what a wiretap saw go to that role."""
    report = report_of(recording.path)
    read = opened(report)
    there = {Role(role) for role in read}
    assert {Role.AGGREGATOR, Role.CLIENT} <= there
    assert {role for what, role in READ if what == family} <= set(read)
    for role in there:
        wire = captured(recording, role)
        expected = {}
        for key, rows in wire.items():
            each = defaultdict[str, int](int)
            for _, size, to in rows:
                each[to] += size
            rounds = [number for number, _, _ in rows]
            sizes = sum(size for _, size, _ in rows)
            expected[key] = (len(rows), sizes, min(rounds), max(rounds), max(each.values()))
        assert listed(report, role) == expected, role
        wanted = READ.get((family, str(role)))
        if wanted is not None:
            assert read[role] == wanted, role
