"""Sessions of one run: parties that are killed, that leave for good, and what each is held to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import LedgerError, RemoteProtocolError
from protocols.evidence.ledger import read_lines
from protocols.roles.client import ClientSession
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.isolation import kernel
from secure_fgl.sites.process import conduct, open_process
from secure_fgl.sites.session import Answerer
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.transports.broker.messages import END, TASK, Code, SiteReply
from tests.sites.faulty import Dying, Sums
from tests.sites.one_process import Desk, conducted, played, seated
from tests.sites.stage import Parties, assemble, banks, gather, side

SECRET = "Zz-patient-4711"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Federation.from_config(banks()).run(tmp_path_factory.mktemp("banks") / "memory")


def handed(parties: Parties, to: Path) -> list[Path]:
    return [write_hand_over(f, to / f"{f.name}.zip")[0] for f in parties.folders.values()]


def check_sides(parties: Parties) -> None:
    for folder in parties.folders.values():
        found = Run(folder).verify()
        assert found.verdict == "own side holds", (folder.name, found.failed)


def test_a_key_authority_is_one_more_site(
    uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums under homomorphic encryption, opened by a party that is killed at each request (O5)."""
    parties, sums = assemble(banks(policy="he"), tmp_path), Sums.watched(monkeypatch)
    dying = Dying(parties, {"key-authority"})
    played(parties, dying)
    assert len(dying.deaths) >= 3
    assert parties.result()["model_sha256"] == uninterrupted.model_sha256
    assert {*sums.check(smallest=4)} == {5}
    check_sides(parties)
    files = handed(parties, tmp_path)
    assert gather_files(files, tmp_path / "run").missing == ()
    found = Run(tmp_path / "run").verify()
    assert found.verdict == "self-consistent only", found.failed
    secret = json.loads((parties.folders["client-1"] / "identity.json").read_text())["seed"]
    assert not any(secret.encode() in file.read_bytes() for file in files)


def test_o4_a_witness_is_one_more_site(tmp_path: Path) -> None:
    """Rows of one's own, computed again by a party that is killed at each request."""
    config = banks(policy="pilot", algorithm="fed_pub")
    twin = Federation.from_config(config).run(tmp_path / "memory").result
    parties = assemble(config, tmp_path / "parties")
    (witness,) = parties.charter.roster.names(Role.WITNESS)
    dying = Dying(parties, {witness})
    played(parties, dying)
    assert len(dying.deaths) >= 2
    assert parties.result()["bytes_up"] == twin["bytes_up"]
    scores = parties.result()["metrics"]
    assert scores["test_accuracy"] == pytest.approx(twin["metrics"]["test_accuracy"], abs=0.02)
    found = Run(gather(parties, tmp_path / "run")).verify()
    assert found.verdict == "self-consistent only", found.failed
    check_sides(parties)
    ledger = (side(parties.folders[witness]) / "ledger" / f"{witness}.jsonl").read_bytes()
    assert [entry["kind"] for entry, _ in read_lines(ledger)].count("witness") == 2


