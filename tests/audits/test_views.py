"""What one role could see, as a report of its own: in every format, and on the command line."""

from __future__ import annotations

import json

import pytest

from audits.formats import FORMATS, render_view
from audits.report.build import build_report
from audits.report.models import Report, RoleView
from audits.views.seen import View, roles_there, seen, spelt
from protocols.wire.roles import Role
from tests.audits.attack_tools import BLANK, LEAK, attacked, row
from tests.audits.bundle_tools import TOY
from tests.audits.toy_run import save
from tests.secure_fgl.cli_tools import invoke

ROWS = (
    row(**LEAK),
    row(payload="P06", what="noised"),
    row(**{**BLANK, "id": "A20", "verdict": "NOT_TESTED", "payload": "P05"}),
    row(**{**BLANK, "id": "A13", "verdict": "NOT_APPLICABLE"}),
)


@pytest.fixture(scope="module")
def attacked_report() -> Report:
    return build_report(attacked(TOY.view(), *ROWS))


def view_of(report: Report, text: str) -> View:
    return seen(report, spelt(text, report))


def test_a_view_holds_what_its_role_got_and_the_attacks_from_there(attacked_report):
    report = attacked_report
    assert roles_there(report) == ("client", "aggregator", "authority")
    aggregator, authority = view_of(report, "aggregator"), view_of(report, "key-authority")
    assert {r.recipient_role for r in aggregator.reached} == {"aggregator"}
    assert [(r.id, r.payload) for r in aggregator.attacks] == [("A05", "P05"), ("A20", "P05")]
    assert "P05" in aggregator.opened and "P05" not in authority.opened
    assert authority.attacks == () and "the totals over a cohort (P05)" in authority.unseen
    assert any("secret key of the encryption" in text for text in authority.keys)
    assert not any("secret key" in text for text in aggregator.keys)
    blind = [r for r in authority.reached if r.item.endswith(".open")]
    assert blind and all(r.opens == "" for r in blind)  # uniform noise is nothing
    upload = next(r for r in aggregator.reached if r.item == "step.up.SUM")
    sent = next(e for e in report.egress if e.item == "step.up.SUM")
    assert (upload.count, upload.bytes) == (sent.count, sent.bytes)
    assert (upload.parties, upload.most, upload.most_bytes) == (1, sent.count, sent.bytes)


def test_of_several_clients_one_gets_less_than_all(attacked_report):
    client = view_of(attacked_report, "client")
    assert client.parties[0] > 1
    down = next(r for r in client.reached if r.item == "step.down")
    assert down.most < down.count and down.parties == client.parties[0]
    assert {r.id for r in client.attacks} <= {"A05"}  # a crafted model comes from the aggregator


def test_two_that_pool_have_both_views_and_what_they_have_only_together(attacked_report):
    one, other = (view_of(attacked_report, name) for name in ("aggregator", "authority"))
    both = view_of(attacked_report, "aggregator+authority")
    assert both.reached == one.reached + other.reached
    assert set(both.opened) == set(one.opened) | set(other.opened)
    assert not one.together or all("aggregator" in text for text in one.together)
    assert both.together and all(
        t.startswith("aggregator and key authority") for t in both.together
    )
    assert both.roles == ("aggregator", "key_authority")


def test_what_is_said_of_one_or_of_clients_together_stands_in_their_views(attacked_report):
    said = (
        ("aggregator alone", "A"), ("all of a cell but one", "B"),
        ("aggregator and one client", "C"),
        ("receivers that work together", "D"), ("aggregator and a receiver of rows", "E"),
        ("aggregator, key authority and 3 of the clients that hold a client's shares", "F"),
    )  # fmt: skip
    views = [v for v in attacked_report.views if v.viewer in ("aggregator", "client", "network")]
    more = [RoleView(viewer=viewer, received=None, sees=(text,)) for viewer, text in said]
    report = attacked_report.model_copy(update={"views": (*views, *more)})

    def told(asked: str) -> set[str]:
        found = view_of(report, asked)
        lines = (*found.learns, *found.together)
        return {text for viewer, text in said if f"{viewer}: {text}" in lines}

    assert told("aggregator") == {"A"} and told("client") == {"B", "D"}
    assert told("aggregator+client") == {"A", "B", "C", "D", "E"}
    assert told("aggregator+authority") == {"A"} and told("authority") == set()
    assert told("aggregator+authority+client") == {"A", "B", "C", "D", "E", "F"}
    page = render_view(view_of(report, "client"), ["md"])["view.md"].decode()
    assert "all of a cell but one: B" in page and "uniform" not in page.split("## Attacks")[1]


@pytest.mark.parametrize("asked", ["matcher", "nobody", "", "aggregator+witness"])
def test_a_role_that_the_run_does_not_have_is_named_with_those_it_has(attacked_report, asked):
    with pytest.raises(ValueError, match="it has: client, aggregator, authority"):
        spelt(asked, attacked_report)
    with pytest.raises(ValueError, match="twice"):
        spelt("client+client", attacked_report)


def test_every_format_says_it_and_the_same_bytes_each_time(attacked_report):
    view = view_of(attacked_report, "aggregator+client")
    files = render_view(view, FORMATS)
    assert files == render_view(view, FORMATS)
    assert set(files) == {"view.html", "view.json", "view.md", "view.csv", "view-attacks.csv"}
    assert json.loads(files["view.json"]) == json.loads(view.model_dump_json())
    for name in ("view.html", "view.md", "view.csv"):
        text = files[name].decode()
        assert all(r.item in text.replace("\\_", "_") for r in view.reached), name
    for name in ("view.html", "view.md"):
        text = " ".join(files[name].decode().replace("\\", "").split())
        assert "It cannot see" in text or "Nothing that left is hidden" in text
        assert "grad-span" in text and "FAIL" in text
    assert "<script" not in files["view.html"].decode()
    hostile = view.model_copy(update={"unseen": "<script>alert(1)</script>"})
    assert b"<script>" not in render_view(hostile, ["html"])["view.html"]
    empty = view.model_copy(update={"reached": (), "attacks": (), "roles": (str(Role.RELAY),)})
    empty = empty.model_copy(update={"parties": (1,)})
    assert b"No attack starts from there" in render_view(empty, ["md"])["view.md"]


def test_on_the_command_line_it_is_printed_or_written_beside_the_report(tmp_path):
    run = save(TOY.view(), tmp_path / "run")
    before = sorted(p for p in run.rglob("*"))
    shown = invoke("audit", "report", run, "--view", "aggregator")
    assert shown.exit_code == 5  # this folder has no models, so its evidence is broken, and yet
    assert shown.stdout.startswith("# What could be seen by: aggregator")
    printed = invoke("audit", "report", run, "--view", "authority", "--json")
    assert json.loads(printed.stdout)["roles"] == ["key_authority"]
    out = tmp_path / "out"
    made = invoke("audit", "report", run, "--view", "client", "--format", "html,csv", "--out", out)
    assert made.exit_code == 5
    assert sorted(p.name for p in out.iterdir()) == ["view-attacks.csv", "view.csv", "view.html"]
    assert sorted(p for p in run.rglob("*")) == before  # the run's own report stays as it is
    wrong = invoke("audit", "report", run, "--view", "relay")
    assert wrong.exit_code == 2
    assert "client, aggregator, authority" in " ".join(wrong.stderr.split())
    both = invoke("audit", "report", run, "--view", "client", "--waivers", tmp_path / "w.yaml")
    assert both.exit_code == 2
    assert "goes without --waivers" in " ".join(both.stderr.split())
