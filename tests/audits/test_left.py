"""A party that left: its ledger is held to the last head that others received, and no further."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from audits.bundle.archive import unpack
from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from audits.report.build import build_report
from secure_fgl.store.bundles import write_bundle
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from tests.audits.forging import entries_of, write
from tests.audits.party_tools import Federation, play
from tests.audits.toy_run import AGGREGATOR, AUTHORITY, FIVE
from tests.audits.verify_tools import fails_at

GONE = FIVE[1]


def gathered(made: Federation, root: Path) -> RunView:
    files = [
        write_hand_over(folder, root / f"{name}.zip")[0] for name, folder in made.folders.items()
    ]
    gather_files(files, root / "run")
    return Run(root / "run").view()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A run of four rounds that one client leaves before it answers in the third."""
    root = tmp_path_factory.mktemp("left")
    return play(
        root / "parties",
        "masks",
        rounds=4,
        losing=lambda header, to: GONE in (header.sender, to) and header.round >= 3,
        left=GONE,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gathered")


@pytest.fixture(scope="module")
def view(made: Federation, place: Path) -> RunView:
    return gathered(made, place)


def with_ledger(view: RunView, data: bytes, party: str = GONE) -> RunView:
    return replace(view, ledgers={**view.ledgers, party: data}, reports={})


def test_it_passes_and_says_in_which_round(view: RunView) -> None:
    found = verify(view)
    assert found.verdict == "self-consistent only", found.failed
    tree = next(s.detail for s in found.steps if s.name == "tree")
    assert f"{GONE} left at round 3" in tree and "held to a head over" in tree
    report = build_report(view)
    assert {v.client for v in report.dropouts.vanished} == {GONE}


@pytest.mark.usefixtures("view")
def test_the_page_on_checking_by_hand_says_whose_ledger_is_not_signed(
    place: Path, tmp_path: Path
) -> None:
    """Of nobody else it passes without a head."""
    files = unpack(write_bundle(place / "run", tmp_path / "bundle.zip").read_bytes())
    block = re.findall(r"```sh\n(.*?)```", files["VERIFY.md"].decode(), re.DOTALL)[2]
    for path, data in files.items():
        (tmp_path / "bundle" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / path).write_bytes(data)
    done = _by_hand(block, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"(\S+) \d+ entries: NOT SIGNED", done.stdout) == [GONE]
    (tmp_path / "bundle" / "heads" / f"{FIVE[0]}.checkpoint").unlink()
    assert _by_hand(block, tmp_path).returncode != 0  # the control


def _by_hand(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-e", "-c", block]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_a_ledger_cut_below_the_last_head_that_others_received_fails(view: RunView) -> None:
    lines = view.ledgers[GONE].splitlines(keepends=True)
    entries = entries_of(view.ledgers[GONE])
    last = max(e["seq"] for e in entries if e["kind"] == "release")
    for end in (last, last - 1, last // 2, 1):
        cut = with_ledger(view, b"".join(lines[:end]))
        fails_at("tree", cut)
        assert "does not reach the head" in str(verify(cut).failed)
    # Control: what stands after the last of them nobody holds.
    assert verify(with_ledger(view, b"".join(lines[: last + 1]))).ok


def test_what_nobody_signed_is_said_to_be_nobodys(view: RunView) -> None:
    """Whoever hands the files on, with no key of that party, writes a tail as it likes."""
    entries = entries_of(view.ledgers[GONE])
    last = max(e["seq"] for e in entries if e["kind"] == "release")
    assert entries[1]["kind"] == "receipt"
    forged = write([*entries, {**entries[1], "salt": "00" * 16}])
    for data in (view.ledgers[GONE], forged):
        rest = len(data.splitlines()) - last
        tree = next(s.detail for s in verify(with_ledger(view, data)).steps if s.name == "tree")
        assert f"nobody signed the {rest} after them" in tree, tree


def test_who_was_asked_nothing_more_is_said_to_have_left_after_its_last_round(
    tmp_path: Path,
) -> None:
    """Of a run of two rounds nobody left at the third."""
    view = gathered(play(tmp_path / "parties", "he"), tmp_path)
    open_ended = b"".join(view.ledgers[AUTHORITY].splitlines(keepends=True)[:-1])
    heads = {name: note for name, note in view.checkpoints.items() if name != AUTHORITY}
    found = verify(replace(with_ledger(view, open_ended, AUTHORITY), checkpoints=heads))
    tree = next(s.detail for s in found.steps if s.name == "tree")
    assert found.ok and f"{AUTHORITY} left after round 2:" in tree, (found.failed, tree)


def test_a_side_that_nobody_signed_is_not_said_to_be_signed(made: Federation) -> None:
    """Its party's session never ended, or somebody took the head away and wrote what it liked."""
    left = Run(made.folders[GONE]).view()
    lines = left.ledgers[GONE].splitlines(keepends=True)
    for view in (left, replace(left, ledgers={GONE: b"".join(lines[:6])})):
        found = verify(view)
        assert found.ok and found.verdict == "own side holds, unsigned", found.failed
        line = build_report(view).verdict_strip[5].answer
        assert "no head of it is signed" in line and "was signed" not in line
    stayed = Run(made.folders[FIVE[0]]).view()  # the control
    assert verify(stayed).verdict == "own side holds"
    assert "was signed" in build_report(stayed).verdict_strip[5].answer


def test_an_entry_below_that_head_cannot_be_written_anew(view: RunView) -> None:
    """Its chain holds again, since no head of it is signed; only others' receipts tell."""
    entries = entries_of(view.ledgers[GONE])
    assert entries[1]["kind"] == "receipt"
    forged = [*entries[:1], {**entries[1], "salt": "00" * 16}, *entries[2:]]
    fails_at("tree", with_ledger(view, write(forged)))


def test_who_ended_its_ledger_or_conducts_the_run_may_not_lack_a_head(view: RunView) -> None:
    for party in (FIVE[0], AGGREGATOR):
        heads = {name: note for name, note in view.checkpoints.items() if name != party}
        fails_at("files", replace(view, checkpoints=heads))
    cut = b"".join(view.ledgers[AGGREGATOR].splitlines(keepends=True)[:-1])
    heads = {name: note for name, note in view.checkpoints.items() if name != AGGREGATOR}
    fails_at("files", replace(with_ledger(view, cut, AGGREGATOR), checkpoints=heads))


def test_only_a_signed_ledger_holds_anothers_head(view: RunView) -> None:
    """With all heads away nothing would hold anything, so the aggregator's may not be away."""
    fails_at("files", replace(view, checkpoints={}))


def test_a_simulation_ends_every_session(view: RunView) -> None:
    text = view.roster_text.replace(b'"transport": "broker"', b'"transport": "memory"')
    assert text != view.roster_text
    fails_at("files", replace(view, roster_text=text))


def test_who_only_missed_the_end_did_not_leave(tmp_path: Path) -> None:
    made = play(tmp_path / "parties", "masks", left=GONE)
    found = verify(gathered(made, tmp_path))
    assert found.ok, found.failed
    tree = next(s.detail for s in found.steps if s.name == "tree")
    assert "no signed head of its ledger is here" in tree and "left at" not in tree
