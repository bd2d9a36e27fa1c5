"""Requests that come late, twice or out of order: none of them ends a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import RemoteProtocolError, Replay
from protocols.evidence.ledger import read_lines
from protocols.wire.envelope import Envelope
from protocols.wire.inbox import Inbox
from secure_fgl.federation import Federation
from secure_fgl.sites.process import open_process
from secure_fgl.sites.session import Answerer
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.broker.messages import END, TASK, Code, SiteReply
from tests.sites.faulty import Sums
from tests.sites.one_process import Desk, conducted, played, seated
from tests.sites.stage import Parties, assemble, banks, gather, side

LATE = "client-5"
SEED = 7


@pytest.fixture
def stage(tmp_path: Path) -> Parties:
    return assemble(banks(rounds=2), tmp_path / "parties")


def refusals(parties: Parties) -> list[str]:
    """Return who wrote down that it refused something."""
    found = []
    for folder in parties.folders.values():
        ledger = side(folder) / "ledger" / f"{folder.name}.jsonl"
        if any(entry["kind"] == "refusal" for entry, _ in read_lines(ledger.read_bytes())):
            found.append(folder.name)
    return found


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Federation.from_config(banks(rounds=2)).run(tmp_path_factory.mktemp("memory") / "run")


@dataclass
class Unruly:
    """A way that delivers twice, loses replies, and brings anything back, at seeded places."""

    stream: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))
    past: dict[str, list[Sequence[bytes]]] = field(default_factory=dict)
    lost: int = 0

    def __call__(self, desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply:
        if task != TASK:
            return desk.deliver(party, task, sent)
        past, draws = self.past.setdefault(party, []), self.stream.random(4)
        old = [past[int(place * len(past))] for place in self.stream.random(2) if past]
        past.append(sent)
        if draws[0] < 0.5 and old:  # an older one overtakes it
            desk.deliver(party, task, old[0])
        reply = desk.deliver(party, task, sent)
        if draws[1] < 0.5:  # the network delivers it twice
            desk.deliver(party, task, sent)
        if draws[2] < 0.5 and old:  # an older one comes after it
            desk.deliver(party, task, old[-1])
        if draws[3] < 0.25:  # and the reply is lost: the carrier asks again under the same name
            self.lost += 1
            return desk.deliver(party, task, sent)
        return reply


def test_o5_what_comes_twice_late_or_out_of_order_changes_nothing(
    stage: Parties, memory: Run, tmp_path: Path
) -> None:
    unruly = Unruly()
    desk = played(stage, unruly)
    assert max(desk.allowed) <= stage.charter.broker.deadline and unruly.lost > 5
    result = stage.result()
    assert result["model_sha256"] == memory.model_sha256
    same = ("metrics", "lost_rounds", "exchanges", "bytes_up", "bytes_down")
    assert {key: result[key] for key in same} == {key: memory.result[key] for key in same}
    assert refusals(stage) == [] and len(desk.first) >= 20
    assert all(answerer.over for answerer in desk.seats.values())
    assert Run(gather(stage, tmp_path / "gathered")).verify().verdict == "self-consistent only"


def ask_of(task: str, sent: Sequence[bytes]) -> bool:
    """Tell whether a request asks a client for its update."""
    return task == TASK and Envelope.decode(sent[-1]).header.item == "train.down"


@dataclass
class Stalled:
    """The first Ask to one client stalls, and arrives once a newer one was answered."""

    comes: bool = True
    held: Sequence[bytes] = ()
    codes: list[Code] = field(default_factory=list)

    def __call__(
        self, desk: Desk, party: str, task: str, sent: Sequence[bytes]
    ) -> SiteReply | None:
        if party != LATE or not ask_of(task, sent):
            return desk.deliver(party, task, sent)
        if not self.held:
            self.held = sent
            return SiteReply(Code.FAILED)  # nobody waits on its account
        reply = desk.deliver(party, task, sent)
        if self.comes and not self.codes:
            self.codes = [desk.deliver(party, task, self.held).code for _ in range(2)]
        return reply


def trusting(patch: pytest.MonkeyPatch) -> None:
    """Let every inbox forget how far the run is, as before."""
    checked = Inbox.open

    def forgetful(inbox: Inbox, data: bytes, **more: object) -> object:
        inbox._newest.clear()
        return checked(inbox, data, **more)  # type: ignore[arg-type]

    patch.setattr(Inbox, "open", forgetful)


@pytest.mark.parametrize("mended", [True, False])
def test_o5_an_ask_that_stalls_and_comes_after_a_newer_one_ends_no_session(
    mended: bool, stage: Parties, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its site misses that one round; and without the mark its session ended (the control)."""
    if not mended:
        trusting(monkeypatch)
    stalled = Stalled()
    desk = seated(stage, stalled)
    late = desk.seats[LATE].process
    try:
        conducted(stage, desk)
    finally:
        desk.close()
    if not mended:
        assert refusals(stage) == [LATE] and isinstance(late.session.last_error, Replay)
        return
    assert stalled.codes == [Code.UNREADABLE] * 2
    assert late.session.last_error is None and refusals(stage) == []
    assert stage.result()["lost_rounds"] == []
    twin = assemble(banks(rounds=2), tmp_path / "twin")  # the same, and the late one never comes
    played(twin, Stalled(comes=False))
    assert stage.result()["model_sha256"] == twin.result()["model_sha256"]
    verdict = Run(gather(stage, tmp_path / "gathered")).verify().verdict
    assert verdict == "self-consistent only"


