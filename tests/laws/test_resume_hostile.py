"""Law: kept state under hostile use: refused, killed at the worst moment, taken up twice."""

from __future__ import annotations

import collections
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from protocols.disclosures.sum.parties import TotalOpening
from protocols.errors import LocalProtocolError
from protocols.roles.aggregator import AggregatorSession
from protocols.roles.client import ClientSession
from protocols.roles.key_authority import KeyAuthoritySession
from protocols.sessions.store.codec import StateCodec
from secure_fgl.errors import UsageError
from secure_fgl.store.finished_run import Run
from secure_fgl.store.state_store import KeptStateStore, StateStores
from secure_fgl.transports.memory import MemoryTransport
from tests.laws.killing import die, play
from tests.laws.runs import config

pytestmark = pytest.mark.usefixtures("kept_state")

HOLDS = "self-consistent only"


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all keys, of this test alone."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    return tmp_path / "keys"


def _patched(target: Any, name: str, new: Any) -> Callable[[], None]:
    def arrange() -> None:
        patch.object(target, name, new).start()

    return arrange


def _all(*sabotages: Callable[[], object]) -> Callable[[], None]:
    def arrange() -> None:
        for sabotage in sabotages:
            sabotage()

    return arrange


def _swallowing() -> None:
    """Make a transport for which whoever raises has not answered, as between machines."""

    def exchange(self: MemoryTransport, deliveries: Any) -> Any:
        answers: list[Any] = []
        for delivery in deliveries:
            try:
                answers += self._sessions[delivery.to].receive(bytes(delivery.data))
            except Exception:
                continue
        return answers

    patch.object(MemoryTransport, "exchange", exchange).start()


def test_o5_a_refused_resume_leaves_the_evidence_of_a_finished_run_alone(tmp_path: Path) -> None:
    """Killed between the removal of the keys and that of the pieces, a run is finished."""
    chosen, out, remove = config("fed_avg", "masks"), tmp_path / "run", shutil.rmtree

    def deadly(path: Any, *arguments: Any, **named: Any) -> None:
        remove(path, *arguments, **named)
        die()

    assert play(chosen, out, sabotage=_patched(shutil, "rmtree", deadly)).killed
    assert Run(out).verify().verdict == HOLDS
    written = (out / "metrics.jsonl").read_bytes()
    play(chosen, out, resume=True)
    assert (out / "metrics.jsonl").read_bytes() == written
    assert Run(out).verify().verdict == HOLDS


@pytest.mark.parametrize("content", ["", '{"run":', "{}", "[]", '{"run": "..", "nonce": "zz"}'])
def test_o5_a_damaged_roster_is_refused_in_words_and_changes_nothing(
    content: str, tmp_path: Path
) -> None:
    chosen, out = config("fed_avg", "masks"), tmp_path / "run"
    assert play(chosen, out, at=45, after=True).killed
    before = (out / "metrics.jsonl").read_bytes()
    (out / "roster.json").write_text(content)
    error = play(chosen, out, resume=True).error
    assert error.startswith(("UsageError", "EvidenceError", "LedgerError")), error[:200]
    assert (out / "metrics.jsonl").read_bytes() == before


def test_o5_a_missing_ledger_is_refused_in_words(tmp_path: Path) -> None:
    chosen, out = config("fed_avg", "masks"), tmp_path / "run"
    assert play(chosen, out, at=30, after=True).killed
    (out / "ledger" / "client-2.jsonl").unlink()
    error = play(chosen, out, resume=True).error
    assert error.startswith(("UsageError", "LedgerError")), error[:200]


def state_keys(keys: Path) -> list[Path]:
    """Return the keys of kept state; those of captured rounds and of models outlive their run."""
    outlive = {"captures", "models"}
    return [key for key in keys.rglob("*.key") if not outlive & set(key.parts)]


def test_o9_a_run_that_could_not_begin_leaves_no_key(tmp_path: Path, keys: Path) -> None:
    chosen = config("fed_avg", "calibrated", store=tmp_path / "budgets")
    assert play(chosen, tmp_path / "first").result is not None
    assert "Budget" in play(chosen, tmp_path / "second").error
    assert not state_keys(keys)
    assert not (tmp_path / "second" / "private").exists()


