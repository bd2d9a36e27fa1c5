"""Law: a run that is killed at any exchange goes on to the bit-identical result (O5, O6, O20)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from crypto.homomorphic.he import SecretKey
from protocols.disclosures.sum.view import Summands
from protocols.evidence.ledger import Ledger, read_lines
from protocols.roles.key_authority import KeyAuthoritySession
from protocols.sessions.survivors import Openings
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import FileStore
from secure_fgl.store.state_store import KeptStateStore
from tests.laws.killing import Ended, die, play
from tests.laws.runs import POLICIES, config, pairs
from tests.thinned import thinned

Reference = Callable[[str, str], Ended]
SAME = ("model_sha256", "metrics", "lost_rounds", "rounds", "form")


@pytest.fixture(autouse=True)
def _keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The undisturbed run of an algorithm under a policy."""
    made: dict[tuple[str, str], Ended] = {}

    def get(name: str, policy: str) -> Ended:
        if (name, policy) not in made:
            with pytest.MonkeyPatch.context() as patched:
                folder = tmp_path_factory.mktemp("reference")
                patched.setenv("SECURE_FGL_STATE", str(folder / "keys"))
                made[name, policy] = play(config(name, policy), folder / "run")
        return made[name, policy]

    return get


def _same(ended: Ended, expected: Ended, out: Path) -> None:
    assert ended.result is not None, ended.error
    assert expected.result is not None, expected.error
    for name in SAME:
        assert ended.result[name] == expected.result[name], name
    verification = Run(out).verify()
    assert verification.verdict == "self-consistent only", verification.steps
    _opened_once(out)
    assert not (out / "private").exists()


def _opened_once(out: Path) -> None:
    """No party's ledger holds two openings of one exchange, nor two releases of one item in it."""
    for file in sorted((out / "ledger").glob("*.jsonl")):
        seen = set()
        for entry, _ in read_lines(file.read_bytes()):
            if entry["kind"] not in ("open", "release"):
                continue
            place = (entry["kind"], entry["exchange"], entry.get("item"), entry.get("recipient"))
            assert place not in seen, (file.stem, place)
            seen.add(place)


def _killed_at(chosen: Config, out: Path, at: int, *, after: bool, sabotage: Any = None) -> Ended:
    first = play(chosen, out, at=at, after=after, sabotage=sabotage)
    assert first.killed, first.error or "the run finished before it could be killed"
    return play(chosen, out, resume=True)


def _places(messages: int, count: int) -> list[int]:
    """`count` places spread over a run of so many messages, the first and the last among them."""
    step = max(1, (messages - 1) / max(count - 1, 1))
    return sorted({min(messages, round(1 + step * k)) for k in range(count)})


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        pytest.param(
            policy,
            after,
            id=f"{policy}-{'after' if after else 'before'}",
            marks=() if after or policy == "masks" else pytest.mark.long,
        )
        for policy in POLICIES
        for after in (False, True)
    ],
)
def test_o5_a_run_killed_at_any_exchange_ends_as_if_it_had_not_been(
    policy: str, after: bool, reference: Reference, tmp_path: Path
) -> None:
    expected = reference("fed_avg", policy)
    places = _places(expected.messages, 3)
    for at in places if policy == "masks" else places[1:2]:
        out = tmp_path / f"run-{at}"
        _same(_killed_at(config("fed_avg", policy), out, at, after=after), expected, out)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_o5_every_single_exchange(
    policy: str, after: bool, reference: Reference, tmp_path: Path
) -> None:
    expected = reference("fed_avg", policy)
    for at in range(1, expected.messages + 1):
        out = tmp_path / f"run-{at}"
        _same(_killed_at(config("fed_avg", policy), out, at, after=after), expected, out)


KEPT = {
    ("fed_pub", "masks"),
    ("fed_ego", "shuffled"),
    ("fed_per_gnn", "masks"),
    ("apfl_gate", "masks"),
}
"""They keep, between them, memories, optimisers and draws of every kind; the rest is `long`."""