def test_a_site_that_left_for_good_is_held_to_what_others_received(tmp_path: Path) -> None:
    """It answers nothing from its sixth request on, and never hears of the end."""
    parties, asked = assemble(banks(rounds=2), tmp_path / "parties"), list[str]()

    def leaving(desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply:
        asked.append(party)
        if party == "client-2" and asked.count(party) > 5:
            return SiteReply(Code.FAILED)
        return desk.deliver(party, task, sent)

    desk, gone = seated(parties, leaving), parties.folders["client-2"]
    try:
        conducted(parties, desk)
        assert not (side(gone) / "heads").exists()
        with pytest.raises(UsageError, match="at work"):
            write_hand_over(gone, tmp_path / "early.zip")
    finally:
        desk.close()
    assert Run(gone).verify().verdict == "own side holds, unsigned"
    gather_files(handed(parties, tmp_path), tmp_path / "run")
    found = Run(tmp_path / "run").verify()
    assert found.verdict == "self-consistent only", found.failed
    tree = next(step.detail for step in found.steps if step.name == "tree")
    assert "client-2 left at round" in tree
    ledger = tmp_path / "run" / "ledger" / "client-2.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:6]))
    assert Run(tmp_path / "run").verify().verdict == "FAILED at tree"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


@dataclass
class Fatal:
    """A way on which everybody's process is killed at its n-th request."""

    left: int
    delivered: bool

    def __call__(self, desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply:
        if self.left == 0:
            if self.delivered:  # killed after the party had answered
                desk.deliver(party, task, sent)
            raise Killed
        self.left -= 1
        return desk.deliver(party, task, sent)


@pytest.mark.parametrize(
    ("requests", "delivered"),
    [
        (9, True),
        (20, False),
        *(pytest.param(*at, marks=pytest.mark.long) for at in ((0, False), (14, True), (26, True))),
    ],
)
def test_o5_killed_processes_go_on_to_the_same_result(
    requests: int, delivered: bool, uninterrupted: Run, tmp_path: Path
) -> None:
    parties = assemble(banks(), tmp_path / "parties")
    with pytest.raises(Killed):
        played(parties, Fatal(requests, delivered))
    played(parties)
    assert parties.result()["model_sha256"] == uninterrupted.model_sha256
    assert parties.result()["metrics"] == uninterrupted.result["metrics"]
    gathered = gather(parties, tmp_path / "run")
    assert Run(gathered).verify().verdict == "self-consistent only"


def test_two_processes_of_one_party_do_not_work_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secure_fgl.sites.lock._LOCK_SECONDS", 0.3)
    parties = assemble(banks(), tmp_path)
    first = open_process(parties.kit(AGGREGATOR_NAME))
    with pytest.raises(UsageError, match="Another process"):
        open_process(parties.kit(AGGREGATOR_NAME))
    first.files.close()
    open_process(parties.kit(AGGREGATOR_NAME)).close()


@pytest.mark.parametrize("error", [ValueError, RemoteProtocolError, LedgerError])
def test_o27_an_error_s_text_stays_at_the_party(error: type[Exception], tmp_path: Path) -> None:
    class Failing:
        """A process whose session raises."""

        class kit:
            party = tmp_path

            class charter:
                run = "ab" * 16

        def receive(self, data: bytes) -> None:
            raise error(SECRET)

    failing: Any = Failing()
    answerer = Answerer(failing)
    code = Code.UNREADABLE if error is RemoteProtocolError else Code.FAILED
    assert answerer.answer(TASK, [b"x"]) == SiteReply(code)
    log = tmp_path / "site.log"
    # The texts of our own errors hold no value; of others the class and the place are noted.
    assert (SECRET in log.read_text()) is (error is not ValueError)
    assert error.__name__ in log.read_text() and log.stat().st_mode & 0o777 == 0o600
    assert answerer.broken == (error is LedgerError)  # what cannot be kept is taken up anew


def test_only_the_aggregator_s_word_ends_the_ledger(tmp_path: Path) -> None:
    """A site gives up what it kept at no word of the broker's operator or of another party."""
    parties = assemble(banks(), tmp_path)
    answerer = Answerer(open_process(parties.kit("client-1")))
    head = side(parties.folders["client-1"]) / "heads" / "client-1.checkpoint"
    end, others = parties.end(), parties.kit("client-2")
    foreign = assemble(banks(), tmp_path / "another").end()  # of another run
    notes = [[b""], [bytes(64)], [end[:-1]], [others.charter.end(others.me.signing)], [foreign]]
    for note in ([], *notes):
        assert answerer.answer(END, note) == SiteReply(Code.UNREADABLE)
        assert not answerer.over and not head.exists()
        assert (parties.folders["client-1"] / "keys").is_dir()  # it can still be resumed
    assert answerer.answer(END, [end]) == SiteReply(Code.DONE, [])
    assert answerer.over and head.is_file()


def test_a_party_refuses_a_plan_that_its_own_installation_does_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = assemble(banks(), tmp_path)
    plan = Federation.from_config(banks(rounds=2)).plan()
    monkeypatch.setattr(Federation, "plan", lambda self: plan)
    with pytest.raises(PlanDrift):
        open_process(parties.kit("client-1"))
    assert not parties.kit("client-1").run_folder.exists()


def test_a_client_whose_kernel_cannot_isolate_answers_does_not_sit_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that computes no answers needs none of it."""
    parties = assemble(banks(policy="he"), tmp_path)
    monkeypatch.setattr(kernel.sys, "platform", "darwin")
    with pytest.raises(kernel.CannotIsolate, match="cannot be isolated"):
        open_process(parties.kit("client-1"))
    assert not parties.kit("client-1").run_folder.exists()
    open_process(parties.kit("key-authority")).close()


def test_the_aggregator_is_asked_nothing(tmp_path: Path) -> None:
    parties = assemble(banks(), tmp_path)
    process = open_process(parties.kit(AGGREGATOR_NAME))
    with pytest.raises(RemoteProtocolError):
        process.receive(b"")
    process.close()
    client = open_process(parties.kit("client-1"))
    assert client.prepared.sites == []  # the data are in the process of the answers alone
    assert isinstance(client.session, ClientSession) and client.session._site.data is None
    nobody: Any = None
    with pytest.raises(RemoteProtocolError, match="aggregator"):
        conduct(client, nobody)
    client.close()