def test_o5_a_run_killed_after_its_report_ends_with_the_true_verdict(
    tmp_path: Path, keys: Path
) -> None:
    chosen, out = config("fed_avg", "masks"), tmp_path / "run"
    deadly = _patched(StateStores, "destroy", lambda self: die())
    assert play(chosen, out, sabotage=deadly).killed
    assert (out / "report").is_dir()
    ended = play(chosen, out, resume=True)
    assert ended.result is not None or "it finished" in ended.error, ended.error
    assert Run(out).result["verdict"] == Run(out).verify().verdict == HOLDS
    assert not state_keys(keys) and not (out / "private").exists()


def test_o6_a_run_that_is_alive_cannot_be_taken_up_by_a_second_process(tmp_path: Path) -> None:
    """Two living sessions of one party would send two vectors under one mask."""
    chosen, out, said = config("fed_avg", "masks"), tmp_path / "run", tmp_path / "said"
    receive, calls = ClientSession.receive, [0]

    def held(self: ClientSession, data: bytes) -> Any:
        calls[0] += 1
        if calls[0] == 35:  # this process lives and waits while another one tries
            said.write_text(play(chosen, out, resume=True).error or "it went on")
        return receive(self, data)

    first = play(chosen, out, sabotage=_patched(ClientSession, "receive", held))
    assert said.read_text().startswith("UsageError"), said.read_text()[-300:]
    assert first.result is not None, first.error
    assert Run(out).verify().verdict == HOLDS


def _refusing(name: str) -> None:
    """Let one client refuse in round 2."""
    answer = ClientSession._answer

    def refuses(self: ClientSession, incoming: Any) -> Any:
        if self.name == name and incoming.header.round == 2:
            raise LocalProtocolError("made to refuse")
        return answer(self, incoming)

    patch.object(ClientSession, "_answer", refuses).start()


@pytest.mark.parametrize("name", ["client-1", "client-5"])
@pytest.mark.parametrize("kind", [ClientSession, AggregatorSession])
def test_a_refusal_that_was_kept_still_ends_the_run(kind: Any, name: str, tmp_path: Path) -> None:
    """Killed right after the refusal was kept, at the client that refused or at the aggregator."""
    chosen, out = config("fed_avg", "masks", rounds=3), tmp_path / "run"
    receive, commit, here = kind.receive, kind.commit, [False]

    def received(self: Any, data: bytes) -> Any:
        here[0] = kind is AggregatorSession and b"refusal.client" in data
        found = receive(self, data)
        if kind is ClientSession and self.last_error is not None:
            die()
        return found

    def kept(self: Any) -> None:
        commit(self)
        if here[0]:
            die()

    arrange = _all(
        _swallowing,
        lambda: _refusing(name),
        _patched(kind, "receive", received),
        _patched(kind, "commit", kept),
    )
    assert play(chosen, out, sabotage=arrange).killed
    ended = play(chosen, out, resume=True, sabotage=_swallowing)
    assert ended.result is None, "the run went on without the client that refused"
    assert ended.error.startswith(("Refused", "LocalProtocolError")), ended.error[:200]


def test_a_configuration_that_was_edited_in_the_run_folder_is_refused(tmp_path: Path) -> None:
    """Neither model would come out, and the evidence would hold."""
    out, other = tmp_path / "run", config("fed_avg", "masks", seed=9, lr=0.001)
    assert play(config("fed_avg", "masks"), out, at=30, after=True).killed
    (out / "config.yaml").write_text(other.text())
    ended = play(other, out, resume=True)
    assert ended.result is None
    assert ended.error.startswith(("UsageError", "LedgerError")), ended.error[:200]


@pytest.mark.parametrize("fault", [PermissionError(13, "no"), MemoryError()])
def test_o5_whatever_keeps_a_state_from_being_kept_nothing_leaves(
    fault: Exception, tmp_path: Path
) -> None:
    """The same bytes again must not bring out what the ledger does not hold durably."""
    chosen, out, said = config("fed_avg", "masks"), tmp_path / "run", tmp_path / "said"

    def arrange() -> None:
        patched, calls = KeptStateStore.patch, [0]

        def fails(self: KeptStateStore, name: str, writes: Any) -> None:
            if "client" in self._name and name.startswith("journal-"):
                calls[0] += 1
                if calls[0] == 17:
                    raise fault
            patched(self, name, writes)

        def exchange(self: MemoryTransport, deliveries: Any) -> Any:
            answers: list[Any] = []
            for delivery in deliveries:
                session: Any = self._sessions[delivery.to]
                try:
                    answers += session.receive(bytes(delivery.data))
                except Exception:
                    again = session.receive(bytes(delivery.data))
                    said.write_text(f"{len(again)} {len(session.ledger._pending)}")
                    raise
            return answers

        patch.object(KeptStateStore, "patch", fails).start()
        patch.object(MemoryTransport, "exchange", exchange).start()

    assert play(chosen, out, sabotage=arrange).result is None
    assert not said.exists(), f"deliveries that left, bytes not durable: {said.read_text()}"