@pytest.mark.parametrize(
    ("name", "policy"),
    [pytest.param(*p, marks=() if p in KEPT else pytest.mark.long) for p in pairs(["masks"])],
)
def test_every_algorithm_goes_on_after_a_kill(
    name: str, policy: str, reference: Reference, tmp_path: Path
) -> None:
    expected = reference(name, policy)
    at = max(1, 2 * expected.messages // 3)
    out = tmp_path / "run"
    _same(_killed_at(config(name, policy), out, at, after=True), expected, out)


def test_a_run_that_is_killed_again_and_again(reference: Reference, tmp_path: Path) -> None:
    expected, out = reference("fed_avg", "masks"), tmp_path / "run"
    chosen, kills = config("fed_avg", "masks"), 0
    ended = play(chosen, out, at=8, after=True)
    while ended.killed and kills < 50:
        kills += 1
        ended = play(chosen, out, at=8, after=True, resume=True)
    assert kills > 3
    _same(ended, expected, out)


def _dies_on_call(target: Any, name: str, number: int, *, before: bool = True) -> Any:
    """Return a sabotage that kills at the `number`-th call, before or after its work."""
    original, calls = getattr(target, name), [0]

    def deadly(self: Any, *arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == number:
            die()
        found = original(self, *arguments, **named)
        if calls[0] == number:
            die()
        return found

    return lambda: patch.object(target, name, deadly).start()


@pytest.mark.parametrize(
    ("target", "name", "number", "before"),
    thinned(
        [
            (target, name, number, before)
            for target, name in (
                (KeptStateStore, "patch"),  # a long value, or a line of the journal
                (KeptStateStore, "advance"),  # the number of the last commit
                (KeptStateStore, "turn"),  # a new journal's key
                (FileStore, "append"),
                (Ledger, "commit"),
            )
            for number, before in ((3, True), (29, False), (29, True), (3, False))
            if name != "turn" or number == 3
        ]
        + [(KeptStateStore, "turn", 9, before) for before in (True, False)],
        every=3,
    ),
)
def test_o5_a_kill_between_state_and_ledger(
    target: Any, name: str, number: int, before: bool, reference: Reference, tmp_path: Path
) -> None:
    sabotage = _dies_on_call(target, name, number, before=before)
    out = tmp_path / "run"
    ended = _killed_at(config("fed_avg", "masks"), out, 0, after=False, sabotage=sabotage)
    if "holds no run that could go on" in ended.error:
        assert number == 3  # killed while its parties were still being set up: nothing was sent
        return
    _same(ended, reference("fed_avg", "masks"), out)


def test_o5_a_torn_line_of_a_ledger_is_completed(reference: Reference, tmp_path: Path) -> None:
    def tear() -> None:
        append, calls = FileStore.append, [0]

        def torn(self: FileStore, lines: bytes) -> None:
            calls[0] += 1
            if calls[0] == 20:
                append(self, lines[: len(lines) // 2])
                die()
            append(self, lines)

        patch.object(FileStore, "append", torn).start()

    out = tmp_path / "run"
    ended = _killed_at(config("fed_avg", "masks"), out, 0, after=False, sabotage=tear)
    _same(ended, reference("fed_avg", "masks"), out)


@pytest.mark.parametrize("number", [1, 2])
def test_o5_an_aggregator_killed_in_the_middle_of_an_opening_finishes_the_same_one(
    number: int, reference: Reference, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    sabotage = _dies_on_call(Summands, "unmasked", number)
    ended = _killed_at(config("fed_avg", "masks"), out, 0, after=False, sabotage=sabotage)
    _same(ended, reference("fed_avg", "masks"), out)


@pytest.mark.parametrize(
    ("policy", "number"),
    [
        ("he", 1),
        ("ckks", 2),
        *(pytest.param(*at, marks=pytest.mark.long) for at in (("he", 2), ("ckks", 1))),
    ],
)
def test_o5_an_authority_killed_in_the_middle_of_an_opening_finishes_the_same_one(
    policy: str, number: int, reference: Reference, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def sabotage() -> None:
        once, use, opened = Openings.once, SecretKey.use, [0]

        def counted(self: KeyAuthoritySession, *arguments: Any) -> None:
            once(self, *arguments)
            opened[0] += 1

        def deadly(self: SecretKey, scheme: str) -> Any:
            if opened[0] == number:
                die()
            return use(self, scheme)

        patch.object(Openings, "once", counted).start()
        patch.object(SecretKey, "use", deadly).start()

    ended = _killed_at(config("fed_avg", policy), out, 0, after=False, sabotage=sabotage)
    _same(ended, reference("fed_avg", policy), out)


def _entries(store: Path) -> dict[str, bytes]:
    """Every reservation of a budget store; its floors are cosigned anew at the end of a run."""
    return {f.name: f.read_bytes() for f in store.iterdir() if f.suffix != ".floor"}


def test_o20_a_resumed_run_takes_no_budget_again_and_gets_none_back(tmp_path: Path) -> None:
    store = tmp_path / "budgets"
    chosen, out = config("fed_avg", "calibrated", store=store), tmp_path / "run"
    assert play(chosen, out, at=30, after=True).killed
    before = _entries(store)
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    assert _entries(store) == before
    refused = play(chosen, tmp_path / "second")
    assert "BudgetSpent" in refused.error or "budget" in refused.error


def test_o6_nothing_kept_in_the_run_folder_is_readable(tmp_path: Path) -> None:
    """The pieces hold pair secrets, seeds and models; none of it stands there in clear."""
    import math
    import re

    import numpy as np

    chosen, out = config("fed_avg", "masks"), tmp_path / "run"
    assert play(chosen, out, at=30, after=True).killed
    files = [f for f in (out / "private").rglob("*") if f.is_file()]
    # What was used up is overwritten with zeros.
    pieces = [re.sub(rb"\0{16,}", b"", f.read_bytes()) for f in files]
    assert len(pieces) > 10
    for piece in pieces:
        assert b"session" not in piece
        if len(piece) > 10_000:
            counts = np.bincount(np.frombuffer(piece, np.uint8), minlength=256) / len(piece)
            entropy = -sum(p * math.log2(p) for p in counts if p)
            assert entropy > 7.9
    assert not list(out.rglob("*.key"))


@pytest.mark.parametrize("place", [40, -40], ids=["head", "cell"])
def test_a_changed_journal_is_refused(place: int, tmp_path: Path) -> None:
    chosen, out = config("fed_avg", "masks"), tmp_path / "run"
    assert play(chosen, out, at=30, after=True).killed
    (journal,) = (out / "private" / "client-2").glob("journal-*")
    data = bytearray(journal.read_bytes())
    data[place] ^= 1
    journal.write_bytes(data)
    assert "does not open" in play(chosen, out, resume=True).error


def test_a_changed_long_value_is_refused(tmp_path: Path) -> None:
    chosen, out = config("fed_avg", "masks", hidden=600), tmp_path / "run"
    assert play(chosen, out, at=30, after=True).killed
    for part in (out / "private" / "client-2").glob("part-*"):
        part.write_bytes(bytes(part.stat().st_size))
    assert "does not open" in play(chosen, out, resume=True).error


def _copied(out: Path, backup: Path, number: int) -> Any:
    """Return a sabotage that makes a backup in the middle of a run, which goes on."""
    import shutil

    commit, calls = Ledger.commit, [0]

    def copied(self: Ledger) -> None:
        commit(self)
        calls[0] += 1
        if calls[0] == number:
            shutil.copytree(out, backup)

    return lambda: patch.object(Ledger, "commit", copied).start()


@pytest.mark.parametrize("resumed", [False, True], ids=["same", "resumed"])
@pytest.mark.parametrize(
    ("folders", "why"),
    [
        (("private",), "older than the last commit|missing"),
        (("ledger",), "do not belong together"),
        (("private", "ledger"), "older than the last commit|missing"),
    ],
    ids=["state", "ledger", "both"],
)
def test_o5_what_was_put_back_from_a_backup_is_refused(
    folders: tuple[str, ...], why: str, resumed: bool, tmp_path: Path
) -> None:
    """By the same process's keys and by those of one that went on."""
    import re
    import shutil

    chosen, out, backup = config("fed_avg", "masks"), tmp_path / "run", tmp_path / "backup"
    assert play(chosen, out, at=40, after=True, sabotage=_copied(out, backup, 30)).killed
    if resumed:
        assert play(chosen, out, at=8, after=True, resume=True).killed
    for folder in folders:
        shutil.rmtree(out / folder)
        shutil.copytree(backup / folder, out / folder)
    ended = play(chosen, out, resume=True)
    assert ended.error.startswith("LedgerError") and re.search(why, ended.error), ended.error[-300:]


def test_o5_with_what_lies_outside_put_back_as_well_nothing_shows(
    reference: Reference, tmp_path: Path
) -> None:
    """The control: it is what lies outside the run folder that the refusal rests on."""
    import shutil

    chosen, out = config("fed_avg", "masks"), tmp_path / "run"
    assert play(chosen, out, at=20, after=True).killed
    shutil.copytree(out, tmp_path / "backup")
    shutil.copytree(tmp_path / "keys", tmp_path / "keys-before")
    assert play(chosen, out, at=15, after=True, resume=True).killed
    shutil.rmtree(out)
    shutil.copytree(tmp_path / "backup", out)
    shutil.rmtree(tmp_path / "keys")
    shutil.copytree(tmp_path / "keys-before", tmp_path / "keys")
    _same(play(chosen, out, resume=True), reference("fed_avg", "masks"), out)


def test_resuming_with_another_configuration_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert play(config("fed_avg", "masks"), out, at=30, after=True).killed
    ended = play(config("fed_avg", "masks", seed=2), out, resume=True)
    assert "not the one that the killed run began with" in ended.error


def test_a_finished_run_and_an_empty_folder_cannot_be_resumed(tmp_path: Path) -> None:
    chosen, out = config("fed_avg", "unsafe_plaintext"), tmp_path / "run"
    assert play(chosen, out).result is not None
    assert "it finished" in play(chosen, out, resume=True).error
    assert "no run that could go on" in play(chosen, tmp_path / "none", resume=True).error


def test_without_kept_state_a_killed_run_says_so(tmp_path: Path) -> None:
    chosen = config("fed_avg", "masks").model_copy(update={"resume": False})
    out = tmp_path / "run"
    assert play(chosen, out, at=30, after=True).killed
    assert not (out / "private").exists()
    assert "keys of its kept state are not here" in play(chosen, out, resume=True).error
