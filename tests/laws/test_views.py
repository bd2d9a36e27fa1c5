"""O30: what the report lists for a role is what the wire brought that role, whatever is disclosed.

The captured view is the wiretap's: every envelope, by the role that it is addressed to. One run a
family of disclosures, all of which other laws look at, too.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from audits.report.build import build_report
from audits.report.models import Report
from audits.views.seen import View, roles_there, seen, spelt
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE
from secure_fgl.store.finished_run import Run
from tests.laws.conftest import Recorded
from tests.laws.runs import Recording
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
    ("cosines and rows", "client"): {"P18", "P21"},
    ("mixtures by a relay", "relay"): {"P18"},
    ("mixtures by a relay", "authority"): set(),
    ("mixtures by a relay", "aggregator"): {"P10", "P11", "P17", "P18", "P19", "P20"},
    ("neighbours", "aggregator"): {"P17", "P18", "P20"},
    ("neighbours", "client"): {"P18", "P21"},
    ("in clear", "aggregator"): {"P01", "P17", "P19", "P20"},
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
    recording, family = recorded(name, policy), FAMILIES[name, policy]
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