@dataclass
class Unopened:
    """The authority does not answer what it is asked to open in round 2, twice."""

    missed: int = 0

    def __call__(self, desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply:
        if party == "key-authority" and task == TASK and self.missed < 2:
            header = Envelope.decode(sent[0]).header
            if header.round == 2 and header.item.endswith(".open"):
                self.missed += 1
                return SiteReply(Code.FAILED)  # nobody waits for it
        return desk.deliver(party, task, sent)


def test_who_goes_on_with_a_run_asks_for_the_total_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays away, and the session that goes on stops in the same way."""
    config = banks(rounds=3, policy="he")
    twin = Federation.from_config(config).run(tmp_path / "memory")
    sums, parties = Sums.watched(monkeypatch), assemble(config, tmp_path / "parties")
    unopened = Unopened()
    desk = seated(parties, unopened)
    try:
        for _ in range(2):
            with pytest.raises(RemoteProtocolError, match="did not open the total"):
                conducted(parties, desk)
        conducted(parties, desk)
    finally:
        desk.close()
    assert unopened.missed == 2 and parties.result()["lost_rounds"] == []
    assert parties.result()["model_sha256"] == twin.model_sha256
    assert set(sums.check(smallest=5)) == {5}


@pytest.fixture
def over(stage: Parties) -> Iterator[tuple[Answerer, bytes]]:
    """A client whose run is over, and the aggregator's word of it."""
    answerer = Answerer(open_process(stage.kit("client-1")))
    yield answerer, stage.end()
    answerer.process.files.close()


def test_the_word_that_a_run_is_over_comes_in_any_order_and_twice(
    over: tuple[Answerer, bytes],
) -> None:
    """It exists once all rounds are done, and says no more."""
    answerer, word = over
    assert not answerer.over and answerer.process.session.last_error is None
    ledger = answerer.process.session.ledger
    size = ledger.size
    assert answerer.answer(TASK, [word]).code is Code.UNREADABLE  # it is no envelope
    assert answerer.answer("secure_fgl.stop", [word]).code is Code.UNREADABLE  # nor a request
    assert ledger.size == size and not answerer.over
    assert answerer.answer(END, [word]) == SiteReply(Code.DONE, [])
    assert answerer.over and not answerer.broken
    size = ledger.size
    for _ in range(2):  # the carrier finds no process by then
        answerer.answer(END, [word])
        assert ledger.size == size and answerer.over