def test_o5_an_authority_that_was_interrupted_opens_nothing_that_it_did_not_check(
    tmp_path: Path,
) -> None:
    """The same request again is taken on trust only if its opening was recorded."""
    said = tmp_path / "said"

    def arrange() -> None:
        verified, calls = TotalOpening._verified, [0]

        def interrupted(self: KeyAuthoritySession, *arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] == 1:
                raise KeyboardInterrupt
            return verified(self, *arguments)

        def exchange(self: MemoryTransport, deliveries: Any) -> Any:
            answers: list[Any] = []
            for delivery in deliveries:
                session: Any = self._sessions[delivery.to]
                try:
                    answers += session.receive(bytes(delivery.data))
                except KeyboardInterrupt:
                    answers += session.receive(bytes(delivery.data))
                    said.write_text(json.dumps([calls[0], len(session.openings.opened)]))
            return answers

        patch.object(TotalOpening, "_verified", interrupted).start()
        patch.object(MemoryTransport, "exchange", exchange).start()

    play(config("fed_avg", "he"), tmp_path / "run", sabotage=arrange)
    if said.exists():  # it answered: then only because it checked, and recorded it
        assert json.loads(said.read_text()) == [2, 1]


def test_old_private_layers_do_not_stay_behind(tmp_path: Path) -> None:
    """Killed between a new journal's key and the removal of the old journal, and of long values."""
    chosen, out = config("fed_avg", "masks", rounds=3, hidden=600), tmp_path / "run"
    drop, calls = KeptStateStore.drop, [0]

    def deadly(self: KeptStateStore, name: str) -> None:
        calls[0] += self._name == "private/client-2" and name == "journal-1"
        if calls[0] == 2:  # the first made room for it
            die()
        drop(self, name)

    assert play(chosen, out, sabotage=_patched(KeptStateStore, "drop", deadly)).killed
    assert play(chosen, out, at=30, after=True, resume=True).killed
    for folder in (out / "private").iterdir():
        names = [f.name for f in folder.iterdir()]
        assert len([name for name in names if name.startswith("journal-")]) == 1, folder.name
        assert len([name for name in names if name.startswith("part-")]) <= 12, folder.name


def test_a_full_disk_says_only_what_can_be_done(tmp_path: Path) -> None:
    chosen, out = config("fed_avg", "masks"), tmp_path / "run"

    def arrange() -> None:
        patched, calls = KeptStateStore.patch, [0]

        def full(self: KeptStateStore, name: str, writes: Any) -> None:
            calls[0] += 1
            if calls[0] == 40:
                raise OSError(28, "No space left on device")
            patched(self, name, writes)

        patch.object(KeptStateStore, "patch", full).start()

    error = play(chosen, out, sabotage=arrange).error
    assert error.startswith("LedgerError")
    if "start again with --resume" in error:
        assert play(chosen, out, resume=True).result is not None


_Pair = collections.namedtuple("_Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        _Pair(1, 2),
        collections.defaultdict(list, {"a": [1]}),
        collections.Counter("aab"),
        np.ma.masked_array([1, 2], mask=[False, True]),
        np.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")]),
        np.asfortranarray(np.ones((3, 4))),
    ],
    ids=["namedtuple", "defaultdict", "counter", "masked", "structured", "fortran"],
)
def test_the_codec_gives_back_what_it_took_or_raises(value: Any) -> None:
    codec = StateCodec({}, [], None, bytes(32))
    try:
        data = codec.pack(value)
    except LocalProtocolError:
        return
    found = codec.unpack(data)
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert found.flags.f_contiguous == value.flags.f_contiguous


def test_a_crowd_of_parties_takes_one_lock(tmp_path: Path) -> None:
    """Thousands of clients in one process must not need a file handle each."""
    state_stores = StateStores("ab" * 16, tmp_path, tmp_path / "keys")
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
    for number in range(50):
        state_stores.new(f"client-{number}")
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    with pytest.raises(UsageError, match="Another process"):
        StateStores("ab" * 16, tmp_path, tmp_path / "keys").open("client-1")
    state_stores.release()
    StateStores("ab" * 16, tmp_path, tmp_path / "keys").open("client-1")
