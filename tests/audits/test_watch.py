"""A watch reads ledgers as they grow, finds what is not planned, and notices what was changed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from audits.evidence.run_files import RunView, policy_text
from audits.evidence.steps import Case
from audits.growing.watch import Watch
from audits.report.inventory import inventory
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.watching import Following
from tests.audits.forging import edit_last, entries_of, forge, write
from tests.audits.party_tools import play
from tests.audits.toy_run import AGGREGATOR, CLIENTS, Toy, lose, run_toy, save
from tests.secure_fgl.cli_tools import invoke

CLIENT = CLIENTS[1]


@pytest.fixture
def run(view: RunView, tmp_path: Path) -> Path:
    return save(view, tmp_path / "run")


def ledger(run: Path, party: str = CLIENT) -> Path:
    return run / "ledger" / f"{party}.jsonl"


def lines(*words: object) -> tuple[int, list[dict[str, object]], str]:
    shown = invoke("audit", "watch", *words, "--format", "json")
    return shown.exit_code, [json.loads(line) for line in shown.stdout.splitlines()], shown.stderr


@pytest.mark.parametrize("piece", [1, 700, 1 << 20])
def test_pieces_of_any_size_give_what_the_report_counts(view: RunView, piece: int) -> None:
    watch, seen = Watch(view), 0
    for party, data in view.ledgers.items():
        assert not watch.over
        some = data if piece > 1 else data[:3000]  # byte by byte is slow
        for at in range(0, len(some), piece):
            seen += sum(1 for _ in watch.take(party, some[at : at + piece]))
    assert seen == watch.entries > 0
    if piece == 1:
        return
    case = Case(view)
    rows = inventory(case.ledger_index.releases(), case.yardstick)
    sizes = [(tally.count, tally.bytes) for tally in watch.sent.values()]
    assert sum(n for n, _ in sizes) == sum(row.count for row in rows)
    assert sum(n for _, n in sizes) == sum(row.bytes for row in rows)
    for item, (most, room) in watch.planned.items():
        of = [tally for (name, _), tally in watch.sent.items() if name == item]
        assert sum(t.count for t in of) <= most and sum(t.bytes for t in of) <= room
    assert watch.over and not watch.unplanned and not watch.away


def test_json_is_a_line_an_entry_without_salts_and_nothing_is_changed(run: Path) -> None:
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()}
    code, found, _ = lines(run)
    assert code == 0
    for party in CLIENTS:
        mine = [entry for entry in found if entry["party"] == party]
        there = entries_of(ledger(run, party).read_bytes())
        for one, entry in zip(mine, there, strict=True):
            kept = {name: fact for name, fact in entry.items() if name not in ("salt", "prev")}
            assert one == {**kept, "unplanned": None}
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*")
                      if p.is_file()}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"item": "step.up.MORE\x1b[31m"}, "is no planned item"),
        ({"bytes": 1 << 30}, "is larger than the planned"),
        ({"recipient": "client-3"}, "went to another role"),
    ],
)
def test_what_is_not_planned_is_named_and_exits_6(
    toy: Toy, view: RunView, tmp_path: Path, facts: dict[str, object], why: str
) -> None:
    bad = forge(toy, view, CLIENT, edit_last("release", **facts))
    run = save(bad, tmp_path / "run")
    code, found, _ = lines(run)
    strays = [entry for entry in found if entry["unplanned"]]
    assert code == 6 and len(strays) == 1 and why in str(strays[0]["unplanned"])
    code, fast, _ = lines(run, "--fail-fast")
    assert code == 6 and fast == found[: found.index(strays[0]) + 1]
    shown = invoke("audit", "watch", run)
    assert shown.exit_code == 6 and "NOT PLANNED" in shown.stderr and why in shown.stdout
    assert "\x1b" not in shown.stdout + shown.stderr


def test_a_receipt_of_something_unplanned_is_named(toy: Toy, view: RunView, tmp_path: Path) -> None:
    bad = forge(toy, view, AGGREGATOR, edit_last("receipt", item="step.up.MORE"))
    code, found, _ = lines(save(bad, tmp_path / "run"))
    assert code == 6 and [e["kind"] for e in found if e["unplanned"]] == ["receipt"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-700])


def replaced(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def changed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(300)
        file.write(b"x")


def rewritten(path: Path) -> None:
    """Write the ledger anew in its place, one entry longer, with a chain that holds."""
    entries = entries_of(path.read_bytes())
    entries[1] = {**entries[1], "time": "2026-01-02T03:04:06Z"}
    path.write_bytes(write([*entries[:-1], entries[-2], entries[-1]]))


@pytest.mark.parametrize("harm", [cut, replaced, changed, rewritten, Path.unlink])
def test_a_ledger_that_changes_while_it_is_read_is_noticed(
    run: Path, harm: Callable[[Path], None]
) -> None:
    following = Following(run)
    assert sum(1 for _ in following.look()) > 0
    harm(ledger(run))
    with pytest.raises(EvidenceError, match=CLIENT):
        for _ in following.look():
            pass
        following.finish()
    following.close()


def test_what_only_grows_is_no_change(run: Path) -> None:
    """Control: the same file, written in two parts with a line cut in the middle, passes."""
    path = ledger(run)
    data = path.read_bytes()
    path.write_bytes(data[:-200])
    following = Following(run)
    first = sum(1 for _ in following.look())
    assert not following.watch.over
    with path.open("ab") as file:
        file.write(data[-200:])
    assert first + sum(1 for _ in following.look()) == following.watch.entries
    assert following.watch.over
    following.finish()


def test_a_run_in_progress_is_followed_to_its_end(run: Path) -> None:
    kept = {path: path.read_bytes() for path in (run / "ledger").iterdir()}
    for path in kept:
        path.write_bytes(b"")

    def grow() -> None:
        for path, data in kept.items():
            with path.open("ab", buffering=0) as file:
                for at in range(0, len(data), 5000):
                    file.write(data[at : at + 5000])
            time.sleep(0.02)

    writer = threading.Thread(target=grow)
    writer.start()
    code, found, said = lines(run)
    writer.join()
    assert code == 0 and len(found) == sum(data.count(b"\n") for data in kept.values())
    assert "every ledger is closed" in said


def test_broken_chains_other_plans_and_strangers_exit_5(run: Path, other: Toy) -> None:
    path = ledger(run)
    data = path.read_bytes()
    for bad in (data.replace(b'"seq":2', b'"seq":3', 1), other.stores[CLIENT].lines, b"x" * 20_000):
        path.write_bytes(bad)
        shown = invoke("audit", "watch", run, "--once")
        assert shown.exit_code == 5 and CLIENT in shown.stderr
    path.write_bytes(data)
    assert invoke("audit", "watch", run, "--once").exit_code == 0
    ledger(run, "stranger").write_bytes(data)
    assert invoke("audit", "watch", run, "--once").exit_code == 5
    ledger(run, "stranger").unlink()
    (run / "policy.json").write_text(policy_text(PrivacyPolicy.preset("masks")))
    assert invoke("audit", "watch", run, "--once").exit_code == 5
    assert invoke("audit", "watch", run.parent, "--once").exit_code == 2


def test_clients_that_did_not_answer_are_away_until_they_do(tmp_path: Path) -> None:
    gone = run_toy(rounds=2, losing=lose(CLIENT, "up.SUM", round=2)).view(reports=False)
    watch = Watch(gone)
    for party, data in gone.ledgers.items():
        for seen in watch.take(party, data):
            assert not seen.unplanned
    assert watch.away == {CLIENT: 2}
    shown = invoke("audit", "watch", save(gone, tmp_path / "run"), "--once")
    assert shown.exit_code == 0 and f"Away: {CLIENT} (asked in round 2)" in shown.stdout


def test_a_partys_folder_shows_its_own_side(tmp_path: Path) -> None:
    """Budgets stand in it, and it is over when its own ledger is closed."""
    parties = play(tmp_path, "calibrated", rounds=1, noised=True)
    name = parties.toy.roster.clients[0]
    code, found, _ = lines(parties.folders[name])
    assert code == 0 and {entry["party"] for entry in found} == {name}
    shown = invoke("audit", "watch", parties.folders[name])
    assert f"Budget of {name}: epsilon" in shown.stdout
    parties.ledger(name).unlink()
    assert invoke("audit", "watch", parties.folders[name]).exit_code == 2


@pytest.mark.parametrize("fact", ["plan", "policy"])
def test_a_party_that_goes_on_under_another_plan_is_noticed(
    toy: Toy, view: RunView, tmp_path: Path, fact: str
) -> None:
    bad = forge(toy, view, CLIENT, edit_last("release", **{fact: "ab" * 32}))
    shown = invoke("audit", "watch", save(bad, tmp_path / "run"), "--once")
    assert shown.exit_code == 5 and f"another {fact}" in shown.stderr


def test_what_follows_the_end_without_a_line_s_end_is_noticed(run: Path) -> None:
    with ledger(run).open("ab") as file:
        file.write(b'{"kind":"release"')
    shown = invoke("audit", "watch", run, "--once")
    assert shown.exit_code == 5 and "follows the ledger's end" in shown.stderr
